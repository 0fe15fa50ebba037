"""Checks of other packages: their options become a value again, and what they return is examined.

Whatever such a check does, it passes only by returning a passed result.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any

from kindlm import plugins
from kindlm.checks.registry import Check, Reads, check
from kindlm.checks.results import undecided
from kindlm.errors import Err
from kindlm.outcome import CheckResult, FailureCode, Outcome
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import bounded, sentence

__all__ = ["check_of_package"]


def check_of_package(name: str) -> Check | None:
    """Return a check of another package, None if no package has it; a faulty one is undecided."""
    found = plugins.find(plugins.Check, name)
    if found is None:
        return None
    about_tools = not isinstance(found, Err) and found.value.about_tools

    @check(name, about_tools=about_tools, reads=Reads.EVERYTHING)
    async def evaluate(
        expectation: Expectation, transcript: Transcript, context: CheckContext
    ) -> CheckResult:
        if isinstance(found, Err):
            return _undecided(expectation, found.error.message, found.error.trace)
        plugin = plugins.installed(plugins.Check.group)[name][0]
        try:
            configured = found.value.model_validate(dict(expectation.params))
            work: Callable[[], Any] = partial(configured.evaluate, transcript, context)
            if inspect.iscoroutinefunction(configured.evaluate):
                returned = await work()
            else:
                returned = await _in_a_thread(work)
            return _examined(plugin, expectation, returned)
        except (*plugins.CRASHES, asyncio.CancelledError) as error:
            if plugins.is_cancelled(error):
                raise
            crash = plugins.crashed(plugin, "crashed", error)
            return _undecided(expectation, crash.message, crash.trace)

    return evaluate


async def _in_a_thread(work: Callable[[], Any]) -> Any:
    """Return what a check returns; raise an `Exception` whatever it raises.

    It has a thread of its own, which no other check waits for and which does not keep the process
    from ending: nothing bounds the time that it takes.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(returned: Any, error: Exception | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(returned)
        else:
            done.set_exception(error)

    def run() -> None:
        returned: Any = None
        failure: Exception | None = None
        try:
            returned = work()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the check has no result
            # A future takes no `StopIteration`, and `SystemExit` would end the event loop.
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                failure = error
            else:
                failure = RuntimeError(f"it raised {type(error).__name__}: {error}")
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, returned, failure)

    threading.Thread(target=copy_context().run, args=(run,), daemon=True).start()
    return await done


def _examined(plugin: plugins.Plugin, expectation: Expectation, returned: Any) -> CheckResult:
    """Return a result as it is recorded; undecided if it is none."""
    wrong = _wrong_with(returned)
    if wrong is not None:
        return _undecided(expectation, f"{plugin} returned no valid result: {wrong}")
    result: CheckResult = returned
    return replace(
        result,
        kind=expectation.kind,
        label=expectation.label,
        message=sentence(result.message),
        expected=bounded(result.expected),
        actual=bounded(result.actual),
    )


def _wrong_with(returned: Any) -> str | None:
    """Return why something is no result of a check."""
    if inspect.isawaitable(returned):
        return "it is awaitable, but `evaluate` is not `async`"
    wrong = plugins.wrong_with(returned, CheckResult)
    if wrong is not None:
        return wrong
    result: CheckResult = returned
    if result.outcome is Outcome.SKIPPED:
        return "it is skipped: a check passes, fails or is undecided"
    if (result.outcome is Outcome.PASSED) != (result.failure_code is None):
        return f"it is {result.outcome} with the failure code {result.failure_code}"
    if result.score is None and result.outcome is not Outcome.INCONCLUSIVE:
        return "it has no score"
    if not all(0 <= each <= 1 for each in (result.score, result.threshold) if each is not None):
        return "its score or threshold is not from 0 to 1"
    return None


def _undecided(expectation: Expectation, message: str, trace: str | None = None) -> CheckResult:
    return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, message, trace=trace)
