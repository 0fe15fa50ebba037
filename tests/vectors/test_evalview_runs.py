"""The vectors of EvalView test cases that are about repeats, costs and what a run ends with."""

from __future__ import annotations

from typing import Any, Final

import pytest
from compared_statuses import compare_statuses
from recorded_history import History, Make
from vector_cases import Departure, known, unknown

from kindlm.history.run_view import RunView
from kindlm.history.statistics import mean_interval
from kindlm.history.trends import RepeatStatistics, repeat_statistics
from kindlm.history.verdict import LimitedScores
from kindlm.outcome import ScoreLimits, Status
from kindlm.pricing import PriceTable
from kindlm.transcript import Extras, Usage

Vector = dict[str, Any]

STUDENT: Final = "the interval of a mean of few scores is Student's, not that of the normal one"
SINGLE: Final = (
    Departure(
        "of one score no spread is known, rather than none",
        lambda case: len(case["input"]["values"]) == 1,
        {"std_dev": None},
    ),
)
MEANS: Final = (
    Departure(
        STUDENT,
        lambda case: len(case["input"]["values"]) == 1 or case["expected"]["std_dev"] > 0,
    ),
)
CHANCES: Final = (
    Departure(
        "pass@k and pass^k are the unbiased estimates, not those of the rate put in",
        lambda case: 0 < case["expected"]["pass_rate"] < 1,
        {"pass_at_k": 1.0, "pass_power_k": 0.0},
    ),
)
INTERVALS: Final = (
    Departure(STUDENT, lambda case: case["expected"]["std_dev"] > 0 and case["expected"]["ci"]),
)
CODES: Final = (
    Departure(
        "the exit code of all that fails is 1",
        lambda case: case["expected"]["exit_code"] > 1,
        {"exit_code": 1},
    ),
)
# Each test looks at some of the values of a case; what no test looks at, kindlm does not tell.
STATISTICS: Final = (
    "mean", "std_dev", "confidence_interval_lower", "confidence_interval_upper",
    "variance", "min_value", "max_value", "median", "percentile_25", "percentile_75",
    "percentile_95",
)  # fmt: skip
REPEATS: Final = (
    "passed", "pass_rate", "pass_at_k", "pass_power_k", "mean", "std_dev", "ci",
    "flakiness", "flakiness_category", "cv_percent", "failure_reason_count",
)  # fmt: skip

PROVIDERS: Final = {"gpt": "openai", "claude": "anthropic"}


@pytest.mark.vectors(
    "evalview.jsonl",
    "statistics",
    departures=SINGLE,
    ignores=("confidence_level",),
    beside=STATISTICS,
)
def test_mean_and_spread(vector: Vector) -> None:
    expected = vector["expected"]
    found = LimitedScores(ScoreLimits(), tuple(vector["input"]["values"]))
    assert found.mean == expected["mean"]
    assert found.std_dev == pytest.approx(expected["std_dev"], abs=0.00005)


@pytest.mark.vectors("evalview.jsonl", "statistics", departures=MEANS, beside=STATISTICS)
def test_the_interval_of_a_mean(vector: Vector) -> None:
    expected = vector["expected"]
    found = mean_interval(vector["input"]["values"], vector["input"]["confidence_level"])
    wanted = expected["confidence_interval_lower"], expected["confidence_interval_upper"]
    assert found == pytest.approx(wanted, abs=0.00005)


@pytest.mark.vectors("evalview.jsonl", "statistical_mode", ignores=("min_score",), beside=REPEATS)
def test_the_verdict_over_repeats(vector: Vector, history: History) -> None:
    expected = vector["expected"]
    (test,) = repeated(history, vector).tests()
    assert (test.status is Status.PASSED) == expected["passed"]
    assert test.counts.pass_rate == expected["pass_rate"]
    statistics = statistics_of(history, vector)
    assert statistics.score is not None
    assert statistics.score.mean * 100 == pytest.approx(expected["mean"])
    assert statistics.score.std_dev is not None
    assert statistics.score.std_dev * 100 == pytest.approx(expected["std_dev"], abs=0.00005)


@pytest.mark.vectors(
    "evalview.jsonl", "statistical_mode", departures=CHANCES, ignores=("min_score",), beside=REPEATS
)
def test_the_chances_of_several_tries(vector: Vector, history: History) -> None:
    repeated(history, vector)
    found = statistics_of(history, vector)
    told = round(found.pass_at[-1], 4), round(found.pass_hat[-1], 4)
    assert told == (vector["expected"]["pass_at_k"], vector["expected"]["pass_power_k"])


@pytest.mark.vectors(
    "evalview.jsonl",
    "statistical_mode",
    departures=INTERVALS,
    ignores=("min_score",),
    beside=REPEATS,
)
def test_the_interval_of_the_score(vector: Vector, history: History) -> None:
    repeated(history, vector)
    score = statistics_of(history, vector).score
    assert score is not None
    assert score.interval is not None
    found = [end * 100 for end in score.interval]
    assert found == pytest.approx(vector["expected"]["ci"], abs=0.00005)


DEFAULTS: Final = ("REGRESSION", "TOOLS_CHANGED,OUTPUT_CHANGED")


@pytest.mark.vectors(
    "evalview.jsonl",
    "exit_code_run",
    departures=CODES,
    ignores=("statuses", "fail_on", "warn_on"),
)
def test_the_exit_code_of_a_run(vector: Vector, history: History) -> None:
    """Comparing is a command of its own: where the vector does both, the run itself passes."""
    given = vector["input"]
    run = history.run()
    run.suite(tests=[Make.planned("sound"), Make.planned("a"), Make.planned("b")], defaults={})
    run.execution("sound", assertions=(Make.passed(),))
    run.execution("a", assertions=(Make.failed() if given["failed"] else Make.passed(),))
    run.execution("b", status=Status.ERRORED if given["execution_errors"] else Status.PASSED)
    code = 0 if run.finish().fulfilled else 1
    if given["diff"] and (given.get("fail_on"), given.get("warn_on")) != DEFAULTS:
        unknown("another --fail-on in a run")
    if given["diff"]:
        assert code == 0
        code = compared_code(history, given["statuses"])
    assert code == vector["expected"]["exit_code"]


@pytest.mark.vectors("evalview.jsonl", "pricing")
def test_pricing(vector: Vector) -> None:
    given = vector["input"]
    provider = PROVIDERS[given["model"].partition("-")[0]]
    cached = given["cached_tokens"]  # they come on top of the input there
    usage = Usage(given["input_tokens"] + cached, given["output_tokens"], Extras(cached))
    found = PriceTable({}).cost(provider, given["model"], usage)
    assert found.usd == pytest.approx(vector["expected"]["cost"])


def repeated(history: History, vector: Vector) -> RunView:
    """Record the repeats of a test with the scores that they got there."""
    given = vector["input"]
    variance = given["variance"]
    known(variance, "runs", "pass_rate", "min_mean_score", "max_std_dev")
    limits = {
        name: variance[written] / 100
        for name, written in (("min_mean", "min_mean_score"), ("max_std_dev", "max_std_dev"))
        if written in variance
    }
    run = history.run()
    planned = Make.planned(
        repeat=len(given["runs"]),
        pass_rate=variance["pass_rate"],
        score_limits=ScoreLimits(**limits) if limits else None,
    )
    run.suite(tests=[planned], defaults={})
    for repeat, one in enumerate(given["runs"], start=1):
        result = Make.passed if one["passed"] else Make.failed
        scored = result("weighted_score", "weighted score", score=one["score"] / 100)
        run.execution(
            repeat=repeat, assertions=(scored,), tools=tuple((t, {}, None) for t in one["tools"])
        )
    return run.finish()


def statistics_of(history: History, vector: Vector) -> RepeatStatistics:
    view = history.view("k3f9x2ab")
    (test,) = view.tests()
    assert test.counts.tested == len(vector["input"]["runs"])
    found = repeat_statistics(view.db, test)
    assert found is not None
    return found


def compared_code(history: History, statuses: list[str]) -> int:
    return int(compare_statuses(history, dict(enumerate(statuses))).fails)
