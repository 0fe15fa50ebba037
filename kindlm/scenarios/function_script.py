"""Runs the function of a scenario for the engine."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from kindlm.checks.base import failed
from kindlm.checks.user_code import in_a_thread
from kindlm.dataclass import dataclass
from kindlm.errors import ErrorCode, KindlmError, SourceLocation, error_text
from kindlm.guard import guard
from kindlm.ports import Stage
from kindlm.scenarios.checks import RequirementFailed
from kindlm.scenarios.trial import SyncTrial, Trial
from kindlm.scenarios.under_test import AgentError
from kindlm.scenarios.users import SimulationError
from kindlm.suite import Expectation
from kindlm.user_modules import failed_at, is_of_pytest, user_trace
from kindlm.wording import sentence, shown_path


def current_place(file: Path) -> SourceLocation:
    """Return the line that runs now in the innermost function of a file."""
    # `inspect.stack` would read all files of the stack.
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        if frame.f_code.co_filename == str(file):
            return SourceLocation(str(file), frame.f_lineno)
        frame = frame.f_back
    return SourceLocation(str(file))


@dataclass(frozen=True, slots=True)
class FunctionScript:
    """A scenario that is a function; implements `suite.Script`.

    `find` returns the function for one trial: a method has a new object for each. `trial` is the
    name of the argument for the trial, and `arguments` are all others.
    """

    find: Callable[[], Callable[..., Any]]
    where: SourceLocation
    trial: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """The file of the function, as its code and frames have it."""
        return Path(self.where.file)

    async def run(self, stage: Stage) -> KindlmError | None:
        """Run the function once; see `suite.Script`."""
        with guard.single():
            return await self._run(stage)

    async def _run(self, stage: Stage) -> KindlmError | None:
        try:
            function = self.find()
        except BaseException as error:  # noqa: BLE001 - the user's class
            return self._ended(stage, error)
        is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
        place = partial(current_place, self.file)
        trial = Trial(stage, place) if is_async else SyncTrial(stage, place)
        arguments = {**self.arguments, self.trial: trial}
        try:
            if isinstance(trial, Trial):
                _refuse_false(await function(**arguments))
            else:
                await _in_thread(lambda: _finished(function(**arguments)), trial)
        except BaseException as error:  # noqa: BLE001 - the user's function
            trial.mistake()  # closes unawaited coroutines, so that Python does not warn
            return self._ended(stage, error) or trial.error
        if (mistake := trial.mistake()) is not None:
            return mistake
        if not trial.checked and trial.error is None:
            hint = 'Write t.require(condition, "why"), or t.check(reply)'
            hint = f": a passing `assert` is not recorded. {hint}"
            record_nothing_checked(stage, self.where, hint)
        return trial.error

    def _ended(self, stage: Stage, error: BaseException) -> KindlmError | None:
        """Record the failed asserts that ended the scenario; returns any other error."""
        others = []
        for each in _leaves(error):
            if isinstance(each, AssertionError) or is_of_pytest(each, "Failed"):
                where, line = failed_at(each, self.file)
                label = line.removeprefix("assert ") or "assert"
                found = failed("ASSERT_FAILED", _why(each, line))
                stage.conclude(Expectation("assert", label, where=where), found)
            elif not isinstance(each, RequirementFailed | AgentError | SimulationError):
                others.append(each)  # these three are recorded where they happened
        if not others:
            return None
        error = others[0]
        where, _ = failed_at(error, self.file)
        place = SourceLocation(shown_path(Path(where.file)), where.line)
        message = f"The scenario raised {sentence(error_text(error), _MOST_OF_PYTEST)} ({place})."
        hint, trace = "Fix the test; the report shows what it checked before that.", None
        if is_of_pytest(error, "Skipped"):
            message = f"A scenario cannot skip itself after it has started ({place})."
            hint = "Skip it by a mark, or in a fixture."
        else:
            trace = user_trace(error, str(self.file).__eq__)
        return KindlmError(ErrorCode.ASSERTION_EVAL_ERROR, message, hint, trace=trace)


_MOST_OF_PYTEST = 160
"""The most characters of pytest's explanation; with an answer of the agent, it is longer."""


def _why(error: BaseException, line: str) -> str:
    """Return why an assert failed: its message, pytest's explanation, or the line of code.

    The line of code replaces a long or escaped explanation: reports show the agent's answer anyway.
    """
    own, _, _ = re.split(r"((?:^|\n)assert )", f"{error}\nassert ", maxsplit=1)
    if own:
        return " ".join(own.split())
    of_pytest = str(error).partition("\n")[0]
    is_readable = "\\" not in of_pytest and len(of_pytest) <= _MOST_OF_PYTEST
    return of_pytest if of_pytest and is_readable else line or "assert"


def _finished(returned: object) -> None:
    """Raise if a function that is not `async` returned an awaitable, or False."""
    if inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        raise TypeError("it returned something to await: write `async def`")
    _refuse_false(returned)


def _refuse_false(returned: object) -> None:
    if returned is False:
        raise TypeError("it returned False, and nothing looks at that: write t.require(…)")


def record_nothing_checked(stage: Stage, where: SourceLocation, hint: str = "") -> None:
    """Record that a scenario ended without any check: it fails."""
    found = failed("NOTHING_CHECKED", f"Nothing was checked{hint}")
    stage.conclude(Expectation("checked", "something is checked", where=where), found)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors inside exception groups, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


async def _in_thread(work: Callable[[], Any], trial: SyncTrial) -> None:
    """Run a function in a thread; a cancellation also cancels the work that it waits for."""

    def error_of_work() -> BaseException | None:
        try:
            with guard.single():
                work()
        except BaseException as error:  # noqa: BLE001 - raised again in the loop
            return error
        return None

    try:
        error = await in_a_thread(error_of_work)
    finally:
        trial.end()
    if error is not None:
        raise error
