"""Checks of tool calls, where nothing shows that the target reports its calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kindlm.checks.call_wording import LINE_OF_A_CALL
from kindlm.checks.results import undecided
from kindlm.outcome import CheckResult, FailureCode, Outcome
from kindlm.suite import Expectation
from kindlm.transcript import Transcript

__all__ = ["how_to_report", "unless_unreported"]

_DECLARED = (
    "If it reports every call, add `reportsTools: true` to the agent (`reports_tools` in TOML and"
    " scenarios), or to the test with the `command`. Otherwise let it "
)
_LISTED = "list them in its answer under `tool_calls` ([] for none), or where `toolCallsPath` says"
_PRINTED = (
    f"print a line for each call, {LINE_OF_A_CALL}, and one for its answer,"
    ' `{"kindlm": "output_json", "value": ANSWER}`'
)

_NO_SIGN = "Nothing shows that the agent reports its tool calls"


def unless_unreported(
    expectation: Expectation, transcript: Transcript, results: Iterable[CheckResult]
) -> list[CheckResult]:
    """Return the results of a check about tool calls, without any pass that nothing supports.

    A failure stands: a call that is demanded was not seen, whatever the reason.
    """
    if transcript.shows_tools:
        return list(results)
    return [_supported(expectation, result, how_to_report(transcript)) for result in results]


def how_to_report(transcript: Transcript) -> str:
    """Return what makes calls known that a target may have made, without a full stop."""
    return _DECLARED + (_PRINTED if transcript.prints_calls else _LISTED)


def _supported(expectation: Expectation, result: CheckResult, how: str) -> CheckResult:
    if result.outcome is Outcome.FAILED:
        return replace(result, message=f"{result.message} {_NO_SIGN}. {how}.")
    if result.outcome is not Outcome.PASSED:
        return result
    message = f"{_NO_SIGN}, so it may have made calls that kindlm cannot see. {how}."
    return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, message)
