"""Checks of other packages: their options become a value again, and what they return is examined.

Whatever such a check does, it passes only by returning a passed result.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from kindlm.checks.base import AskingCheck, Fill, Reads, undecided
from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, Ok
from kindlm.outcome import CheckResult, Demands, Outcome
from kindlm.ports import CheckContext
from kindlm.transcript import Transcript
from kindlm.values import filled
from kindlm.wording import bounded, sentence, shown

if TYPE_CHECKING:
    from kindlm import plugins


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
            configured = found.value.model_validate(dict(self.options))
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
    """Return what code of a user returns; raise an `Exception` whatever it raises.

    It has a thread of its own, which no other check waits for and which does not keep the process
    from ending: nothing bounds the time that it takes.
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
    """Return why something is no result of a check."""
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
