"""Limits of the weighted scores of the repeats of a test, together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.cli.commands.runs import trends_json, trends_text
from kindlm.history.diff.evidence_values import Change, FailOn, Strength
from kindlm.history.diff.run_diff import DiffOptions, compare_runs
from kindlm.history.trends import read_trend
from kindlm.history.verdict import LimitedScores
from kindlm.outcome import ScoreLimits, Status
from kindlm.plan import QualifiedName as Identity
from kindlm.reports.diff.parts import measures
from kindlm.reports.pages.run_pages import read_grid

MEAN = ScoreLimits(min_mean=0.8)
SPREAD = ScoreLimits(max_std_dev=0.1)


def scored(make: Any, score: float) -> Any:
    return make.passed("weighted_score", "weighted score", score=score, threshold=0.0)


def recorded(
    history: Any, make: Any, limits: ScoreLimits | None, scores: list[float], run: str = "k3f9x2ab"
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
        (MEAN, [0.7, 0.88], ("The mean weighted score is 79, below the minimum of 80",)),
        (MEAN, [0.6, 0.81, 0.99], ()),  # 0.7999999999999999 by rounding
        (SPREAD, [0.7, 0.8], ()),
        (SPREAD, [0.6, 0.7, 0.8], ()),  # 0.10000000000000003
        (
            SPREAD,
            [0.6, 0.9],
            ("The standard deviation of the weighted scores is 21.21, above the maximum of 10",),
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
    assert test.counts.passed == len(scores)
    assert test.status is status
    # Everything that tells how tests came out says the same.
    assert view.suites[0].tests.failed == bool(said)
    assert view.passed is not bool(said)
    ((_, cells),) = read_grid(view, lambda test: test, limit=9).rows
    assert cells["gpt"].status is status
    trend = read_trend(history.reader(), Identity("shop", "support", "greets", "gpt"), limit=9)
    assert trend.points[0].test.status is status
    (pair,) = compare_runs(history.reader(), view.id, view.id, DiffOptions()).tests
    assert pair.after is not None
    assert pair.after.status is status


@pytest.mark.parametrize(
    ("limits", "before", "after", "strength", "fails"),
    [
        (MEAN, [0.82] * 10, [0.79] * 10, Strength.CONFIRMED, True),
        (MEAN, [0.82, 0.8], [0.8, 0.79], Strength.SUSPECTED, False),
        (MEAN, [0.82], [0.79], Strength.ONE_SAMPLE, True),
        (SPREAD, [0.8, 0.8, 0.8], [0.8, 1.0, 0.6], Strength.SUSPECTED, False),
        (SPREAD, [0.6, 0.6, 0.6, 0.6], [0.6, 1.0, 1.0, 1.0], Strength.SUSPECTED, False),
    ],
)
def test_a_test_that_newly_breaks_a_limit_of_its_scores_got_worse(
    history: Any,
    make: Any,
    limits: ScoreLimits,
    before: list[float],
    after: list[float],
    strength: Strength,
    fails: bool,
) -> None:
    recorded(history, make, limits, before, "before")
    view = recorded(history, make, limits, after, "after")
    diff = compare_runs(history.reader(), "before", "after", DiffOptions())
    (test,) = diff.tests
    assert (test.evidence.change, test.evidence.strength) == (Change.REGRESSED, strength)
    assert diff.fails is fails
    assert compare_runs(history.reader(), "before", "after", DiffOptions(FailOn.ANY)).fails
    (said,) = next(view.tests()).broken_limits
    assert ("limit", said) in list(measures(test))


@pytest.mark.parametrize(
    ("limits_before", "change"),
    [(MEAN, Change.UNCHANGED), (ScoreLimits(0.5), Change.REGRESSED), (None, Change.REGRESSED)],
)
def test_a_limit_is_newly_broken_if_the_run_before_keeps_its_own(
    history: Any, make: Any, limits_before: ScoreLimits | None, change: Change
) -> None:
    recorded(history, make, limits_before, [0.7, 0.7], "before")
    recorded(history, make, MEAN, [0.7, 0.7], "after")
    diff = compare_runs(history.reader(), "before", "after", DiffOptions())
    (test,) = diff.tests
    assert test.evidence.change is change
    assert not diff.fails


def test_a_stricter_limit_for_the_same_conversations_is_another_expectation(
    history: Any, make: Any
) -> None:
    recorded(history, make, ScoreLimits(0.5), [0.7], "before")
    after = history.run("after", mode="rescored", source_run="before")
    after.suite(tests=[make.planned(score_limits=MEAN)])
    after.execution(assertions=(scored(make, 0.7),), source="before-1.1")
    after.finish()
    diff = compare_runs(history.reader(), "before", "after", DiffOptions())
    (test,) = diff.tests
    assert (test.evidence.change, test.evidence.strength) == (
        Change.REGRESSED,
        Strength.EXPECTATIONS,
    )
    assert diff.fails


def test_the_score_of_a_judge_breaks_no_limit_of_the_weighted_score(
    history: Any, make: Any
) -> None:
    for run, judged in (("before", 0.9), ("after", 0.5)):
        writer = history.run(run)
        writer.suite(tests=[make.planned(score_limits=MEAN)])
        writer.execution(
            assertions=(make.passed("judge", "polite", score=judged), scored(make, 0.9))
        )
        writer.finish()
    (test,) = compare_runs(history.reader(), "before", "after", DiffOptions()).tests
    assert test.after is not None
    assert test.after.broken_limits == ()
    assert test.after.status is Status.PASSED


def test_limits_of_a_test_are_not_broken_by_the_scores_of_another(history: Any, make: Any) -> None:
    scores = {("greets", "gpt"): 0.9, ("greets", "claude"): 0.1, ("helps", "gpt"): 0.5}
    run = history.run()
    run.suite(tests=[make.planned(*test, score_limits=MEAN) for test in scores])
    for test, score in scores.items():
        run.execution(*test, assertions=(scored(make, score),))
    for found in run.finish().tests():
        assert found.scores is not None
        assert found.scores.scores == (scores[found.name, found.target],)


def test_a_repeat_without_a_score_is_left_out_of_them(history: Any, make: Any) -> None:
    unknown = {"outcome": "inconclusive", "score": None}
    run = history.run()
    run.suite(tests=[make.planned(repeat=2, score_limits=MEAN)])
    run.execution(assertions=(scored(make, 0.9),))
    run.execution(assertions=(make.failed("weighted_score", "weighted score", "X", **unknown),))
    (test,) = run.finish().tests()
    assert test.scores is not None
    assert (test.scores.scores, test.status) == ((0.9,), Status.ERRORED)


@pytest.mark.parametrize(("first", "last", "broken"), [(0.1, 0.9, False), (0.9, 0.1, True)])
def test_of_an_execution_that_was_retried_the_last_score_counts(
    history: Any, make: Any, first: float, last: float, broken: bool
) -> None:
    run = history.run()
    run.suite(tests=[make.planned(score_limits=MEAN)])
    run.execution(assertions=(scored(make, first),), retried=True)
    run.execution(number=1, attempt=2, assertions=(scored(make, last),))
    (test,) = run.finish().tests()
    assert test.scores is not None
    assert test.scores.scores == (last,)
    assert bool(test.broken_limits) is broken


def test_one_score_says_nothing_of_the_spread() -> None:
    scores = LimitedScores(ScoreLimits(max_std_dev=0.0), (0.4,))
    assert scores.std_dev is None
    assert scores.broken == ()


def test_limits_of_missing_scores_do_not_hold() -> None:
    (said,) = LimitedScores(ScoreLimits(min_mean=0.0), ()).broken
    assert "No repeat has a weighted score" in said


def test_limits_of_scores_of_which_a_judge_gave_only_some_do_not_hold(
    history: Any, make: Any
) -> None:
    for run in ("before", "after"):
        writer = history.run(run, planned=3)
        writer.suite(tests=[make.planned(repeat=3, score_limits=MEAN)])
        verdict = make.passed("evalview_verdict", "EvalView", score=0.2)
        for repeat in (1, 2):
            writer.execution(repeat=repeat, assertions=(verdict,))
        writer.execution(repeat=3, assertions=(scored(make, 1.0), verdict))
        (test,) = writer.finish().tests()
        assert test.broken_limits == ("A weighted score is known for only 1 of 3 repeats",)
        assert test.status is Status.FAILED
    (compared,) = compare_runs(history.reader(), "before", "after", DiffOptions()).tests
    assert compared.after is not None
    assert compared.after.broken_limits == test.broken_limits


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
    assert "80" in trends_text([trend]).split("score")[1].split("\n")[0]
