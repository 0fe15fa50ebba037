"""The check of drift: how far the output is from the one of the active baseline."""

from __future__ import annotations

from kindlm.checks.registry import check
from kindlm.checks.results import skipped
from kindlm.outcome import CheckResult
from kindlm.suite import Expectation
from kindlm.transcript import Transcript

__all__ = ["drift"]


@check("drift")
def drift(expectation: Expectation, _transcript: Transcript) -> list[CheckResult]:
    """Skip: without a baseline there is nothing to compare with."""
    return [skipped(expectation, "No baseline. Run: kindlm baseline set")]
