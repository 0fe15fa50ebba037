"""What checks of a scenario are of: one answer, or all answers of a conversation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kindlm.checks.base import Check, Reads
from kindlm.outcome import CheckResult, Outcome
from kindlm.ports import CheckContext
from kindlm.transcript import Transcript
from kindlm.wording import excerpt


@dataclass(frozen=True, slots=True)
class Span:
    """The answers that a check is of, from the turn `first` to the turn `last`, counted from 1.

    `value` returns what a function of the test is given. A span of a whole conversation has labels
    of its own: how many turns a conversation takes differs from run to run.
    """

    value: Callable[[], Any]
    first: int
    last: int
    is_conversation: bool = True

    def labelled(self, label: str) -> str:
        """Return the label of a check of this span, which tells apart checks of one kind."""
        if self.is_conversation:
            return f"conversation: {label}"
        return f"turn {self.last}: {label}" if self.last > 1 else label

    def of_text(self, check: Check, *, of_all: bool = False) -> Check:
        """Return a check of the text as one of all answers of this span."""
        return _OfAnswers(check, self.first, of_all) if self.is_conversation else check


@dataclass(frozen=True, slots=True)
class _OfAnswers(Check):
    """A check of the text that passes if one of several answers does, or if all do."""

    reads = Reads.EVERYTHING

    check: Check
    first: int
    of_all: bool

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.check.kind

    def is_slow(self, transcript: Transcript) -> bool:
        return self.check.is_slow(transcript)

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        found: dict[Outcome, CheckResult] = {}
        for number, turn in enumerate(transcript.turns, self.first):
            result = self.check.evaluate(replace(transcript, turns=(turn,)), context)
            assert isinstance(result, CheckResult)
            evidence = tuple(
                replace(
                    each,
                    source=f"turn[{number}].output",
                    excerpt=each.excerpt or excerpt(turn.text[each.start : each.end]),
                )
                for each in result.evidence
            )
            found.setdefault(result.outcome, replace(result, evidence=evidence))
        decides, other = Outcome.PASSED, Outcome.FAILED
        if self.of_all:
            decides, other = other, decides
        worst = found.get(decides) or found.get(Outcome.INCONCLUSIVE) or found[other]
        if len(transcript.turns) > 1 and not self.of_all and worst.outcome is Outcome.FAILED:
            message = f"No answer is as expected. The first: {worst.message}"
            worst = replace(worst, message=message)
        return worst
