"""The attempts at an execution, with what each of them found.

One that did not pass may have been run again. What is found in one attempt is shown with it; what
must not be shown of one is not shown of any.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kindlm.history.masking import Mask, mask_of
from kindlm.history.rows import AssertionView, ExecutionView, ToolCallView
from kindlm.history.run_view import RunView

__all__ = ["AttemptView", "mask_of_attempts", "read_attempts"]


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt that ended: the execution as it left it, its assertions and its tool calls."""

    execution: ExecutionView
    assertions: tuple[AssertionView, ...]
    tool_calls: tuple[ToolCallView, ...]

    @property
    def number(self) -> int:
        """Which attempt it is, from 1."""
        return self.execution.attempt


def read_attempts(view: RunView, execution: ExecutionView) -> list[AttemptView]:
    """Return the attempts at an execution that ended; the last one is how it stands now.

    Those before it did not pass. Attempts that were cut off when the process ended are not told.
    """
    return [
        AttemptView(attempt, tuple(view.assertions(attempt)), tuple(view.tool_calls(attempt)))
        for attempt in view.attempts(execution)
    ]


def mask_of_attempts(attempts: Iterable[AttemptView]) -> Mask:
    """Return the mask for all texts of an execution, in whichever attempt they are."""
    mask = Mask({})
    for attempt in attempts:
        mask = mask.joined(mask_of(attempt.execution, attempt.assertions, attempt.tool_calls))
    return mask
