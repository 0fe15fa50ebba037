"""Checks, and what they see of the world."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kindlm.errors import KindlmError, Result
from kindlm.outcome import CheckResult
from kindlm.ports.models import Embedding, ModelReply, Purpose, ResponseSchema
from kindlm.suite import Expectation
from kindlm.transcript import Transcript

__all__ = ["Aside", "Ask", "BaselineLookup", "CheckContext", "Checker", "Embed", "Question"]


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a judging model. `model` is a configured model id, None for the default.

    `boundary` is the random part of the question that fences off its data; questions that differ
    in nothing else are the same question. `max_tokens` bounds the answer; `seed` is for providers
    that can answer alike twice.
    """

    purpose: Purpose
    system: str
    user: str
    response_schema: ResponseSchema
    model: str | None = None
    boundary: str = ""
    max_tokens: int = 512
    seed: int | None = None


Ask = Callable[[Question], Awaitable[Result[ModelReply]]]


Embed = Callable[[Sequence[str]], Awaitable[Result[tuple[Embedding, str]]]]
"""Embeds texts on behalf of a check; returns the vectors and the name of the model."""


class BaselineLookup(Protocol):
    """Knows the active baseline of each suite."""

    def run(self, project: str, suite: str) -> Result[str | None]:
        """Return the run that is the baseline, None if there is none; 5xx if it is unusable."""
        ...

    def output(self, run: str, suite: str, test: str, target: str) -> str | None:
        """Return the final text of the first passed repeat there, else of the first one."""
        ...


T = TypeVar("T")


class Aside(Protocol):
    """Runs what can take long without holding up other executions."""

    async def __call__(self, compute: Callable[[], T]) -> T:
        """Return what `compute` does, or raise what it raises."""
        ...


async def _here(compute: Callable[[], T]) -> T:
    return compute()


@dataclass(frozen=True, slots=True)
class CheckContext:
    """All that a check sees of the world besides its expectation and the transcript.

    `earlier` are the results of the expectations before this one. `baseline` is the final text of
    the same test and target in the active baseline, None without one; `baseline_error` says why a
    baseline that is set can't be used. A check that asks runs patterns and schemas `aside`.
    """

    ask: Ask
    embed: Embed | None = None
    baseline: str | None = None
    baseline_error: KindlmError | None = None
    earlier: Sequence[CheckResult] = ()
    aside: Aside = _here


class Checker(Protocol):
    """Evaluates expectations; a check that crashes gives an inconclusive result."""

    async def evaluate(
        self, expectation: Expectation, transcript: Transcript, context: CheckContext
    ) -> Sequence[CheckResult]:
        """Return one result for each thing the expectation asks for, at least one."""
        ...

    def evaluate_now(
        self, expectation: Expectation, transcript: Transcript, *, slow: bool = False
    ) -> Sequence[CheckResult] | None:
        """Return the results without waiting; None if somebody has to be asked.

        None is returned for what can take long, too, unless `slow` says that it may.
        """
        ...
