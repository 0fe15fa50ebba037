"""What other programs recorded comes in as a run, as far as it carries the facts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from examples import examples
from kindlm.cli.foreign_import import read_results
from kindlm.errors import Err, Ok

ENTRY = {
    "passRate": 0.6667,
    "outputText": "Hello there.",
    "failureCodes": ["CONTAINS_FAILED", "SOMETHING_ELSE"],
    "latencyAvgMs": 100,
    "costUsd": 0.03,
    "runCount": 3,
}
BASELINE = {
    "version": "1",
    "suiteName": "support",
    "createdAt": "2026-01-15T10:00:00.000Z",
    "results": {"greets::gpt": ENTRY},
}
TRACE = {
    "session_id": "s",
    "steps": [
        {
            "step_id": "1",
            "step_name": "look",
            "tool_name": "lookup",
            "parameters": {"id": 7},
            "output": {"status": "late"},
            "success": True,
            "metrics": {"latency": 5, "cost": 0.001},
        },
        {"tool_name": "mail", "parameters": {}, "output": None, "error": "no server"},
    ],
    "final_output": "It is late.",
    "metrics": {
        "total_cost": 0.02,
        "total_latency": 250.5,
        "total_tokens": {"input_tokens": 30, "output_tokens": 12, "cached_tokens": 0},
    },
}
GOLDEN = {
    "metadata": {"test_name": "late order", "blessed_at": "2026-02-01T08:00:00", "score": 92.5},
    "trace": TRACE,
    "tool_sequence": ["lookup", "mail"],
    "output_hash": "abcdef01",
}
RESULTS = [
    {
        "test_case": "late order",
        "passed": passed,
        "score": score,
        "min_score": 80,
        "timestamp": f"2026-02-0{day}T08:00:00",
        "adapter_name": "http",
        "input_query": "Where is order 7?",
        "evaluations": {"cost": {"threshold": float("inf")}},
        "trace": TRACE,
    }
    for passed, score, day in ((True, 90, 2), (False, 40.5, 3))
]


def written(folder: Path, value: Any, name: str = "file.json") -> Path:
    file = folder / name
    file.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return file


@pytest.fixture
def bring_in(kindlm: Any, here: Path) -> Callable[..., Any]:
    """Import a file into a history; return the report of the run."""

    def run(value: Any, *options: str) -> Any:
        outcome = kindlm("import", written(here, value), *options, "--db", here / "h.db")
        assert outcome.code == 0, outcome.err
        (run,) = re.findall(r"kindlm show (\S+)", outcome.err)
        shown = kindlm("report", run, "--format", "json", "--db", here / "h.db").out
        assert kindlm("verify", "--db", here / "h.db").code == 0
        assert kindlm("rebuild", "--db", here / "h.db").code == 0
        assert kindlm("report", run, "--format", "json", "--db", here / "h.db").out == shown
        return json.loads(shown)

    return run


@pytest.mark.parametrize(
    ("share", "count", "passed"), [(0.9, 3, 2), (0.667, 3, 2), (0.571, 7, 4), (0.999, 1000, 999)]
)
def test_a_share_that_the_repeats_cannot_have_is_not_rounded_up(
    bring_in: Any, share: float, count: int, passed: int
) -> None:
    entry = {**ENTRY, "passRate": share, "runCount": count}
    report = bring_in({**BASELINE, "results": {"greets::gpt": entry}})
    assert report["summary"]["executions"]["passed"] == passed


def test_a_baseline_is_a_run_of_its_time(bring_in: Any) -> None:
    report = bring_in(BASELINE)
    assert (report["run"]["mode"], report["run"]["status"]) == ("imported", "failed")
    assert report["run"]["startedAt"].startswith("2026-01-15T10:00:00")
    (test,) = report["tests"]
    assert (test["suite"], test["name"], test["target"]) == ("support", "greets", "gpt")
    assert test["passRate"] == pytest.approx(2 / 3)
    assert [e["status"] for e in test["executions"]] == ["passed", "passed", "failed"]
    assert [e["output"] for e in test["executions"]] == ["Hello there.", None, None]
    assert sum(e["costUsd"] for e in test["executions"]) == pytest.approx(0.03)
    assert {e["latencyMs"] for e in test["executions"]} == {100}
    failures = [(a["label"], a["failureCode"]) for a in test["executions"][2]["assertions"]]
    assert failures == [("CONTAINS_FAILED", "CONTAINS_FAILED"), ("SOMETHING_ELSE", None)]
    # The answers of two repeats are unknown, and so is what they cost together.
    assert report["summary"]["costUsd"] is None


def test_what_a_baseline_does_not_say_stays_open(bring_in: Any) -> None:
    report = bring_in({**BASELINE, "createdAt": "soon", "results": {"a::b::m": {}}})
    (test,) = report["tests"]
    assert (test["name"], test["target"], test["status"]) == ("a::b", "m", "skipped")
    (execution,) = test["executions"]
    assert (execution["output"], execution["costUsd"]) == (None, None)


def test_a_file_without_any_result_has_not_passed(kindlm: Any, here: Path) -> None:
    empty = {**BASELINE, "results": {"greets::gpt": {**ENTRY, "passRate": None}}}
    assert kindlm("import", written(here, empty), "--db", here / "h.db").code == 0
    listed = json.loads(kindlm("runs", "--format", "json", "--db", here / "h.db").out)["runs"]
    assert [run["status"] for run in listed] == ["failed"]


@pytest.mark.parametrize("count", [None, 0])
def test_a_baseline_without_a_number_of_repeats_has_one(bring_in: Any, count: Any) -> None:
    entry = {**ENTRY, "passRate": 1, "runCount": count}
    (test,) = bring_in({**BASELINE, "results": {"greets::gpt": entry}})["tests"]
    assert [each["status"] for each in test["executions"]] == ["passed"]


def test_a_golden_trace_has_its_calls_and_its_score(bring_in: Any) -> None:
    report = bring_in(GOLDEN, "--suite", "orders")
    (test,) = report["tests"]
    assert (test["suite"], test["name"], test["status"]) == ("orders", "late order", "passed")
    (execution,) = test["executions"]
    assert execution["output"] == "It is late."
    assert execution["toolCalls"] == [
        {"name": "lookup", "arguments": {"id": 7}, "response": {"status": "late"}},
        {"name": "mail", "arguments": {}, "response": {"error": "no server"}},
    ]
    assert execution["tokens"] == {"input": 30, "output": 12}
    assert (execution["latencyMs"], execution["costUsd"]) == (250.5, 0.02)
    assert [a["score"] for a in execution["assertions"]] == [0.925]


def test_a_latency_that_the_file_does_not_name_is_unknown(bring_in: Any) -> None:
    trace = {**TRACE, "metrics": {"total_cost": 0.02}}
    report = bring_in({**GOLDEN, "trace": trace}, "--suite", "orders")
    assert report["summary"]["latencyAvgMs"] is None
    (execution,) = report["tests"][0]["executions"]
    assert execution["latencyMs"] is None


def test_results_of_one_test_are_its_repeats(bring_in: Any) -> None:
    report = bring_in(RESULTS)
    (test,) = report["tests"]
    assert (test["target"], test["flaky"]) == ("http", True)
    assert [e["status"] for e in test["executions"]] == ["passed", "failed"]
    scored = [e["assertions"][0] for e in test["executions"]]
    assert [(a["outcome"], a["score"]) for a in scored] == [("passed", 0.9), ("failed", 0.405)]
    assert report["summary"]["costUsd"] == pytest.approx(0.04)
    assert report["run"]["status"] == "failed"


def test_results_of_different_models_are_those_of_different_targets(bring_in: Any) -> None:
    first, second = RESULTS
    other = {**second, "trace": {**second["trace"], "model_id": "gpt-4o"}}
    tests = bring_in([first, other])["tests"]
    assert [(test["target"], test["status"]) for test in tests] == [
        ("http", "passed"),
        ("gpt-4o", "failed"),
    ]


def test_twice_is_the_same_run(kindlm: Any, here: Path) -> None:
    file = written(here, BASELINE)
    first = kindlm("import", file, "--db", here / "h.db")
    again = kindlm("import", file, "--db", here / "h.db")
    assert again.code == 0
    assert "0 events imported" in again.err
    assert first.err.splitlines()[-1] == again.err.splitlines()[-1]
    same = kindlm("import", file, "--suite", "support", "--db", here / "h.db")
    assert "0 events imported" in same.err
    other = kindlm("import", file, "--suite", "shop", "--db", here / "h.db")
    assert "0 events imported" not in other.err
    run = other.err.split()[-3]
    assert "shop" in kindlm("show", run, "--db", here / "h.db").out


def test_a_file_becomes_the_baseline_of_the_suite_it_is_of(
    kindlm: Any, history: Any, make: Any, here: Path
) -> None:
    writer = history.run()
    writer.suite(tests=[make.planned()], config='{"config": {"kindlm": 1}}')
    writer.execution(output="Hello there.")
    writer.finish()
    file = written(here, BASELINE)
    outcome = kindlm("baseline", "set", file, "--label", "old", "--db", history.path)
    assert outcome.code == 0, outcome.err
    assert kindlm("baseline", "set", file, "--db", history.path).code == 0
    listed = json.loads(kindlm("baseline", "list", "--format", "json", "--db", history.path).out)
    found = {b["label"]: b["run"] for b in listed.get("baselines", listed)}
    assert len(found) == 2
    assert len(set(found.values())) == 1
    compared = kindlm("baseline", "compare", "latest", "--db", history.path)
    assert compared.code == 0, compared.out
    assert "improved" in compared.out
    assert "added" not in compared.out  # a baseline file has no configuration


def test_a_run_comes_before_a_file_of_its_name(
    kindlm: Any, history: Any, make: Any, here: Path
) -> None:
    writer = history.run("k3f9x2ab")
    writer.suite(tests=[make.planned()])
    writer.execution()
    writer.finish()
    written(here, BASELINE).rename("k3f9x2ab")
    outcome = kindlm("baseline", "set", "k3f9x2ab", "--db", history.path)
    assert outcome.code == 0, outcome.err
    assert "run k3f9x2ab is now the baseline" in outcome.err
    assert "imported" not in outcome.err


def test_a_golden_trace_finds_the_test_that_is_known(
    kindlm: Any, history: Any, make: Any, here: Path
) -> None:
    writer = history.run()
    writer.suite("tests/orders", tests=[make.planned("late order", "shop")])
    writer.execution("late order", "shop")
    writer.finish()
    assert kindlm("baseline", "set", written(here, GOLDEN), "--db", history.path).code == 0
    compared = kindlm("baseline", "compare", "latest", "--db", history.path)
    assert "tests/orders" in compared.err
    assert "removed" not in compared.out


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("{", "BASELINE_CORRUPT"),
        ({**BASELINE, "results": []}, "BASELINE_CORRUPT"),
        ({**BASELINE, "results": {"no target": {}}}, "BASELINE_CORRUPT"),
        ({**BASELINE, "version": "2"}, "BASELINE_VERSION_MISMATCH"),
        ({**GOLDEN, "metadata": {**GOLDEN["metadata"], "version": 2}}, "BASELINE_VERSION_MISMATCH"),
        ({**GOLDEN, "trace": None}, "BASELINE_CORRUPT"),
        ([{"test_case": "x", "trace": {}}], "BASELINE_CORRUPT"),
    ],
)
def test_what_cannot_be_read_is_said(kindlm: Any, here: Path, value: Any, code: str) -> None:
    file = written(here, value)
    outcome = kindlm("import", file, "--db", here / "h.db")
    assert outcome.code == 1
    assert f"#{code.lower()}" in outcome.err
    assert "itself failed" not in outcome.err
    assert not (here / "h.db").exists()


def test_a_run_that_was_imported_is_rescored_by_a_file_that_is_named(
    kindlm: Any, here: Path
) -> None:
    kindlm("import", written(here, BASELINE), "--db", here / "h.db")
    run = json.loads(kindlm("runs", "--format", "json", "--db", here / "h.db").out)["runs"][0]
    outcome = kindlm("rescore", run["id"], "--db", here / "h.db")
    assert outcome.code == 1
    assert f"Run {run['id']} was imported" in outcome.err
    assert f"kindlm rescore {run['id']} -c FILE" in outcome.err
    assert "kindlm init" not in outcome.err


@pytest.mark.parametrize("value", [BASELINE, GOLDEN], ids=["KindLM", "EvalView"])
def test_an_answer_without_the_message_before_it_is_scored_and_is_no_test(
    kindlm: Any, here: Path, value: Any
) -> None:
    kindlm("import", written(here, value), "--db", here / "h.db")
    db = ("--db", here / "h.db")
    (run,) = json.loads(kindlm("runs", "--format", "json", *db).out)["runs"]
    test = json.loads(kindlm("report", run["id"], "--format", "json", *db).out)["tests"][0]
    suite = {
        "kindlm": 1,
        "suite": {"name": test["suite"]},
        "agent": "http://127.0.0.1:9",
        "tests": [
            {"name": test["name"], "input": "Hi", "expect": {"output": {"contains": "no such"}}}
        ],
    }
    (here / "now.yaml").write_text(json.dumps(suite), encoding="utf-8")
    scored = kindlm("rescore", run["id"], "-c", here / "now.yaml", *db)
    assert (scored.code, "itself failed" in scored.err) == (1, False), scored.err
    written_test = kindlm("gen", "--from-run", run["id"], "1", *db)
    assert written_test.code == 1
    assert "It has no message of a user" in written_test.err


def test_a_baseline_can_be_what_a_history_begins_with(kindlm: Any, here: Path) -> None:
    (here / "notes.txt").write_text("nothing", encoding="utf-8")
    refused = kindlm("baseline", "set", here / "notes.txt", "--db", here / "new.db")
    assert refused.code == 1
    assert not (here / "new.db").exists()
    outcome = kindlm("baseline", "set", written(here, BASELINE), "--db", here / "new.db")
    assert outcome.code == 0, outcome.err
    assert "support" in kindlm("baseline", "list", "--db", here / "new.db").out


@pytest.mark.parametrize(
    ("value", "test", "place"),
    [
        (BASELINE, "another", ("shop", "support", "gpt")),
        (GOLDEN, "late order", ("shop", "support", "claude")),
        (GOLDEN, "another", ("here", "evalview", "agent")),
    ],
)
def test_a_file_is_of_a_suite_that_has_not_run_yet(
    kindlm: Any, here: Path, monkeypatch: pytest.MonkeyPatch, value: Any, test: str, place: Any
) -> None:
    monkeypatch.setenv("KINDLM_PROJECT", "here")
    suite = {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "support"},
        "providers": {"openai": {"apiKeyEnv": "OPENAI_API_KEY"}},
        "models": [{"id": "claude", "provider": "openai", "model": "gpt-4o"}],
        "tests": [{"name": test, "input": "Hi", "expect": {"output": {"contains": "late"}}}],
    }
    (here / "kindlm.yaml").write_text(json.dumps(suite), encoding="utf-8")
    assert kindlm("import", written(here, value), "--db", here / "h.db").code == 0
    report = json.loads(kindlm("report", "--format", "json", "--db", here / "h.db").out)
    (found,) = report["tests"]
    assert (report["run"]["project"], found["suite"], found["target"]) == place


@pytest.mark.parametrize("value", [{"some": "thing"}, [1], "null"])
def test_a_file_without_an_owner_is_refused(kindlm: Any, here: Path, value: Any) -> None:
    outcome = kindlm("import", written(here, value), "--db", here / "h.db")
    assert outcome.code == 1
    assert "does not say that this file holds events" in outcome.err
    assert "kindlm import-suite FILE" in outcome.err


def test_a_folder_is_no_file_to_import(kindlm: Any, here: Path) -> None:
    outcome = kindlm("import", here, "--db", here / "h.db")
    assert (outcome.code, outcome.err.split("\n")[1].strip()) == (1, "Name a file.")


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    entry=st.dictionaries(st.sampled_from([*ENTRY]), anything),
    metrics=st.dictionaries(st.sampled_from([*TRACE["metrics"]]), anything),  # type: ignore[misc]
    trace=st.dictionaries(st.sampled_from([*TRACE]), anything),
)
def test_whatever_is_in_the_fields_is_read_or_refused(
    tmp_path: Path, entry: Any, metrics: Any, trace: Any
) -> None:
    for value in (
        {**BASELINE, "results": {"t::m": entry}},
        {**GOLDEN, "trace": {**TRACE, "metrics": metrics}},
        {**GOLDEN, "trace": {**TRACE, **trace}},
    ):
        assert isinstance(read_results(written(tmp_path, value)), Ok | Err)


@pytest.mark.parametrize(
    "value",
    [
        {**BASELINE, "suiteName": "\ud800"},
        {**BASELINE, "results": {"\ud800::gpt": ENTRY}},
        {**GOLDEN, "metadata": {"test_name": "\ud800"}},
    ],
)
def test_a_name_that_is_no_text_is_refused(kindlm: Any, here: Path, value: Any) -> None:
    outcome = kindlm("import", written(here, value), "--db", here / "h.db")
    assert outcome.code == 1
    assert "itself failed" not in outcome.err
    assert "cannot be read" in outcome.err


@pytest.mark.parametrize(
    "value",
    [
        {**BASELINE, "results": {"greets::gpt": {**ENTRY, name: 10**400}}}
        for name in ("latencyAvgMs", "costUsd", "runCount")
    ]
    + [
        {**GOLDEN, "trace": {**TRACE, "metrics": {"total_cost": number}}}
        for number in (9e15, -1, "free")
    ],
)
def test_a_number_that_cannot_be_is_refused(kindlm: Any, here: Path, value: Any) -> None:
    outcome = kindlm("import", written(here, value), "--db", here / "h.db")
    assert outcome.code == 1
    assert "itself failed" not in outcome.err
    assert "cannot be read" in outcome.err


def test_what_a_skipped_test_cost_is_no_matter_of_the_page(kindlm: Any, here: Path) -> None:
    """Nobody knows what it cost: it is not among the most expensive."""
    skipped = {**BASELINE, "results": {"greets::gpt": {**ENTRY, "passRate": None}}}
    assert kindlm("import", written(here, skipped), "--db", here / "h.db").code == 0
    page = kindlm("report", "latest", "--format", "html", "--db", here / "h.db")
    assert page.code == 0, page.err
    assert "Most expensive" not in page.out


def test_a_secret_of_the_project_is_removed_from_what_is_imported(
    bring_in: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "of-the-environment-1")
    written(here, "SHOP_TOKEN=of-the-file-22\n", ".env")
    said = "of-the-environment-1 and of-the-file-22"
    report = bring_in({**GOLDEN, "trace": {**TRACE, "final_output": said}})
    assert "[redacted] and [redacted]" in json.dumps(report)
    for file in here.glob("h.db*"):
        assert not file.is_file() or b"of-the-" not in file.read_bytes()
