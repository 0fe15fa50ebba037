"""What the JSON report tells of a test over its repeats."""

from __future__ import annotations

from typing import Any

from kindlm.history.repeat_statistics import RepeatStatistics, TwoVerdicts

__all__ = ["repeats_json", "verdicts_json"]


def verdicts_json(found: TwoVerdicts | None) -> dict[str, Any] | None:
    """Return both verdicts on a test, None where there is one."""
    if found is None:
        return None
    return {
        "n": found.n,
        "evalview": found.evalview,
        "kindlm": found.kindlm,
        "differ": found.differ,
    }


def repeats_json(found: RepeatStatistics | None) -> dict[str, Any] | None:
    """Return what the repeats of a test tell, None where it was tested once or never."""
    if found is None:
        return None
    scores = found.score
    return {
        "n": found.n,
        "passed": found.passed,
        "confidence": found.confidence,
        "passRateInterval": found.interval,
        "passAtK": found.pass_at,
        "passHatK": found.pass_hat,
        "weightedScore": None
        if scores is None
        else {
            "n": scores.n,
            "mean": scores.mean,
            "stdDev": scores.std_dev,
            "interval": scores.interval,
        },
    }
