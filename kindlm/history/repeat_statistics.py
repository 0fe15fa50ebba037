"""What the repeats of a test tell of it: how often it passes, and how it is scored."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from statistics import fmean, stdev

from kindlm.history.rows import TestView
from kindlm.history.statistics.intervals import mean_interval, wilson_interval
from kindlm.history.statistics.repeats import pass_at_k, pass_hat_k

__all__ = ["RepeatStatistics", "ScoreStatistics", "repeat_statistics"]

_SCORES = """
SELECT a.score
  FROM executions e
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
 WHERE e.suite = ? AND e.test = ? AND e.target = ?
   AND a.kind = 'weighted_score' AND a.score IS NOT NULL
 ORDER BY e.repeat, e.id
"""


@dataclass(frozen=True, slots=True)
class ScoreStatistics:
    """The weighted scores of repeats, 0 to 1; `std_dev` is that of a sample.

    The interval is that of their mean. Both are None for fewer than two scores.
    """

    n: int
    mean: float
    std_dev: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class RepeatStatistics:
    """A test over `n` repeats that were tested, of which `passed` passed; errored ones did not.

    `interval` is that of the pass rate, and holds it with `confidence`. `pass_at` and `pass_hat`
    are pass@k and pass^k for k from 1 to n.
    """

    passed: int
    n: int
    confidence: float
    interval: tuple[float, float]
    pass_at: tuple[float, ...]
    pass_hat: tuple[float, ...]
    score: ScoreStatistics | None


def repeat_statistics(db: sqlite3.Connection, test: TestView) -> RepeatStatistics | None:
    """Return what the repeats of a test tell, None where it was tested once or never."""
    passed, n, level = test.counts.passed, test.counts.tested, test.confidence
    interval = wilson_interval(passed, n, level)
    if n < 2 or interval is None:
        return None
    scores = [row[0] for row in db.execute(_SCORES, (test.suite_id, test.name, test.target))]
    chances = [(pass_at_k(passed, n, k), pass_hat_k(passed, n, k)) for k in range(1, n + 1)]
    return RepeatStatistics(
        passed,
        n,
        level,
        interval,
        tuple(one for one, _ in chances if one is not None),
        tuple(every for _, every in chances if every is not None),
        _of_scores(scores, level),
    )


def _of_scores(scores: list[float], level: float) -> ScoreStatistics | None:
    if not scores:
        return None
    spread = stdev(scores) if len(scores) > 1 else None
    return ScoreStatistics(len(scores), fmean(scores), spread, mean_interval(scores, level))
