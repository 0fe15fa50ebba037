"""The check of strict tools: every call met an answer meant for it, and kept its schema."""

from __future__ import annotations

from kindlm.checks.registry import Reads, check
from kindlm.checks.results import failed, passed, undecided
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import ToolProblem, ToolProblemKind, Transcript
from kindlm.wording import count, excerpt, sentence

__all__ = ["tool_strict"]

_MAX_LISTED = 5
_MAX_ACTUAL = 20

_CODES = {
    ToolProblemKind.UNMATCHED: FailureCode.TOOL_CALL_UNMATCHED,
    ToolProblemKind.ARGUMENTS: FailureCode.TOOL_CALL_ARGS_SCHEMA_INVALID,
}


@check("tool_strict", about_tools=True, reads=Reads.CALLS)
def tool_strict(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """No call had a problem; the code is that of the first one.

    A simulated answer that breaks its own `resultSchema` is no mistake of the model, but what the
    model did after it shows nothing: if there is no other problem, nobody knows.
    """
    problems = [
        (index, use.call.name, problem)
        for index, use in enumerate(transcript.tool_uses)
        for problem in use.problems
    ]
    if not problems:
        return [passed(expectation)]
    message = _listed(problems)
    actual = [
        {
            "index": index,
            "tool": excerpt(tool),
            "problem": problem.kind.value,
            "message": sentence(problem.message),
        }
        for index, tool, problem in problems[:_MAX_ACTUAL]
    ]
    codes = [_CODES[problem.kind] for _, _, problem in problems if problem.kind in _CODES]
    if codes:
        return [failed(expectation, codes[0], message, actual=actual)]
    return [undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, message, actual=actual)]


def _listed(problems: list[tuple[int, str, ToolProblem]]) -> str:
    first = " ".join(
        f"Call {index}: {problem.message}" for index, _, problem in problems[:_MAX_LISTED]
    )
    more = len(problems) - _MAX_LISTED
    suffix = f" And {more} more." if more > 0 else ""
    return f"{count(len(problems), 'problem')} with simulated tools. {first}{suffix}"
