"""What a judge is asked about an answer, and what it said."""

from __future__ import annotations

import asyncio
import inspect
import math
from asyncio import Future
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Sequence,
)
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, Generic, TypeVar

from kindlm.checks.judge import Factuality, Guardrail, Judge, Sentiment
from kindlm.outcome import CheckResult, Outcome
from kindlm.scenarios.under_test import Reply
from kindlm.suite import Expectation

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge said.

    Attributes:
        passed: whether it is as expected; None if the judge could not be asked, or gave no answer.
        score: from 0 to 1; None if nothing was decided.
        reasoning: why, in the judge's words.
    """

    passed: bool | None
    score: float | None
    reasoning: str

    def __bool__(self) -> bool:
        """Tell whether it is as expected; what was not decided is not."""
        return self.passed is True


def holds(found: object) -> bool | None:
    """Tell whether a value is true; None if it is a verdict, or some, that decided nothing.

    Raises:
        TypeError: for what is always true, such as a generator, which nobody ran.
    """
    if isinstance(found, _ALWAYS_TRUE):
        if inspect.iscoroutine(found):
            found.close()  # or Python warns of it, too
        raise TypeError(f"a {type(found).__name__} is always true: nothing of it ran")
    if isinstance(found, Verdict):
        return found.passed
    if isinstance(found, tuple) and found and all(isinstance(each, Verdict) for each in found):
        decided = [each.passed for each in found]
        return False if False in decided else None if None in decided else True
    return bool(found)


_ALWAYS_TRUE = (Awaitable, Generator, AsyncGenerator, FunctionType, MethodType)

Wait = Callable[[Coroutine[Any, Any, Any]], Any]
"""Blocks until a coroutine is done."""


class Pending(Generic[V]):
    """A check that a judge was asked for: `await` it for the verdict, or leave it.

    It goes on by itself, and is recorded before the scenario ends, whether anybody waits or not.
    """

    def __init__(
        self,
        asked: Sequence[Future[CheckResult]],
        read: Callable[[Sequence[CheckResult]], V],
        wait: Wait | None = None,
    ) -> None:
        self._asked = asked
        self._read = read
        self._wait = wait

    def __await__(self) -> Generator[Any, None, V]:
        """Wait for the verdict."""
        return self._results().__await__()

    def __bool__(self) -> bool:
        """Refuse: nothing is known yet."""
        raise TypeError("nobody waited for this verdict: write await t.judge(…), or (…).wait()")

    def wait(self) -> V:
        """Wait for the verdict in a scenario that is no `async` function.

        Raises:
            RuntimeError: the scenario is an `async` one.
        """
        if self._wait is None:
            raise RuntimeError("an async scenario awaits it: await t.judge(...)")
        found: V = self._wait(self._results())
        return found

    async def _results(self) -> V:
        # Shielded: who stops waiting, as in a timeout of the test, cancels no check.
        return self._read([await asyncio.shield(each) for each in self._asked])


def verdict_of(result: CheckResult) -> Verdict:
    """Return a result as a test sees it."""
    decided = {Outcome.PASSED: True, Outcome.FAILED: False}.get(result.outcome)
    return Verdict(decided, result.score, result.reasoning or result.message)


def judgement_of(reply: Reply, criteria: str, threshold: float, scale: float) -> Expectation:
    """Return what is asked of a judge that scores; raise `ValueError` for a threshold off scale.

    So is one of 0, which no answer would miss.
    """
    if not (scale > 0 and math.isfinite(scale)):
        raise ValueError(f"scale must be a number, more than 0, but is {scale}")
    if not 0 < threshold <= scale:
        raise ValueError(
            f"threshold must be more than 0, and at most {scale:g}, but is {threshold}"
        )
    asked_for("criteria", criteria)
    judge = Judge.model_construct(criteria=criteria, min_score=threshold / scale)
    return judge.on_scale(scale).expected(criteria, turn=reply.turn)


def sentiment_of(reply: Reply, tone: str) -> Expectation:
    """Return what is asked about the tone."""
    return Sentiment(asked_for("tone", tone)).expected(tone, turn=reply.turn)


def factuality_of(reply: Reply, ground_truth: str, context: str | None) -> Expectation:
    """Return what is asked about facts."""
    check = Factuality(asked_for("ground_truth", ground_truth), context)
    return check.expected(ground_truth, turn=reply.turn)


def guardrails_of(
    reply: Reply, must: str | Iterable[str], must_not: str | Iterable[str]
) -> list[Expectation]:
    """Return what is asked about each rule; raise `ValueError` if there is none."""
    rules = [Guardrail(asked_for("must", rule)) for rule in _listed(must)]
    rules += [Guardrail(asked_for("must_not", rule), must_not=True) for rule in _listed(must_not)]
    if not rules:
        raise ValueError("guardrail needs a rule: must=[...] or must_not=[...]")
    return [rule.expected(f"{rule.words}: {rule.rule}", turn=reply.turn) for rule in rules]


def _listed(rules: str | Iterable[str]) -> list[str]:
    return [rules] if isinstance(rules, str) else list(rules)


def asked_for(argument: str, text: str) -> str:
    """Return a text that says what is asked for; raise `TypeError` or `ValueError` for none."""
    if not isinstance(text, str):
        raise TypeError(f"{argument} must be a text, not {text!r}")
    if not text:
        raise ValueError(f"{argument} says nothing: it is empty")
    return text
