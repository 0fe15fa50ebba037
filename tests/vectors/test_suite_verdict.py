"""The vectors of suites that are about gates, and about a test over its repeats.

Each is recorded as events and read back, so that the queries are held to it as well as the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from vector_cases import Departure, known

from kindlm.outcome import Status
from kindlm.reports.causes import causes_of

Vector = dict[str, Any]

GATES: Final = {
    "passRateMin", "schemaFailuresMax", "judgeAvgMin", "driftScoreMax", "piiFailuresMax",
    "keywordFailuresMax", "costMaxUsd", "latencyMaxMs",
}  # fmt: skip

RESULT: Final = (
    "runCount", "passRate", "assertionScores", "latencyAvgMs", "totalCostUsd", "runs"
)  # fmt: skip

# Kinds that have other names here.
KINDS: Final = {"keywords_absent": "keywords_deny", "keywords_present": "keywords_allow"}
KINDS_BY_CODE: Final = {
    "CONTAINS_FAILED": "contains",
    "NOT_CONTAINS_FAILED": "not_contains",
    "MAX_LENGTH_EXCEEDED": "max_length",
}
# What is no assertion here, but an error of the execution.
NO_ASSERTIONS: Final = {"internal"}


def gate_rule(rule: str, of: Callable[[Vector, list[Vector]], Vector | None]) -> Departure:
    """Return a departure of single gates: what `of` makes of each, with the results of the tests.

    A gate of which it makes None is not there.
    """

    def ours(case: Vector) -> Vector:
        made = (of(gate, case["input"]["results"]) for gate in case["expected"]["gates"])
        gates = [gate for gate in made if gate is not None]
        return {"passed": all(gate["passed"] for gate in gates), "gates": gates}

    return Departure(rule, lambda case: True, ours)


def without_value(gate: Vector, results: list[Vector]) -> Vector:
    if gate.get("empty") or (gate["name"] in NEED_EXECUTIONS and not results):
        nothing = {"passed": False, "actual": None}
        return {"name": gate["name"], **nothing, "threshold": gate["threshold"]}
    return gate


def of_executions(gate: Vector, results: list[Vector]) -> Vector:
    executions = sum(result["runCount"] for result in results)
    if gate["name"] != "latencyMaxMs" or not executions:
        return gate
    total = sum(result["latencyAvgMs"] * result["runCount"] for result in results)
    mean = total / executions
    return gate | {"actual": mean, "passed": mean <= gate["threshold"]}


NEED_EXECUTIONS: Final = {"passRateMin", "latencyMaxMs"}
DEPARTURES: Final = (
    gate_rule(
        "the format has no such gate",
        lambda gate, _: gate if gate["name"] in GATES else None,
    ),
    gate_rule("a gate that was written and has nothing to measure fails", without_value),
    gate_rule("latencyMaxMs is the mean over executions", of_executions),
)


@pytest.mark.vectors("suite.jsonl", "gate", departures=DEPARTURES)
def test_gates(vector: Vector, history: Any, make: Any) -> None:
    given, expected = vector["input"], vector["expected"]
    (suite,) = recorded(given, history, make).suites

    found = [
        {
            "name": gate.name,
            "passed": gate.passed,
            "actual": None if gate.actual is None else pytest.approx(gate.actual),
            "threshold": gate.threshold,
        }
        for gate in suite.gates
    ]
    wanted = [
        known(gate, "name", "passed", "actual", "threshold", "empty") for gate in expected["gates"]
    ]
    order = {gate["name"]: place for place, gate in enumerate(wanted)}
    assert sorted(found, key=lambda gate: order[gate["name"]]) == [
        {name: value for name, value in gate.items() if name != "empty"} for gate in wanted
    ]
    assert all(gate.passed for gate in suite.gates) is expected["passed"]


def recorded(given: Vector, history: Any, make: Any) -> Any:
    """Record a run of one suite whose tests came out as the vector says."""
    results = given["results"]
    run = history.run()
    gates = {name: value for name, value in given["gates"].items() if name in GATES}
    tests = [make.planned(f"test {i}", repeat=r["runCount"]) for i, r in enumerate(results)]
    run.suite(tests=tests, gates=gates, defaults={})
    for index, result in enumerate(results):
        known(result, *RESULT)
        passed = round(result["passRate"] * result["runCount"])
        for repeat in range(1, result["runCount"] + 1):
            runs = result["runs"][repeat - 1 : repeat]
            run.execution(
                f"test {index}",
                repeat=repeat,
                status=Status.PASSED if repeat <= passed else Status.FAILED,
                latency_ms=result["latencyAvgMs"],
                cost_usd=result["totalCostUsd"] / result["runCount"],
                assertions=(
                    *(scored(make, *item) for item in result["assertionScores"].items()),
                    *(assertion(make, a) for each in runs for a in each["assertions"]
                      if a["assertionType"] not in NO_ASSERTIONS),
                ),
            )  # fmt: skip
    return run.finish()


def scored(make: Any, key: str, scores: Vector) -> Any:
    kind, _, label = key.partition(":")
    return make.passed(kind, label, score=scores["mean"])


def assertion(make: Any, given: Vector) -> Any:
    kind = KINDS.get(given["assertionType"], given["assertionType"])
    if given["passed"]:
        return make.passed(kind, given["label"], score=given["score"])
    code = given["failureCode"]
    kind = KINDS_BY_CODE.get(code, kind)
    return make.failed(kind, given["label"], code, score=given["score"])


# What this test holds of unknown costs is a rule of its own: see below.
@pytest.mark.vectors("suite.jsonl", "aggregate")
def test_a_test_over_its_repeats(vector: Vector, history: Any, make: Any) -> None:
    runs, expected = vector["input"]["runs"], vector["expected"]
    run = history.run()
    run.suite(tests=[make.planned("test", repeat=len(runs))])
    for repeat, given in enumerate(runs, start=1):
        known(given, "assertions", "latencyMs", "totalTokens", "costUsd")
        run.execution(
            "test",
            repeat=repeat,
            assertions=tuple(assertion(make, each) for each in given["assertions"]),
            latency_ms=given["latencyMs"],
            tokens=(given["totalTokens"], 0),
            cost_usd=given["costUsd"],
        )
    view = run.finish()
    if expected.get("error"):
        assert not view.summary.executions.tested
        assert not view.passed
        return
    (test,) = view.tests()

    assert (test.status is Status.PASSED) is expected["passed"]
    assert (test.status is Status.ERRORED) is expected["errored"]
    assert test.counts.total == expected["run_count"]
    assert test.counts.pass_rate == pytest.approx(expected["pass_rate"])
    assert test.latency_ms == pytest.approx(expected["latency_avg_ms"])
    assert view.summary.input_tokens == expected["tokens"]
    # The vectors add unknown costs up as 0; here the sum is unknown, and what is known is told.
    assert view.summary.paid.agents_usd == pytest.approx(expected["cost_usd"])
    if any(given["costUsd"] is None for given in runs):
        assert test.cost_usd is None
        assert view.summary.paid.unknown
    codes = {str(cause.code) for cause in causes_of(view, [test]) if cause.how is Status.FAILED}
    assert codes == set(expected["failure_codes"])
    judged = [s["mean"] for key, s in expected["scores"].items() if key.startswith("judge")]
    metrics = view.suites[0].figures
    mean = sum(judged) / len(judged) if judged else None
    assert metrics.judge_average == (None if mean is None else pytest.approx(mean))
