"""The check of a tool that must not be called, however its name is spelt."""

from __future__ import annotations

from kindlm.checks.call_wording import described, written_arguments
from kindlm.checks.doubtful_calls import undecided_for_a_name
from kindlm.checks.registry import Reads, check
from kindlm.checks.results import failed, passed
from kindlm.checks.tool_names import normalised
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import count, shown

__all__ = ["forbidden_tool"]

_MAX_LISTED = 5


@check("forbidden_tool", about_tools=True, reads=Reads.NUMBERS_AND_NAMES)
def forbidden_tool(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """No call of `tool`, nor of one whose name differs from it by case, `_` or `-` alone.

    A call without a name may be one, and so may one whose name looks like it: nobody knows.
    """
    tool: str = expectation.params["tool"]
    wanted = normalised(tool)
    calls = [
        (index, use)
        for index, use in enumerate(transcript.tool_uses)
        if normalised(use.call.name) == wanted
    ]
    if not calls:
        doubt = undecided_for_a_name(expectation, tool, transcript.tool_uses, spelling=normalised)
        return [doubt or passed(expectation)]
    index, use = calls[0]
    message = (
        f"{shown(tool)} is forbidden: {count(len(calls), 'call')} of it, and the first is "
        f"call {index}, {shown(use.call.name)} with {shown(written_arguments(use))}."
    )
    return [
        failed(
            expectation,
            FailureCode.TOOL_CALL_UNEXPECTED,
            message,
            expected={"forbidden": tool},
            actual=[described(index, use) for index, use in calls[:_MAX_LISTED]],
        )
    ]
