"""Limits of the weighted scores of the repeats of a test, together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.cli.commands.run_trends import trends_json, trends_text
from kindlm.history.diff.run_diff import DiffOptions, compare_runs
from kindlm.history.trends import read_trend
from kindlm.history.verdict import LimitedScores
from kindlm.outcome import ScoreLimits, Status
from kindlm.plan import QualifiedName as Identity
from kindlm.reports.pages.run_page import read_grid

MEAN = ScoreLimits(min_mean=0.8)
SPREAD = ScoreLimits(max_std_dev=0.1)


def scored(make: Any, score: float) -> Any:
    return make.passed("weighted_score", "weighted score", score=score, threshold=0.0)


def recorded(
    history: Any, make: Any, limits: ScoreLimits, scores: list[float], run: str = "k3f9x2ab"
) -> Any:
    writer = history.run(run, planned=len(scores))
    writer.suite(tests=[make.planned(repeat=len(scores), score_limits=limits, file="tests/b.yaml")])
    for repeat, score in enumerate(scores, start=1):
        writer.execution(repeat=repeat, assertions=(scored(make, score),))
    return writer.finish()


@pytest.mark.parametrize(
    ("limits", "scores", "said"),
    [
        (MEAN, [0.7, 0.9], ()),
        (MEAN, [0.7, 0.88], ("The mean weighted score is 79, and 80 is needed",)),
        (SPREAD, [0.7, 0.8], ()),
        (
            SPREAD,
            [0.6, 0.9],
            ("The standard deviation of the weighted scores is 21.21, and 10 is the most",),
        ),
    ],
)
def test_a_test_whose_repeats_all_pass_fails_by_its_scores(
    history: Any, make: Any, limits: ScoreLimits, scores: list[float], said: tuple[str, ...]
) -> None:
    view = recorded(history, make, limits, scores)
    (test,) = view.tests()
    assert test.broken_limits == said
    status = Status.FAILED if said else Status.PASSED
    assert test.counts.passed == 2
    assert test.status is status
    # Everything that tells how tests came out says the same.
    assert view.suites[0].tests.failed == bool(said)
    assert view.passed is not bool(said)
    (row,) = read_grid(view, limit=9).rows
    assert row.cells["gpt"].test.status is status
    trend = read_trend(history.reader(), Identity("shop", "support", "greets", "gpt"), limit=9)
    assert trend.points[0].test.status is status
    (pair,) = compare_runs(history.reader(), view.id, view.id, DiffOptions()).tests
    assert pair.after is not None
    assert pair.after.status is status


def test_one_score_says_nothing_of_the_spread() -> None:
    scores = LimitedScores(ScoreLimits(max_std_dev=0.0), (0.4,))
    assert scores.std_dev is None
    assert scores.broken == ()


def test_limits_of_missing_scores_do_not_hold() -> None:
    (said,) = LimitedScores(ScoreLimits(min_mean=0.0), ()).broken
    assert "No repeat has a weighted score" in said


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9))
def test_scores_keep_to_limits_at_their_own_figures(values: list[float]) -> None:
    found = LimitedScores(ScoreLimits(), tuple(values))
    limits = ScoreLimits(found.mean, found.std_dev)
    assert LimitedScores(limits, tuple(values)).broken == ()


def test_an_errored_repeat_makes_the_test_errored_whatever_the_scores(
    history: Any, make: Any
) -> None:
    run = history.run(planned=2)
    run.suite(tests=[make.planned(repeat=2, pass_rate=0.5, score_limits=ScoreLimits(0.1))])
    run.execution(repeat=1, assertions=(scored(make, 0.9),))
    run.execution(repeat=2, status=Status.ERRORED)
    (test,) = run.finish().tests()
    assert test.status is Status.ERRORED
    assert test.counts.tested == 2


def test_the_mean_weighted_score_is_reported_over_time(history: Any, make: Any) -> None:
    recorded(history, make, ScoreLimits(), [0.9, 0.7], "aaaaaaaa")
    trend = read_trend(history.reader(), Identity("shop", "support", "greets", "gpt"), limit=9)
    assert trend.points[0].weighted == pytest.approx(0.8)
    assert '"weightedScoreAvg": 0.8' in trends_json([trend])
    assert "80" in trends_text([trend], color=False, blocks=False).split("score")[1].split("\n")[0]
