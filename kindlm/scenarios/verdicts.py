"""The verdicts of judges, and how values and functions of a test decide a check."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from asyncio import Future
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Generic, TypeVar

from kindlm.checks import base
from kindlm.dataclass import dataclass
from kindlm.errors import error_text
from kindlm.outcome import CheckResult, Outcome
from kindlm.scenarios.function_thread import raise_unless_of_a_test
from kindlm.scenarios.under_test import Reply
from kindlm.wording import shown

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a judge.

    Attributes:
        passed: whether the answer is as expected; None if the judge did not decide.
        score: a number from 0 to 1; None if the judge did not decide.
        reasoning: the reason, in the judge's words.
    """

    passed: bool | None
    score: float | None
    reasoning: str

    def __bool__(self) -> bool:
        """Return whether the answer is as expected; False if the judge did not decide."""
        return self.passed is True


def holds(value: object) -> bool | None:
    """Return whether a value is true; None for a verdict, or several, without a decision.

    Raises:
        TypeError: the value is always true, such as an answer or a tuple with False.
    """
    if isinstance(value, _ALWAYS_TRUE) or inspect.isroutine(value):
        if inspect.iscoroutine(value):
            value.close()  # or Python warns of it, too
        kind = type(value).__name__
        raise TypeError(f"a {kind} is always true: call it, await it, or write (…).wait()")
    if isinstance(value, Verdict):
        return value.passed
    if isinstance(value, Reply):
        raise TypeError("an answer is always true: return what must hold of it")
    held = list(value.values()) if isinstance(value, Mapping) else value
    items = held if isinstance(held, tuple | list) else ()
    if items and all(isinstance(each, Verdict) for each in items):
        decisions = [each.passed for each in items]
        return False if False in decisions else None if None in decisions else True
    if any(each is False or isinstance(each, Awaitable | Reply | Verdict) for each in items):
        raise TypeError(f"a {type(value).__name__} is always true: check or await what it holds")
    return bool(value)


_ALWAYS_TRUE = (Awaitable, Iterator, AsyncIterator)

Wait = Callable[[Coroutine[Any, Any, Any]], Any]
"""Blocks until a coroutine is done."""


class Pending(Generic[V]):
    """A running check by a judge: `await` it for the verdict, or ignore it.

    The check runs by itself. kindlm records it before the scenario ends, awaited or not.
    """

    def __init__(
        self,
        results: Sequence[Future[CheckResult]],
        read: Callable[[Sequence[CheckResult]], V],
        wait: Wait | None = None,
    ) -> None:
        self._futures = results
        self._read = read
        self._wait = wait

    def __await__(self) -> Generator[Any, None, V]:
        """Wait for the verdict."""
        return self._results().__await__()

    def __bool__(self) -> bool:
        """Raise: the verdict is not known yet."""
        raise TypeError("this verdict was not awaited: write await t.judge(…), or (…).wait()")

    def wait(self) -> V:
        """Wait for the verdict in a scenario that is not `async`.

        Raises:
            RuntimeError: the scenario is `async`.
        """
        if self._wait is None:
            raise RuntimeError("an async scenario awaits it: await t.judge(...)")
        result: V = self._wait(self._results())
        return result

    async def _results(self) -> V:
        # A timeout of the test around this `await` must not cancel the check.
        return self._read([await asyncio.shield(each) for each in self._futures])


def verdict_of(result: CheckResult) -> Verdict:
    """Return the result of a check for a test."""
    passed = {Outcome.PASSED: True, Outcome.FAILED: False}.get(result.outcome)
    return Verdict(passed, result.score, result.reasoning or result.message)


def decided(value: object, code: str, message: str) -> CheckResult:
    """Return the result of a check that a value decides, as in `holds`; `code` is for a failure."""
    if (is_held := holds(value)) is None:
        return base.undecided("The judge decided nothing.")
    return base.passed() if is_held else base.failed(code, message)


def returned(name: str, value: object) -> CheckResult:
    """Return the result of the check `name`, a function of the test that returned a value."""
    message = f"The check {shown(name)} returned {shown(repr(value))}"
    return decided(value, "CUSTOM_CHECK_FAILED", message)


async def awaited(name: str, value: Awaitable[Any]) -> CheckResult:
    """Return the result of a check that is an async function, once it is done."""
    try:
        return returned(name, await value)
    except BaseException as error:  # noqa: BLE001 - the user's function
        raise_unless_of_a_test(error)
        return raised(name, error)


def raised(name: str, error: BaseException) -> CheckResult:
    """Return the result of a check whose function raised; an assertion fails it."""
    if isinstance(error, AssertionError):
        message = str(error) or f"The check {shown(name)} failed"
        return base.failed("CUSTOM_CHECK_FAILED", message)
    message = f"The check raised {error_text(error, shown)}"
    return base.undecided(message, trace="".join(traceback.format_exception(error)))
