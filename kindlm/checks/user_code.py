"""Checks in users' code: functions under `python` in `expect`, and checks of packages.

A function gets an immutable `CheckedExecution`, and passes only by returning True or a score. If it
crashes, or reads something unknown, the check is undecided. The result of a package's check is
validated.
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
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn

from pydantic import Field, PrivateAttr

from kindlm.checks.base import (
    AskingCheck,
    CheckSection,
    Fill,
    Key,
    Made,
    Place,
    Refers,
    UndecidedError,
    failed,
    passed,
    undecided,
)
from kindlm.checks.call_matching import why_unknown, written_arguments
from kindlm.checks.limits import NO_LATENCY, why_cost_unknown
from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, Ok, error_text
from kindlm.guard import guard
from kindlm.outcome import CheckResult, Demands, Outcome
from kindlm.ports import CheckContext
from kindlm.section import Score, Text
from kindlm.transcript import Transcript, Turn
from kindlm.values import filled
from kindlm.wording import bounded, excerpt, measured, sentence, shown


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A tool call. Its `arguments` are a text if they are not a JSON object."""

    name: str
    arguments: Any
    result: Any


@dataclass(frozen=True, slots=True)
class CheckedTurn:
    """A message of the `user`, the `text` of its answer, and the tool calls in between."""

    user: str
    text: str
    _calls: Callable[[], tuple[CheckedCall, ...]]

    @property
    def tool_calls(self) -> tuple[CheckedCall, ...]:
        """The tool calls of this turn, in their order."""
        return self._calls()


class CheckedExecution:
    """The conversation, its latency and its cost, as a function sees them.

    Reading something unknown ends the function, and leaves its check undecided.
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
        """All tool calls in their order; unknown if the agent does not report its calls."""
        return self._called(*self._seen.turns)

    @property
    def conversation(self) -> tuple[CheckedTurn, ...]:
        """The turns, each with `user`, `text` and `tool_calls`."""
        return tuple(
            CheckedTurn(turn.user, turn.text, partial(self._called, turn))
            for turn in self._seen.turns
        )

    @property
    def latency_ms(self) -> float:
        """The latency of all answers together, in milliseconds."""
        if not self._seen.steps:
            self._refuse(NO_LATENCY)
        return self._seen.total.latency_ms

    @property
    def cost_usd(self) -> float:
        """The cost of all answers together in US dollars, without judges."""
        if (usd := self._seen.total.cost.usd) is None:
            self._refuse(why_cost_unknown(self._seen))
        return usd

    def _called(self, *turns: Turn) -> tuple[CheckedCall, ...]:
        if (why := why_unknown(self._seen)) is not None:
            self._refuse(why)
        # Copies, since other checks read the same values.
        return tuple(
            CheckedCall(
                name=use.call.name,
                arguments=copy.deepcopy(written_arguments(use)),
                result=copy.deepcopy(use.response),
            )
            for turn in turns
            for step in turn.steps
            for use in step.tool_uses
        )

    def _refuse(self, why: str) -> NoReturn:
        self._unknown.append(why)
        raise UndecidedError(why)


class PythonFunction(CheckSection, AskingCheck):
    """A function of your own that checks an execution."""

    key = Key("python", "Functions of your own that check an execution.", many=True, order=90)
    demands = Demands.SAFETY
    main = labelled_by = "function"
    asks_judge = False

    function: Text = Field(examples=["checks.py:polite"])
    """Function as `file.py:name`, relative to this file. It gets the execution and returns true,
    false, the reason of a failure as a string, or a score from 0 to 1."""
    min_score: Score = Field(default=0.7, examples=[0.9])
    """Minimum score to pass, for a function that returns a score."""

    _call: Any = PrivateAttr(None)

    @classmethod
    def references(cls, written: Mapping[str, Any]) -> Iterator[tuple[Place, Refers, Any]]:
        yield ("function",), "function", written.get("function")

    def checks(self, schema: Callable[[str], Any]) -> Iterator[Made]:
        yield Made(self.calling(schema(self.function)), self.label)

    def calling(self, call: Callable[[CheckedExecution], Any]) -> PythonFunction:
        """Return the check with the function itself."""
        copied = self.model_copy()
        copied._call = call  # noqa: SLF001 - of the same class
        return copied

    async def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        """Run the function in a thread, and return its result."""
        call, seen = self._call, CheckedExecution(transcript)

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
                message = f"{name} returned the score {measured(score, least)}, expected at least"
                message += f" {least:.10g}."
                return failed("CUSTOM_CHECK_FAILED", message, score=score, threshold=least)
        was = "nothing" if returned is None else excerpt(repr(returned))
        hint = "Return True if the check passes, False or a reason if it fails, or a score from"
        return undecided(f"{name} returned {was}. {hint} 0 to 1.")

    def _raised(self, error: BaseException, file: Path) -> CheckResult:
        """Return the result of a function that raised: failed for an assertion, else undecided."""
        where, line, folder = file.name, "", file.parent
        for frame in traceback.extract_tb(error.__traceback__):
            path = Path(frame.filename)
            if path.is_relative_to(folder) and "site-packages" not in path.parts:
                where = f"{path.relative_to(folder).as_posix()}:{frame.lineno}"
                line = frame.line or ""
        if isinstance(error, AssertionError):
            reason = str(error).strip() or line or "an assertion does not hold"
            return failed("CUSTOM_CHECK_FAILED", f"{where}: {reason}")
        trace = "".join(traceback.format_exception(error))
        return undecided(f"The function crashed: {where} {error_text(error)}", trace=trace)


@dataclass(frozen=True, slots=True)
class CheckOfPackage(AskingCheck):
    """A check of another package, by its name and its options as JSON values.

    If the check is missing or faulty, the result is undecided.
    """

    name: str
    options: Mapping[str, Any]

    reads_text = True
    about_tools = property(attrgetter("_kind.about_tools"))
    demands = property(attrgetter("_kind.demands"))
    only_numbers = property(attrgetter("_kind.only_numbers"))

    @property
    def _kind(self) -> Any:
        """The class, or the base class if it cannot be loaded."""
        from kindlm import packages, plugins  # only suites with such a check need them

        found = packages.find(plugins.Check, self.name)
        return found.value if isinstance(found, Ok) else plugins.Check

    def filled(self, bind: Fill, insert: Fill) -> CheckOfPackage:
        return replace(self, options=filled(self.options, insert))

    async def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        from kindlm import packages, plugins

        if (found := packages.find(plugins.Check, self.name)) is None:
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
        expected, actual = bounded(result.expected), bounded(result.actual)
        return replace(result, message=sentence(result.message), expected=expected, actual=actual)


async def in_a_thread(work: Callable[[], Any]) -> Any:
    """Return the result of users' code, whose time is unlimited; raise its errors as `Exception`.

    It runs in its own daemon thread, so no other check waits for it, nor the end of the process.
    """
    done = Future[Any]()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - users' code raises anything
            # A future rejects `StopIteration`, and `SystemExit` would end the event loop.
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                done.set_exception(error)
            else:
                reason = RuntimeError(f"it raised {type(error).__name__}: {error}")
                done.set_exception(reason.with_traceback(error.__traceback__))

    threading.Thread(target=copy_context().run, args=(run,), daemon=True).start()
    return await asyncio.wrap_future(done)


def _wrong_with(returned: Any) -> str | None:
    """Return why a value is not a valid result of a check; None if it is valid."""
    from kindlm.returned_values import wrong_with

    if inspect.isawaitable(returned):
        return "it is awaitable, but `evaluate` is not `async`"
    if (wrong := wrong_with(returned, CheckResult)) is not None:
        return wrong
    result: CheckResult = returned
    outcome, code, score = result.outcome, result.failure_code, result.score
    codes = {
        Outcome.PASSED: None,
        Outcome.FAILED: "CUSTOM_CHECK_FAILED",
        Outcome.INCONCLUSIVE: UndecidedError.code,
    }
    if outcome not in codes or code != codes[outcome]:
        return f"it is {outcome} with the failure code {code}"
    if score is None and outcome is not Outcome.INCONCLUSIVE:
        return "it has no score"
    are_shares = all(0 <= each <= 1 for each in (score, result.threshold) if each is not None)
    return None if are_shares else "its score or threshold is not from 0 to 1"
