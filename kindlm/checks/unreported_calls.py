"""Checks of tool calls, where nothing shows that the target reports its calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kindlm.checks.results import undecided
from kindlm.outcome import CheckResult, FailureCode, Outcome
from kindlm.suite import Expectation
from kindlm.transcript import Transcript

__all__ = ["HOW_TO_REPORT", "unless_unreported"]

HOW_TO_REPORT = (
    "If it reports every call, add `reportsTools: true` to the agent (`reports_tools` in TOML and"
    " scenarios), or to the test with the `command`. Otherwise let its answer list them under"
    " `tool_calls` ([] for none), or where `toolCallsPath` says"
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
    return [_supported(expectation, result) for result in results]


def _supported(expectation: Expectation, result: CheckResult) -> CheckResult:
    if result.outcome is Outcome.FAILED:
        return replace(result, message=f"{result.message} {_NO_SIGN}. {HOW_TO_REPORT}.")
    if result.outcome is not Outcome.PASSED:
        return result
    message = f"{_NO_SIGN}, so it may have made calls that kindlm cannot see. {HOW_TO_REPORT}."
    return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, message)
