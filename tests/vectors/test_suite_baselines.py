"""The vectors of suites that are about drift and baselines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import pytest
from evaluated import demand, evaluated
from vector_cases import Departure, NoCounterpart, known, unknown

from kindlm.checks.drift import cosine_similarity
from kindlm.cli.foreign_import import read_results
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.history.baselines import output_of
from kindlm.history.diff.evidence_values import Change, TestDiff
from kindlm.history.diff.run_diff import DiffOptions, compare_runs
from kindlm.outcome import CheckResult, Outcome
from kindlm.plan import QualifiedName
from kindlm.ports import CheckContext, Embed, Embedding, ModelReply, Question
from kindlm.transcript import Step, Transcript, Turn

Vector = dict[str, Any]

DEFAULTS: Final = {"maxScore": 0.15, "method": "judge", "fields": None}


def drift_result(case: Vector) -> Vector:
    (result,) = case["expected"]["results"]
    found: Vector = result
    return found


def drift_of(case: Vector, drift: float) -> Vector:
    """Return what is expected of a drift, by the limit of the case."""
    limit = (DEFAULTS | case["input"]["expect"]["baseline"]["drift"])["maxScore"]
    passed = drift <= limit
    result: Vector = {"passed": passed, "drift_score": drift}
    return {"results": [result if passed else {**result, "code": "DRIFT_EXCEEDED"}]}


def equal_as_json(case: Vector) -> list[str]:
    """Return the fields that differ in the order of their keys alone."""
    given = case["input"]
    old, new = json.loads(given["baseline_text"]), json.loads(given["output_text"])
    mismatched = drift_result(case)["mismatched"]
    return [name for name in mismatched if name in old and old[name] == new.get(name)]


def without_equal_fields(case: Vector) -> Vector:
    fields = case["input"]["expect"]["baseline"]["drift"]["fields"]
    differing = set(drift_result(case)["mismatched"]) - set(equal_as_json(case))
    return drift_of(case, len(differing) / len(fields))


DRIFT_DEPARTURES: Final = (
    Departure(
        "without a baseline there is nothing to decide: skipped, and says what to do",
        lambda case: case["input"]["baseline_text"] is None,
        {"results": [{"outcome": "skipped"}]},
    ),
    Departure(
        "values are compared as JSON: the order of keys never matters",
        lambda case: bool(equal_as_json(case)),
        without_equal_fields,
    ),
    Departure(
        "drift is clipped to [0, 1]",
        lambda case: drift_result(case)["drift_score"] > 1,
        lambda case: drift_of(case, 1.0),
    ),
)

# The same failure by another name.
SAME_CODE: Final = {
    "DRIFT_PARSE_ERROR": {"JUDGE_EVAL_ERROR", "ASSERTION_EVAL_ERROR", "DRIFT_EXCEEDED"},
    "INTERNAL_ERROR": {"ASSERTION_EVAL_ERROR"},
}

FILES: Final = "a baseline is a recorded run, chosen: it is in no file that had to be named"

RESULT: Final = (
    "type", "outcome", "passed", "score", "code", "drift_score", "mismatched", "compared_fields",
)  # fmt: skip


class Judge:
    """Gives the replies of a vector in turn, the last one again and again."""

    def __init__(self, replies: list[dict[str, str]]) -> None:
        self._replies = replies
        self._asked = 0

    async def __call__(self, question: Question) -> Result[ModelReply]:
        reply = self._replies[min(self._asked, len(self._replies) - 1)]
        self._asked += 1
        if "throw" in reply:
            return Err(KindlmError(ErrorCode.PROVIDER_API_ERROR, reply["throw"]))
        return Ok(ModelReply(reply["text"], reply["text"], 1.0))


def embedder(vectors: list[Any] | None) -> Embed | None:
    if vectors is None:
        return None

    async def embed(texts: Sequence[str]) -> Result[tuple[Embedding, str]]:
        if "throw" in vectors:
            return Err(KindlmError(ErrorCode.PROVIDER_API_ERROR, "throw"))
        return Ok((Embedding(tuple(map(tuple, vectors)), 1.0), "provider/model"))

    return embed


def measure(case: dict[str, Any]) -> CheckResult:
    known(case["expect"], "baseline")
    known(case["expect"]["baseline"], "drift")
    params = DEFAULTS | case["expect"]["baseline"]["drift"]
    known(params, *DEFAULTS)
    judge, embed = Judge(case.get("replies", [])), embedder(case.get("embeddings"))
    context = CheckContext(judge, embed, Ok(case["baseline_text"]))
    transcript = Transcript(turns=(Turn("", (Step(case["output_text"]),)),))
    expectation = demand("drift", "drift", params)
    return evaluated(expectation, transcript, context)


@pytest.mark.vectors(
    "suite.jsonl", "assertion/drift", departures=DRIFT_DEPARTURES, beside=("passed",)
)
def test_drift(vector: Vector) -> None:
    if "expect" not in vector["input"]:
        similarity = cosine_similarity(vector["input"]["a"], vector["input"]["b"])
        assert similarity == pytest.approx(vector["expected"]["similarity"])
        return
    result = measure(vector["input"])

    expected = known(drift_result(vector), *RESULT)
    if "outcome" in expected:
        assert (result.outcome.value, result.score) == (expected["outcome"], None)
        return
    assert (result.outcome is Outcome.PASSED) == expected["passed"]
    if "code" in expected:
        assert result.failure_code is not None
        assert result.failure_code in SAME_CODE.get(expected["code"], {expected["code"]})
    if "drift_score" in expected:
        assert result.score == pytest.approx(1 - expected["drift_score"])
    elif result.outcome is Outcome.INCONCLUSIVE:
        assert result.score is None
    if "mismatched" in expected and not expected["passed"]:
        fields = result.expected.get("fields", {}).keys() | result.actual.get("fields", {}).keys()
        assert fields == set(expected["mismatched"])


def moved_by_little(case: Vector) -> list[str]:
    """Return the tests whose pass rates differ by 0.001 at most."""
    old, new = case["input"]["baseline"], case["input"]["current"]
    changes = {name: new[name]["passRate"] - old[name]["passRate"] for name in old if name in new}
    return [name for name, change in changes.items() if 0 < abs(change) < 0.001 + 1e-9]


def every_change_counts(case: Vector) -> Vector:
    old, new = case["input"]["baseline"], case["input"]["current"]
    expected = dict(case["expected"])
    names = moved_by_little(case)
    expected["unchanged"] = [one for one in expected["unchanged"] if one["testName"] not in names]
    for name in names:
        fell = new[name]["passRate"] < old[name]["passRate"]
        kind = "regressions" if fell else "improvements"
        expected[kind] = [*expected[kind], {"testName": name, "newFailureCodes": []}]
    return expected


COMPARED: Final = (
    Departure(
        "every change of a pass rate counts; the evidence says how sure it is",
        lambda case: case["input"]["op"] == "compare" and bool(moved_by_little(case)),
        every_change_counts,
    ),
)


@pytest.mark.vectors(
    "suite.jsonl",
    "baseline",
    departures=COMPARED,
    ignores=("suite",),
    beside=("version", "file"),
)
def test_baselines(vector: Vector, history: Any, make: Any, tmp_path: Path) -> None:
    operation = vector["input"]["op"]
    if operation == "compare":
        check_comparison(vector, history, make)
    elif operation == "build":
        check_recorded(vector, history, make)
    elif operation == "read":
        check_imported(vector, tmp_path)
    elif operation == "filename":
        raise NoCounterpart(FILES)
    else:
        unknown(f"op {operation}")


def check_comparison(vector: Vector, history: Any, make: Any) -> None:
    given = vector["input"]
    for run, tests in (("before", given["baseline"]), ("after", given["current"])):
        record_rates(history, make, run, tests)
    db = history.reader()
    diff = compare_runs(db, "before", "after", DiffOptions())

    def of(change: Change) -> dict[str, TestDiff]:
        tests = (test for test in diff.tests if test.evidence.change is change)
        return {f"{test.key.name}::{test.key.target}": test for test in tests}

    expected = vector["expected"]
    assert of(Change.REGRESSED).keys() == {test["testName"] for test in expected["regressions"]}
    for test in expected["regressions"]:
        found = of(Change.REGRESSED)[test["testName"]]
        before, after = (
            {
                row[0]
                for row in db.execute(
                    "SELECT failure_code FROM assertions a JOIN executions e ON a.execution = e.id"
                    " WHERE e.run = ? AND test = ? AND failure_code IS NOT NULL",
                    (run, found.key.name),
                )
            }
            for run in ("before", "after")
        )
        assert sorted(after - before) == sorted(test["newFailureCodes"])
    assert of(Change.IMPROVED).keys() == {test["testName"] for test in expected["improvements"]}
    assert of(Change.UNCHANGED).keys() == {test["testName"] for test in expected["unchanged"]}
    assert of(Change.ADDED).keys() == set(expected["newTests"])
    assert of(Change.REMOVED).keys() == set(expected["removedTests"])


def record_rates(history: Any, make: Any, run: str, tests: dict[str, Any]) -> None:
    """Record a run whose tests pass at these rates, with as many repeats as that takes."""
    writer = history.run(run)
    rates = {key: Fraction(test["passRate"]).limit_denominator(1000) for key, test in tests.items()}
    names = {key: key.rsplit("::", 1) for key in tests}
    writer.suite(
        "s",
        tests=[make.planned(*names[key], repeat=rate.denominator) for key, rate in rates.items()],
    )
    for key, rate in rates.items():
        codes = tests[key]["failureCodes"]
        assert not codes or rate < 1, "what always passes has no code"
        failed = tuple(make.failed(code=code, label=code) for code in codes) or (make.failed(),)
        for repeat in range(1, rate.denominator + 1):
            checks = (make.passed(),) if repeat <= rate.numerator else failed
            writer.execution(*names[key], repeat=repeat, assertions=checks)
    writer.finish()


def check_imported(vector: Vector, folder: Path) -> None:
    """What is read of a baseline file of KindLM, when it is imported."""
    file = folder / "s.json"
    file.write_text(vector["input"]["text"], encoding="utf-8")
    read = read_results(file)
    if not vector["expected"]["ok"]:
        assert isinstance(read, Err)
        assert read.error.code.name == vector["expected"]["code"]
        return
    assert isinstance(read, Ok)
    tests = [f"{test.name}::{test.target}" for test in read.value.results.tests]
    assert tests == vector["expected"]["keys"]


def check_recorded(vector: Vector, history: Any, make: Any) -> None:
    """What a baseline holds of each test, when the run is recorded and then chosen."""
    tests = vector["input"]["aggregated"]
    writer = history.run("run1")
    planned = [
        make.planned(test["testCaseName"], test["modelId"], repeat=test["runCount"])
        for test in tests
    ]
    writer.suite("s", tests=planned)
    for test in tests:
        for repeat, run in enumerate(test["runs"], start=1):
            good = all(assertion["passed"] for assertion in run["assertions"])
            writer.execution(
                test["testCaseName"],
                test["modelId"],
                repeat=repeat,
                output=run["outputText"],
                assertions=(make.passed() if good else make.failed(),),
            )
    writer.finish()
    db = history.reader()

    expected = vector["expected"]["results"]
    found = compare_runs(db, "run1", "run1", DiffOptions()).tests
    assert {f"{test.key.name}::{test.key.target}" for test in found} == expected.keys()
    for key, test in expected.items():
        output = output_of(db, ["run1"], QualifiedName("shop", "s", *key.rsplit("::", 1)))
        assert (output or "") == test["outputText"]
