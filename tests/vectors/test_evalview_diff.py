"""The vectors of EvalView test cases that are about comparing a run with another one."""

from __future__ import annotations

from typing import Any, Final

import pytest
from compared_statuses import compare_statuses
from recorded_history import History, Make
from vector_cases import Departure, known, unknown

from kindlm.history.diff.call_changes import (
    Call,
    CallChange,
    CallEdit,
    compare_arguments,
    diff_calls,
)
from kindlm.history.diff.evidence_values import Change, FailOn, TestDiff
from kindlm.history.diff.run_diff import DiffOptions, RunDiff, compare_runs

Vector = dict[str, Any]


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def equal_numbers(case: Vector) -> set[str]:
    """Return the parameters that are the same number on both sides, however it is written."""
    golden, actual = case["input"]["golden"], case["input"]["actual"]
    return {
        name
        for name in golden.keys() & actual.keys()
        if is_number(golden[name]) and is_number(actual[name]) and golden[name] == actual[name]
    }


def truths_for_numbers(case: Vector) -> set[str]:
    """Return the parameters that are a number on one side, and true or false on the other."""
    golden, actual = case["input"]["golden"], case["input"]["actual"]
    return {
        name
        for name in golden.keys() & actual.keys()
        if isinstance(golden[name], bool) != isinstance(actual[name], bool)
    }


def parameters_of(case: Vector) -> list[str]:
    return [one["param"] for one in case["expected"]]


ARGUMENTS: Final = (
    Departure(
        "1 and 1.0 are the same number in JSON",
        lambda case: bool(equal_numbers(case) & set(parameters_of(case))),
        lambda case: [one for one in case["expected"] if one["param"] not in equal_numbers(case)],
    ),
    Departure(
        "true is no number",
        lambda case: not truths_for_numbers(case) <= set(parameters_of(case)),
        lambda case: [
            *case["expected"],
            *({"param": name} for name in truths_for_numbers(case) - set(parameters_of(case))),
        ],
    ),
)


def lost_points(case: Vector) -> float:
    given = case["input"]
    return float(given["golden"]["score"] - given["actual"]["score"])


def vanished(case: Vector) -> int:
    """Return how many calls of the older run are neither there any more nor told."""
    golden, actual = (case["input"][side]["tools"] for side in ("golden", "actual"))
    kinds = [one["type"] for one in case["expected"]["tool_diffs"]]
    told = kinds.count("removed") - kinds.count("added")
    return len(golden) - len(actual) - told


STATUSES: Final = (
    Departure(
        "a score that drops may be a regression whatever else is the same",
        lambda case: (
            case["expected"]["status"] == "passed"
            and lost_points(case) > case["input"].get("config", {}).get(LIMIT, 5.0)
        ),
        {"status": "regression"},
    ),
)
CALLS: Final = (
    Departure("every call that no longer exists is told", lambda case: vanished(case) != 0),
)
CODES: Final = (
    Departure(
        "nothing is quarantined: a regression counts until it is mended",
        lambda case: any(
            case["input"]["statuses"][name] == "regression" for name in case["input"]["quarantined"]
        ),
        {"exit_code": 1},
    ),
)
NOT_SERVED: Final = ("output_similarity_threshold", "ignore_case_in_output")
"""Settings that decide nothing there either."""
LIMIT: Final = "score_regression_threshold"

# Each test looks at some of these; the similarity of two answers is no number in kindlm.
DIFF: Final = ("status", "tool_diffs", "output_similarity", "score_diff", "has_differences")

BEFORE, AFTER = "before00", "after000"


@pytest.mark.vectors("evalview.jsonl", "diff_parameters", departures=ARGUMENTS)
def test_parameters(vector: Vector) -> None:
    found = compare_arguments(vector["input"]["golden"], vector["input"]["actual"])
    told = list(dict.fromkeys(argument.path.partition(".")[0] for argument in found))
    assert sorted(told) == sorted(one["param"] for one in vector["expected"])


@pytest.mark.vectors("evalview.jsonl", "diff_status", departures=STATUSES, beside=DIFF)
def test_status(vector: Vector, history: History) -> None:
    config = known(vector["input"].get("config", {}), LIMIT, *NOT_SERVED)
    threshold = config.get(LIMIT, 5.0) / 100
    (test,) = compared(history, vector["input"], threshold).tests
    assert status_of(test) == vector["expected"]["status"]


@pytest.mark.vectors(
    "evalview.jsonl", "diff_status", departures=CALLS, ignores=("config",), beside=DIFF
)
def test_tools(vector: Vector) -> None:
    golden, actual = (
        [Call(tool, {}, position=at) for at, tool in enumerate(vector["input"][side]["tools"])]
        for side in ("golden", "actual")
    )
    found = [as_told(one) for one in diff_calls(golden, actual) if one.edit is not CallEdit.SAME]
    assert found == vector["expected"]["tool_diffs"]


@pytest.mark.vectors(
    "evalview.jsonl",
    "diff_per_turn",
    ignores=("golden_turn_outputs", "actual_turn_outputs"),
    beside=("turns",),
)
def test_turns(vector: Vector, history: History) -> None:
    """Calls are compared over the whole conversation, so that a swap between turns is seen."""
    given = vector["input"]
    golden, actual = (
        {"tools": [tool for turn in given[f"{side}_turn_tools"] for tool in turn], "output": "b"}
        for side in ("golden", "actual")
    )
    (test,) = compared(history, {"golden": golden, "actual": actual}).tests
    assert status_of(test) == vector["expected"]["status"]


@pytest.mark.vectors(
    "evalview.jsonl", "exit_code_check", departures=CODES, ignores=("quarantined",)
)
def test_the_exit_code_of_a_comparison(vector: Vector, history: History) -> None:
    given = vector["input"]
    wanted = (given["fail_on"] or "REGRESSION").split(",")
    if given["strict"] or given["execution_failures"] or "REGRESSION" not in wanted:
        unknown("another way to fail than a change")
    if set(wanted) - {"REGRESSION", "TOOLS_CHANGED"}:
        unknown(f"--fail-on {given['fail_on']}")
    rule = FailOn.BEHAVIOUR if "TOOLS_CHANGED" in wanted else FailOn.DEFAULT
    diff = compare_statuses(history, given["statuses"], DiffOptions(rule))
    assert int(diff.fails) == vector["expected"]["exit_code"]


@pytest.mark.vectors("evalview.jsonl", "diff_command")
def test_the_command(vector: Vector, history: History) -> None:
    for name, results in ((BEFORE, vector["input"]["before"]), (AFTER, vector["input"]["after"])):
        run = history.run(name)
        run.suite(tests=[Make.planned(one["test_case"]) for one in results], defaults={})
        for one in results:
            found = one["evaluations"]
            run.execution(
                one["test_case"],
                output=one["actual_output"],
                tools=called(found["sequence_correctness"]["actual_sequence"]),
                cost_usd=found["cost"]["total_cost"],
                latency_ms=found["latency"]["total_latency"],
            )
        run.finish()
    expected = vector["expected"]

    tests = {test.key.name: test for test in diff_of(history).tests}

    told = {name: test.evidence.change for name, test in tests.items()}
    assert [name for name in told if told[name] is Change.ADDED] == expected["added"]
    assert [name for name in told if told[name] is Change.REMOVED] == expected["removed"]
    for wanted in expected["compared"]:
        test = tests[wanted["test_case"]]
        assert test.behaviour.tools == wanted["tool_sequence"]["changed"]
        assert test.behaviour.output == (wanted["output_similarity"] < 100)
        assert test.before is not None
        assert test.after is not None
        for side, sign in ((test.before, "before"), (test.after, "after")):
            assert side.means.get("cost") == wanted[f"cost_{sign}"]
            assert side.means.get("latency") == wanted[f"latency_{sign}_ms"]


def called(tools: list[str]) -> tuple[tuple[str, Any, Any], ...]:
    return tuple((tool, {}, None) for tool in tools)


def compared(history: History, given: Vector, threshold: float = 0.05) -> RunDiff:
    """Record both sides as runs, and compare them."""
    for name, side in ((BEFORE, given["golden"]), (AFTER, given["actual"])):
        known(side, "tools", "output", "score")
        score = side.get("score", 90) / 100
        scored = Make.passed("weighted_score", "weighted score", score=score)
        run = history.run(name)
        run.suite(tests=[Make.planned()], defaults={})
        run.execution(output=side["output"], tools=called(side["tools"]), assertions=(scored,))
        run.finish()
    return diff_of(history, threshold)


def diff_of(history: History, threshold: float = 0.05) -> RunDiff:
    options = DiffOptions(regression_threshold=threshold)
    return compare_runs(history.reader(), BEFORE, AFTER, options)


def status_of(test: TestDiff) -> str:
    if test.evidence.change is Change.REGRESSED:
        return "regression"
    if test.behaviour.tools or test.behaviour.arguments:
        return "tools_changed"
    return "output_changed" if test.behaviour.output else "passed"


def as_told(change: CallChange) -> dict[str, Any]:
    is_new = change.edit is CallEdit.ADDED
    return {
        "type": change.edit.value,
        "pos": change.made.position,
        "golden": None if is_new else change.made.tool,
        "actual": change.made.tool if is_new else None,
    }
