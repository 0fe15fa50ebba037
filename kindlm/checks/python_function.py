"""The section `python` of `expect`: functions of the user that check an execution.

A function gets a `CheckedExecution`, which cannot be changed. What the function does decides the
check, and only a plain yes passes: see `_decided`. What it raises leaves the check undecided, and
so does looking at something that is not known.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from pydantic import Field, PrivateAttr

from kindlm.checks.base import (
    AskingCheck,
    CheckSection,
    Key,
    Made,
    Place,
    Reads,
    UndecidedError,
    failed,
    passed,
    undecided,
)
from kindlm.checks.call_matching import why_unknown, written_arguments
from kindlm.checks.limits import why_cost_unknown
from kindlm.checks.of_packages import in_a_thread
from kindlm.dataclass import dataclass
from kindlm.guard import guard
from kindlm.outcome import CheckResult, Demands
from kindlm.ports import CheckContext
from kindlm.section import Score, Text
from kindlm.transcript import ToolUse, Transcript, Turn
from kindlm.wording import excerpt


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A tool call: its `name`, its `arguments` (text unless a JSON object), its `result`."""

    name: str
    arguments: Any
    result: Any


@dataclass(frozen=True, slots=True)
class CheckedTurn:
    """A message of the `user`, the `text` of the answer, and the tool calls made for it."""

    user: str
    text: str
    _calls: Callable[[], tuple[CheckedCall, ...]]

    @property
    def tool_calls(self) -> tuple[CheckedCall, ...]:
        """The tool calls of this turn, in their order."""
        return self._calls()


class CheckedExecution:
    """What a function may look at: the conversation, and what it took.

    Looking at something that is not known ends the function, and leaves its check undecided.
    """

    __slots__ = ("_seen", "_unknown")

    def __init__(self, seen: Transcript) -> None:
        self._seen = seen
        self._unknown: list[str] = []

    @property
    def text(self) -> str:
        """The final answer."""
        return self._seen.text

    @property
    def tool_calls(self) -> tuple[CheckedCall, ...]:
        """All tool calls, in their order. Not known of an agent that does not report its calls."""
        return self._called(self._seen.tool_uses)

    @property
    def conversation(self) -> tuple[CheckedTurn, ...]:
        """The turns, each with `user`, `text` and `tool_calls`."""
        return tuple(map(self._turn, self._seen.turns))

    @property
    def latency_ms(self) -> float:
        """How long all answers took, in milliseconds."""
        if not self._seen.steps:
            self._refuse("The latency is not known: the target gave no answer.")
        return self._seen.total.latency_ms

    @property
    def cost_usd(self) -> float:
        """What all answers cost, in US dollars, judges not counted."""
        usd = self._seen.total.cost.usd
        if usd is None:
            self._refuse(why_cost_unknown(self._seen))
        return usd

    def _turn(self, turn: Turn) -> CheckedTurn:
        uses = tuple(use for step in turn.steps for use in step.tool_uses)
        return CheckedTurn(turn.user, turn.text, lambda: self._called(uses))

    def _called(self, uses: tuple[ToolUse, ...]) -> tuple[CheckedCall, ...]:
        if (why := why_unknown(self._seen)) is not None:
            self._refuse(why)
        # Of copies: other checks look at the same values.
        return tuple(
            CheckedCall(
                use.call.name,
                copy.deepcopy(written_arguments(use)),
                copy.deepcopy(use.response),
            )
            for use in uses
        )

    def _refuse(self, why: str) -> NoReturn:
        self._unknown.append(why)
        raise UndecidedError(why)


class PythonFunction(CheckSection, AskingCheck):
    """A function of your own that checks an execution."""

    key = Key("python", "Functions of your own that check an execution.", many=True, order=90)
    kind = "python"
    demands = Demands.SAFETY
    main = "function"
    reads = Reads.EVERYTHING
    asks_judge = False

    function: Text = Field(examples=["checks.py:polite"])
    """Function as `file.py:name`, relative to this file. It gets the execution and returns true,
    false, the reason of a failure as a string, or a score from 0 to 1."""
    min_score: Score = Field(default=0.7, examples=[0.9])
    """Minimum score to pass, for a function that returns a score."""

    _call: Callable[[CheckedExecution], Any] | None = PrivateAttr(None)

    @property
    def label(self) -> str:
        return self.function

    @classmethod
    def functions(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
        yield ("function",), written.get("function")

    def checks(self, schema: Callable[[str], Any]) -> Iterator[Made]:
        yield Made(self.calling(schema(self.function)), self.label)

    def calling(self, call: Callable[[CheckedExecution], Any]) -> PythonFunction:
        """Return it with the function itself."""
        copied = self.model_copy()
        copied._call = call  # noqa: SLF001 - of the same class
        return copied

    async def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        """Return what the function finds; it runs in a thread until the execution has to end."""
        call, seen = self._call, CheckedExecution(transcript)
        assert call is not None, "references are checked before a suite is compiled"

        def run() -> CheckResult:
            try:
                with guard.single():
                    returned = call(seen)
                    if inspect.iscoroutine(returned):
                        returned = asyncio.run(returned)
                return self._decided(returned)
            except BaseException as error:  # noqa: BLE001 - the user's function
                return self._raised(error, Path(inspect.getfile(inspect.unwrap(call))))

        result: CheckResult = await in_a_thread(run)
        # Whatever the function made of it.
        return undecided(seen._unknown[0]) if seen._unknown else result  # noqa: SLF001

    def _decided(self, returned: Any) -> CheckResult:
        name, least = self.function, self.min_score
        match returned:
            case True:
                return passed()
            case False:
                return failed("CUSTOM_CHECK_FAILED", f"{name} returned False.")
            case str() if returned.strip():
                return failed("CUSTOM_CHECK_FAILED", returned.strip())
            case int() | float() if math.isfinite(returned) and 0 <= returned <= 1:
                score = float(returned)
                if score >= least:
                    return passed(score=score, threshold=least)
                message = f"{name} returned the score {score:.3g}, expected at least {least:.3g}."
                return failed("CUSTOM_CHECK_FAILED", message, score=score, threshold=least)
        was = "nothing" if returned is None else excerpt(repr(returned))
        return undecided(
            f"{name} returned {was}. Return True if the check passes, False or a reason if it"
            " fails, or a score from 0 to 1."
        )

    def _raised(self, error: BaseException, file: Path) -> CheckResult:
        """Return that a function failed the check by an assertion, or that it crashed."""
        where, line = _frame(error, file)
        if isinstance(error, AssertionError):
            said = str(error).strip() or line or "an assertion does not hold"
            return failed("CUSTOM_CHECK_FAILED", f"{where}: {said}")
        trace = "".join(traceback.format_exception(error))
        message = f"{where} {type(error).__name__}: {error}"
        return undecided(f"The function crashed: {message.rstrip(': ')}", trace=trace)


def _frame(error: BaseException, file: Path) -> tuple[str, str]:
    """Return the last line that an error came through of the files beside `file`, and its text."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in frames
        if (path := Path(frame.filename)).is_relative_to(file.parent)
        and "site-packages" not in path.parts
    ]
    if not own:
        return file.name, ""
    name = Path(own[-1].filename).relative_to(file.parent)
    return f"{name.as_posix()}:{own[-1].lineno}", own[-1].line or ""
