"""Calls that an agent told of without a name: one of them may be what must not be called."""

from __future__ import annotations

from collections.abc import Sequence

from kindlm.checks.results import undecided
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import UNNAMED, ToolUse
from kindlm.wording import shown

__all__ = ["undecided_for_a_name", "unnamed_calls"]


def unnamed_calls(uses: Sequence[ToolUse]) -> list[int]:
    """Return the positions of the calls without a name."""
    return [index for index, use in enumerate(uses) if use.call.name == UNNAMED]


def undecided_for_a_name(
    expectation: Expectation, tool: str, uses: Sequence[ToolUse]
) -> CheckResult | None:
    """Return that nobody knows whether a tool was called, None if all calls have a name."""
    unnamed = unnamed_calls(uses)
    if not unnamed:
        return None
    message = (
        f"Call {unnamed[0]} has no name: nobody knows whether it is one of {shown(tool)}. "
        "The agent has to name the tools it calls. If that is no call, list it elsewhere; or say "
        "where the calls are with `toolCallsPath`, which agents of the adapters http, subprocess "
        "and python can have."
    )
    return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, message)
