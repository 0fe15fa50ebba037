"""The answers that a check of a scenario reads: one, or all answers of a conversation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kindlm.checks.base import Check, in_turn
from kindlm.checks.output import Ban, Demand
from kindlm.dataclass import dataclass, replace
from kindlm.outcome import CheckResult, Demands, Outcome
from kindlm.ports import CheckContext
from kindlm.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Scope:
    """The answers that a check reads, from the turn `first` to the turn `last`, counted from 1.

    `value` returns the argument for a check that is a function of the test. Labels of a whole
    conversation have no turn, since the number of turns differs from run to run.
    """

    value: Callable[[], Any]
    first: int
    last: int
    is_conversation: bool = True

    def labelled(self, label: str) -> str:
        """Return a label that differs from labels of the same check in other scopes."""
        if self.is_conversation:
            return f"conversation: {label}"
        return f"turn {self.last}: {label}" if self.last > 1 else label

    def of_text(self, check: Demand | Ban) -> Check:
        """Return a check of one text as a check of this scope: of any answer, for a ban of all."""
        return _OfAnswers(check, self.first) if self.is_conversation else check


@dataclass(frozen=True, slots=True)
class _OfAnswers(Check):
    """Passes if a demand on a text holds for one of several answers, or a ban for all of them.

    It stops at an undecided answer: otherwise a slow pattern could take its time limit for each.
    """

    check: Demand | Ban
    first: int

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.check.kind

    @property
    def demands(self) -> Demands:  # type: ignore[override]
        return self.check.demands

    @property
    def only_numbers(self) -> bool:  # type: ignore[override]
        return self.check.only_numbers

    def is_slow(self, transcript: Transcript) -> bool:
        return self.check.is_slow(transcript)

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        goes_on = Outcome.PASSED if isinstance(self.check, Ban) else Outcome.FAILED
        first: CheckResult | None = None
        for number, turn in enumerate(transcript.turns, self.first):
            result = self.check.evaluate(replace(transcript, turns=(turn,)), context)
            if result.outcome is not goes_on:
                evidence = tuple(in_turn(each, number, turn.text) for each in result.evidence)
                return replace(result, evidence=evidence)
            first = first or result
        assert first is not None, "a scope has an answer"
        if len(transcript.turns) > 1 and goes_on is Outcome.FAILED:
            return replace(first, message=f"No answer matches. The first: {first.message}")
        return first
