"""Checks that are code of users: functions in `python` of `expect`, and checks of packages.

A check of a package is made from its options, and its result is validated: it passes only by
returning a passed result.

A function gets an immutable `CheckedExecution`. Only a plain yes passes: see `_decided`. If it
raises, or reads something that is not known, the check is undecided.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import Field, PrivateAttr

from kindlm.checks.base import (
    AskingCheck,
    CheckSection,
    Fill,
    Key,
    Made,
    Place,
    Reads,
    Refers,
    UndecidedError,
    failed,
    passed,
    undecided,
)
from kindlm.checks.call_matching import why_unknown, written_arguments
from kindlm.checks.limits import why_cost_unknown
from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, Ok
from kindlm.guard import guard
from kindlm.outcome import CheckResult, Demands, Outcome
from kindlm.ports import CheckContext
from kindlm.section import Score, Text
from kindlm.transcript import ToolUse, Transcript, Turn
from kindlm.values import filled
from kindlm.wording import bounded, excerpt, sentence, shown

if TYPE_CHECKING:
    from kindlm import plugins


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
    def references(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, Refers, Any]]:
        yield ("function",), Refers.FUNCTION, written.get("function")

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
        # Access to unknown data decides, whatever the function did next.
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
            case int() | float() if 0 <= returned <= 1:
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
        """Return the result of a function that failed the check by an assertion, or crashed."""
        where, line = _frame(error, file)
        if isinstance(error, AssertionError):
            said = str(error).strip() or line or "an assertion does not hold"
            return failed("CUSTOM_CHECK_FAILED", f"{where}: {said}")
        trace = "".join(traceback.format_exception(error))
        message = f"{where} {type(error).__name__}: {error}"
        return undecided(f"The function crashed: {message.rstrip(': ')}", trace=trace)


def _frame(error: BaseException, file: Path) -> tuple[str, str]:
    """Return the last line of files beside `file` that an error passed through, and its text."""
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


@dataclass(frozen=True, slots=True)
class CheckOfPackage(AskingCheck):
    """A check of another package, by its name and its options as JSON values.

    What it asks is not known before it runs. A faulty one is undecided.
    """

    name: str
    options: Mapping[str, Any]

    reads = Reads.EVERYTHING

    @property
    def about_tools(self) -> bool:  # type: ignore[override]
        return self._kind.about_tools

    @property
    def demands(self) -> Demands:  # type: ignore[override]
        return self._kind.demands

    @property
    def only_numbers(self) -> bool:  # type: ignore[override]
        return self._kind.only_numbers

    @property
    def _kind(self) -> type[plugins.Check]:
        """The class, or that of any check if it cannot be loaded."""
        from kindlm import packages, plugins  # only once a suite has such a check

        found = packages.find(plugins.Check, self.name)
        return found.value if isinstance(found, Ok) else plugins.Check

    def filled(self, bind: Fill, insert: Fill) -> CheckOfPackage:
        return replace(self, options=filled(self.options, insert))

    async def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        from kindlm import packages, plugins

        found = packages.find(plugins.Check, self.name)
        if found is None:
            return undecided(f"No check is named {shown(self.name)}.")
        if isinstance(found, Err):
            return undecided(found.error.message, trace=found.error.trace)
        plugin = packages.installed(plugins.Check.group)[self.name][0]
        try:
            configured = packages.options_of_package(found.value, self.options, again=True)
            work: Callable[[], Any] = partial(configured.evaluate, transcript, context)
            if inspect.iscoroutinefunction(configured.evaluate):
                returned = await work()
            else:
                returned = await in_a_thread(work)
            wrong = _wrong_with(returned)
        except (*packages.CRASHES, asyncio.CancelledError) as error:
            if packages.is_cancelled(error):
                raise
            crash = packages.crashed(plugin, "crashed", error)
            return undecided(crash.message, trace=crash.trace)
        if wrong is not None:
            return undecided(f"{plugin} returned no valid result: {wrong}")
        result: CheckResult = returned
        return replace(
            result,
            message=sentence(result.message),
            expected=bounded(result.expected),
            actual=bounded(result.actual),
        )


async def in_a_thread(work: Callable[[], Any]) -> Any:
    """Return the result of user code; raise an `Exception` whatever it raises.

    It has a thread of its own, which no other check waits for and which does not keep the process
    from ending, since its time is unlimited.
    """
    done = Future[Any]()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - whatever it is, the check has no result
            # A task takes no `StopIteration`, and `SystemExit` would end the event loop.
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                done.set_exception(error)
            else:
                done.set_exception(RuntimeError(f"it raised {type(error).__name__}: {error}"))

    threading.Thread(target=copy_context().run, args=(run,), daemon=True).start()
    return await asyncio.wrap_future(done)


def _wrong_with(returned: Any) -> str | None:
    """Return why a value is not a valid result of a check."""
    if inspect.isawaitable(returned):
        return "it is awaitable, but `evaluate` is not `async`"
    from kindlm import packages

    wrong = packages.wrong_with(returned, CheckResult)
    if wrong is not None:
        return wrong
    result: CheckResult = returned
    if result.outcome is Outcome.SKIPPED:
        return "it is skipped: a check passes, fails or is undecided"
    if (result.outcome is Outcome.PASSED) != (result.failure_code is None):
        return f"it is {result.outcome} with the failure code {result.failure_code}"
    if result.failure_code not in (None, "CUSTOM_CHECK_FAILED", "ASSERTION_EVAL_ERROR"):
        return f"its failure code is {shown(result.failure_code)}, which `failed` does not give"
    if result.score is None and result.outcome is not Outcome.INCONCLUSIVE:
        return "it has no score"
    if not all(0 <= each <= 1 for each in (result.score, result.threshold) if each is not None):
        return "its score or threshold is not from 0 to 1"
    return None
