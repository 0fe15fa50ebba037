"""What was found in attempts that did not pass, after which an execution was run again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kindlm.history.masking import Mask, masked
from kindlm.history.rows import AssertionView, AttemptView
from kindlm.reports.pages.evidence import excerpts_of


@dataclass(frozen=True, slots=True)
class EarlierAttempt:
    """An attempt before the last one, masked: how it ended and what it did not meet."""

    view: AttemptView
    mask: Mask
    status: str
    error: str | None
    wrong: tuple[AssertionView, ...]

    def excerpts(self, assertion: AssertionView) -> list[tuple[str, str, str, str]]:
        """Return what an assertion points at."""
        found = self.view
        return list(excerpts_of(assertion, found.execution, found.tool_calls, self.mask))


def earlier_attempts(attempts: Sequence[AttemptView], mask: Mask) -> dict[int, EarlierAttempt]:
    """Return the attempts before the last one by their numbers."""
    return {
        attempt.number: EarlierAttempt(
            attempt,
            mask,
            attempt.execution.status.value if attempt.execution.status else "not finished",
            mask.text(attempt.execution.error),
            tuple(masked(found, mask) for found in attempt.assertions if found.is_wrong),
        )
        for attempt in attempts[:-1]
    }
