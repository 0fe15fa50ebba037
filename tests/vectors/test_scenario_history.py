"""The vectors of scenarios that are about recorded runs: comparing them, and naming them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from recorded_history import History, Make
from scenario_departures import COMMANDS, COMPARED, LABELS, is_twice
from scenario_project import Judge, Project, new_project, serving_agent
from vector_cases import unknown

from kindlm.cli.app import run
from kindlm.errors import Err, Ok
from kindlm.history.diff.evidence_values import Change, FailOn, Side, TestDiff
from kindlm.history.diff.run_diff import DiffOptions, RunDiff, compare_runs
from kindlm.history.run_names import find_run, find_sides
from kindlm.outcome import Status

Vector = dict[str, Any]

STATUSES: Final = {
    Change.REGRESSED: "regression",
    Change.IMPROVED: "improvement",
    Change.UNCHANGED: "stable",
    Change.ADDED: "added",
    Change.REMOVED: "removed",
}
SUMMARY: Final = {
    "regressions": Change.REGRESSED,
    "improvements": Change.IMPROVED,
    "stable": Change.UNCHANGED,
    "added": Change.ADDED,
    "removed": Change.REMOVED,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.chdir(tmp_path)
    with serving_agent() as agent:
        yield new_project(tmp_path, agent)


def told(diff: RunDiff) -> Vector:
    """Return what a comparison says, by the names of the vectors; tests are in our order."""
    changes = Counter(test.evidence.change for test in diff.tests)
    return {
        "scenarios": sorted(map(as_told, diff.tests), key=lambda each: each["scenario"]),
        "summary": {"total": len(diff.tests)} | {n: changes[of] for n, of in SUMMARY.items()},
        "hasRegressions": diff.fails,
    }


def as_told(test: TestDiff) -> Vector:
    rates = test.pass_rates
    scores = [score_of(side) for side in (test.before, test.after) if test.compared]
    return {
        "scenario": test.key.name.rpartition("::")[2],
        "status": STATUSES[test.evidence.change],
        "scoreDelta": scores[1] - scores[0] if scores else None,
        "passFlipped": rates and rates[0] != rates[1],
    }


def score_of(side: Side | None) -> float:
    assert side is not None
    (score,) = side.scores["checks"]
    return score


@pytest.mark.vectors(
    "scenario.jsonl", "diff", where=lambda case: not is_twice(case), departures=COMPARED
)
def test_diff(vector: Vector, history: History) -> None:
    given = vector["input"]
    for side in ("before", "after"):
        recording = history.run(f"{side}00")
        recording.suite(tests=[Make.planned(name) for name, _, _ in given[side]], defaults={})
        for name, passed, score in given[side]:
            status = Status.PASSED if passed else Status.FAILED
            check = Make.passed() if passed else Make.failed()
            recording.execution(name, assertions=(check,), status=status, score=score)
        recording.finish()
    threshold = given.get("threshold", 0.05)

    found = compared(history, FailOn.DEFAULT, threshold)

    assert told(found) == vector["expected"]
    if any(test.evidence.change is Change.REGRESSED for test in found.tests):
        assert compared(history, FailOn.ANY, threshold).fails


def compared(history: History, rule: FailOn, threshold: float) -> RunDiff:
    options = DiffOptions(rule, regression_threshold=threshold)
    return compare_runs(history.reader(), "before00", "after00", options)


def scenarios(*passed: bool, title: str = "x") -> str:
    """Return a file of scenarios that pass or do not, all of one title."""
    return "".join(scenario(title, number, each) for number, each in enumerate(passed))


def scenario(title: str, number: int, passed: bool) -> str:
    return (
        f"\n@scenario({title!r})\nasync def test_{number}(t: Trial) -> None:\n"
        f'    t.check(await t.agent.send("hi")).contains("{"hi" if passed else "bye"}")\n'
    )


@pytest.mark.vectors("scenario.jsonl", "diff", where=is_twice, departures=COMPARED)
def test_one_title_twice(vector: Vector, project: Project) -> None:
    for side in ("before", "after"):
        given = vector["input"][side]
        if any(score != passed for _, passed, score in given):
            unknown("a title twice, with other scores than 0 and 1")
        project.test(
            tests="".join(
                scenario(name, number, passed) for number, (name, passed, _) in enumerate(given)
            )
        )
    history = History(project.root / ".kindlm" / "kindlm.db")
    runs = [name for (name,) in project.rows("SELECT id FROM runs ORDER BY started_at")]
    found = told(compare_runs(history.reader(), runs[0], runs[1], DiffOptions()))
    history.close()
    assert found == vector["expected"]


@pytest.mark.vectors("scenario.jsonl", "diff.exit")
def test_the_exit_code(vector: Vector, project: Project) -> None:
    labels = []
    for side in ("before", "after"):
        label, _, outcome = vector["input"][side].partition(" ")
        if outcome not in {"pass", "fail"}:
            unknown(vector["input"][side])
        project.test("--label", label, tests=scenarios(outcome == "pass"))
        labels.append(label)
    code = run(["diff", *labels])
    assert code == vector["expected"]["exitCode"]
    assert bool(code) == vector["expected"]["hasRegressions"]


JUDGED: Final = """
@scenario("x")
async def test_it(t: Trial) -> None:
    t.judge(await t.agent.send("hi"), "Is it polite?", threshold=4, scale=4)
"""


@pytest.mark.vectors(
    "scenario.jsonl",
    "cli.diff",
    where=lambda case: "scoreDelta" in case["input"],
    departures=COMMANDS,
    ignores=("argv",),
)
def test_the_threshold(
    vector: Vector, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    given = vector["input"]
    if (given["scoreDelta"], given["pass_flip"]) != (-0.5, False):
        unknown(f"a change by {given['scoreDelta']}")
    for label, points in (("v1", 3), ("v2", 1)):
        project.agent.judge = giving(points)
        assert project.test("--label", label, tests=JUDGED) == 1
    before, after = (score for (score,) in project.rows("SELECT score FROM executions"))
    assert (after - before, given["pass_flip"]) == (given["scoreDelta"], False)
    suspected = status_and_code(capsys)
    threshold = given["config.diff.regressionThreshold"]
    project.configure(f"[diff]\nregression_threshold = {threshold}\n")

    status, code = status_and_code(capsys)

    assert suspected == ("regression", 1)
    assert {"status": status, "exit_code": code} == vector["expected"]


def giving(points: int) -> Judge:
    return lambda _: {"score": points, "reasoning": "so"}


def status_and_code(capsys: pytest.CaptureFixture[str]) -> tuple[str, int]:
    capsys.readouterr()
    code = run(["diff", "v1", "v2", "--fail-on", "any", "--format", "json"])
    (test,) = json.loads(capsys.readouterr().out)["tests"]
    return STATUSES[Change(test["change"])], code


JSON_OF_LABELS: Final = ["diff", "--before", "v1", "--after", "v2", "--json"]


@pytest.mark.vectors(
    "scenario.jsonl",
    "cli.diff",
    where=lambda case: case["input"]["argv"] == JSON_OF_LABELS and len(case["input"]) == 1,
    departures=COMMANDS,
    ignores=("argv",),
)
def test_json(vector: Vector, project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    for label in ("v1", "v2"):
        project.test("--label", label, tests=scenarios(True))
    capsys.readouterr()
    assert run(["diff", "v1", "v2", "--format", "json"]) == 0
    found = is_json(capsys.readouterr().out)
    assert {"stdout_is_json": found} == vector["expected"]


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.vectors("scenario.jsonl", "store.label", departures=LABELS, ignores=("resolve",))
def test_labels(vector: Vector, history: History) -> None:
    given, expected = vector["input"], vector["expected"]
    for label, name in given["saves"]:
        recording = history.run(name, label=label)
        recording.suite(tests=[Make.planned()], defaults={})
        recording.execution()
        recording.finish()
    db, labels = history.reader(), {name: label for label, name in given["saves"]}
    if "load" in given:
        assert find_run(db, given["load"]) == Ok(expected["loaded"])
        return
    pair = find_sides(db, None, None, lambda _: None)
    assert isinstance(pair, Err) == expected.get("raises", False)
    assert isinstance(pair, Ok)
    if given["resolve"] not in (["latest", "previous"], "previous"):
        unknown(f"resolve {given['resolve']}")
    if "latest" in expected:
        before, after = pair.value
        words = {"previous": labels[before], "latest": labels[after]}
        assert words == expected
    else:
        assert pair.value[0] == expected["previous"]
