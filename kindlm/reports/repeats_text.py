"""What the repeats of a test tell, for a person to read."""

from __future__ import annotations

from kindlm.history.repeat_statistics import RepeatStatistics, ScoreStatistics
from kindlm.reports.figures import percent


def pass_rate_text(found: RepeatStatistics) -> str:
    """Return how often a test passes, with the interval of that."""
    low, high = (percent(end) for end in found.interval)
    rate = percent(found.passed / found.n)
    return f"{rate} of {found.n} passed ({found.confidence * 100:g} % interval {low} to {high})"


def chances_text(found: RepeatStatistics) -> str:
    """Return the chances of several tries, 2 of them and as many as there were."""
    told = []
    for k in dict.fromkeys((2, found.n)):
        at, hat = percent(found.pass_at[k - 1]), percent(found.pass_hat[k - 1])
        told.append(f"pass@{k} {at}, pass^{k} {hat}")
    return ", ".join(told)


def score_text(score: ScoreStatistics, confidence: float) -> str:
    """Return the mean weighted score, its interval and how far the scores are apart, in points."""
    text = f"mean {points(score.mean)} of {score.n}"
    if score.interval is not None and score.std_dev is not None:
        # Student's interval may reach beyond what a score can be.
        low, high = points(max(0.0, score.interval[0])), points(min(1.0, score.interval[1]))
        text += f" ({confidence * 100:g} % interval {low} to {high})"
        text += f", standard deviation {points(score.std_dev)}"
    return text


def points(score: float) -> str:
    """Return a score of 0 to 1 in points of 100."""
    return f"{score * 100:.1f}".removesuffix(".0")
