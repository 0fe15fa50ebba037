"""Statistics over the repeats of a test: how often it passes, its scores, how flaky it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import comb
from statistics import fmean, stdev
from typing import NamedTuple

from kindlm.dataclass import dataclass
from kindlm.history.rows import TestView
from kindlm.history.run_view import RunView
from kindlm.history.statistics import mean_interval, wilson_interval
from kindlm.history.statistics.tables import Counts

_SCORES = """
SELECT a.score
  FROM executions e
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
 WHERE e.suite = ? AND e.test = ? AND e.target = ?
   AND a.kind = 'weighted_score' AND a.score IS NOT NULL
 ORDER BY e.repeat, e.id
"""

# Suites first: those that are not of EvalView have no such verdict, and are not looked through.
_VERDICTS = """
SELECT e.test, e.target, count(*) AS n, sum(v.body ->> '$.passed') AS evalview,
       sum(v.body ->> '$.kindlm' = 'passed') AS kindlm,
       sum((v.body ->> '$.passed') <> (v.body ->> '$.kindlm' = 'passed')) AS differ
  FROM suites s
 CROSS JOIN executions e ON e.suite = s.id
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt AND a.kind = 'evalview_verdict'
  JOIN contents v ON v.ref = a.actual_ref
 WHERE s.id IN $ids AND s.front_end = 'evalview' AND json_valid(v.body)
"""

_OF_TEST = _VERDICTS.replace("IN $ids", "= ?") + " AND e.test = ? AND e.target = ?"

_DIFFERING = _VERDICTS + " GROUP BY e.test, e.target HAVING differ ORDER BY min(e.number)"


class ScoreStatistics(NamedTuple):
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
    """Return the statistics of a test over its repeats; None if fewer than two were tested."""
    passed, n, level = test.counts.passed, test.counts.tested, test.confidence
    interval = wilson_interval(passed, n, level)
    if n < 2 or interval is None:
        return None
    scores = [row[0] for row in db.execute(_SCORES, (test.suite_id, test.name, test.target))]
    score = None
    if scores:
        spread = stdev(scores) if len(scores) > 1 else None
        score = ScoreStatistics(len(scores), fmean(scores), spread, mean_interval(scores, level))
    return RepeatStatistics(
        passed, n, level, interval, pass_at(passed, n), pass_hat(passed, n), score
    )


def pass_at(passed: int, n: int) -> tuple[float, ...]:
    """Return pass@k for k from 1 to n: how likely at least one of k tries passes.

    Unbiased, from n repeats of which c passed, 1 - C(n - c, k) / C(n, k): M. Chen and others,
    "Evaluating Large Language Models Trained on Code", arXiv:2107.03374 (2021).
    """
    return tuple(1 - comb(n - passed, k) / comb(n, k) for k in range(1, n + 1))


def pass_hat(passed: int, n: int) -> tuple[float, ...]:
    """Return pass^k for k from 1 to n: how likely all of k tries pass.

    Unbiased, C(c, k) / C(n, k): S. Yao and others, "τ-bench", arXiv:2406.12045 (2024).
    """
    return tuple(comb(passed, k) / comb(n, k) for k in range(1, n + 1))


class Flakiness(NamedTuple):
    """How much a test disagrees with itself; None where it was never seen twice.

    `within` is the probability that two repeats of one run come out differently, 0 to 1/2 for
    independent repeats. `between` is the part of successive runs in which the test went from all
    passed to not, or back.
    """

    within: float | None
    between: float | None


def flakiness(history: Sequence[Counts]) -> Flakiness:
    """Return the flakiness of a test from its repeats in successive runs, oldest first.

    `within` counts pairs of repeats, 2 sum k (n - k) / sum n (n - 1): the unbiased estimate of
    2 p (1 - p), the diversity of E. H. Simpson (Nature 163 (1949), 688), pooled over runs.
    """
    runs = [counts for counts in history if counts.n]
    pairs = sum(n * (n - 1) for _, n in runs)
    unequal = sum(2 * passed * (n - passed) for passed, n in runs)
    flips = [(one.passed == one.n) != (other.passed == other.n) for one, other in pairwise(runs)]
    return Flakiness(unequal / pairs if pairs else None, fmean(flips) if flips else None)


class TwoVerdicts(NamedTuple):
    """How many of `n` executions of a test pass by the rules of EvalView, and by those of kindlm.

    In `differ` of them the two disagree.
    """

    test: str
    target: str
    n: int
    evalview: int
    kindlm: int
    differ: int


def verdicts_of(db: sqlite3.Connection, test: TestView) -> TwoVerdicts | None:
    """Return both verdicts on a test, None unless it was judged by the rules of EvalView."""
    row = db.execute(_OF_TEST, (test.suite_id, test.name, test.target)).fetchone()
    return TwoVerdicts(*row) if row["n"] else None


def differing_verdicts(view: RunView) -> Iterator[TwoVerdicts]:
    """Yield the tests of a run on which the two verdicts differ, in some execution at least."""
    for row in view.over_suites(_DIFFERING):
        yield TwoVerdicts(*row)
