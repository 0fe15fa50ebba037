"""Shards of a group, recorded apart and merged, are shown and reported as the one run they are."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from checked_server import LoopbackServer
from jsonschema import Draft202012Validator
from orders import comparable, order, serve_orders, write_orders
from workspace import KEY, new_workspace

from kindlm.cli import app
from kindlm.cli.commands import tail, test_workers
from kindlm.events.codec import new_event
from kindlm.events.run import RunOptions, RunResumed
from kindlm.reports.json_report import report_schema
from kindlm_store import stream_lock

NAMES = [f"k{number}" for number in range(7)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("CI", "true")
    with serve_orders() as server:
        yield server


@pytest.fixture
def report_of(kindlm: Any) -> Callable[..., Any]:
    """Return the JSON report of what is named, which the command is to end with `code` for."""

    def call(wanted: str, database: Path, *, code: int) -> Any:
        done = kindlm("report", wanted, "--format", "json", "--db", database)
        assert done.code == code, done.err
        report = json.loads(done.out)
        # That the schema is one is tested with the report: it takes far longer.
        Draft202012Validator(report_schema()).validate(report)
        return report

    return call


def test_merged_shards_report_what_one_run_would_have(
    kindlm: Any, here: Path, server: LoopbackServer, report_of: Any
) -> None:
    failing = ("k2", "k4")
    tests = [order(name, says="lost" if name in failing else "delivered") for name in NAMES]
    gates = {"passRateMin": 0.5, "judgeAvgMin": 0.8, "costMaxUsd": 1}
    write_orders(new_workspace(here), server, tests, gates=gates)
    whole = kindlm("test", "--runs", "2", "--reporter", "json", "--db", "one.db")
    files = []
    for index in (3, 1, 2):
        files.append(f"{index}.db")
        shard = ("--shard", f"{index}/3", "--run-group", "nightly", "--runs", "2")
        kindlm("test", *shard, "--db", files[-1])
    merged = kindlm("merge", *files, "--db", "all.db")
    assert merged.code == 0
    assert "See them with: kindlm runs --db all.db" in merged.err

    report = report_of("nightly", here / "all.db", code=0)

    group = report["run"]["group"]
    assert (group["count"], group["missing"], group["replaced"]) == (3, [], [])
    assert [shard["index"] for shard in group["shards"]] == [1, 2, 3]
    assert [test["name"] for test in report["tests"]] == NAMES
    assert report["run"]["status"] == "passed"
    assert alike(report) == alike(json.loads(whole.out))


def alike(report: dict[str, Any]) -> Any:
    """Return a report without ids and times, what only a group has, and what was told then."""
    report["run"] |= {"id": "-", "group": None, "statusThen": None}
    for gate in report["gates"]["results"]:
        gate["passedThen"] = None
    for test in report["tests"]:
        for execution in test["executions"]:
            execution["id"] = None
    return rounded(comparable(report))


def rounded(value: Any) -> Any:
    """Return a report without what the order of a sum makes of it."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return round(value, 9) if isinstance(value, float) else value


def test_a_gate_is_judged_over_all_shards(
    kindlm: Any, history: Any, shard: Any, report_of: Any
) -> None:
    gates = {"passRateMin": 0.9}
    shard("aaaa2222", "1/2", gates=gates)
    shard("bbbb2222", "2/2", gates=gates, failing=("t1",))
    alone = report_of("aaaa2222", history.path, code=0)
    assert alone["run"]["status"] == "passed"

    report = report_of("nightly", history.path, code=1)

    (gate,) = [gate for gate in report["gates"]["results"] if gate["name"] == "passRateMin"]
    assert (gate["actual"], gate["passed"]) == (pytest.approx(5 / 6), False)
    assert report["run"]["status"] == "failed"
    shown = kindlm("show", "nightly", "--db", history.path)
    assert shown.code == 1
    assert "FAILED: 1 test failed, gate passRateMin 0.83 < 0.90" in shown.out
    assert "kindlm show bbbb2222 1" in shown.out


def test_a_gate_may_fail_over_the_shards_that_each_of_them_passes(
    history: Any, shard: Any, report_of: Any
) -> None:
    # Each shard spends 3 × 0.001 USD.
    for run, part in (("aaaa2222", "1/2"), ("bbbb2222", "2/2")):
        shard(run, part, gates={"costMaxUsd": 0.004})
        assert report_of(run, history.path, code=0)["run"]["status"] == "passed"

    report = report_of("nightly", history.path, code=1)

    failed = [gate["name"] for gate in report["gates"]["results"] if not gate["passed"]]
    assert failed == ["costMaxUsd"]
    assert report["summary"]["costUsd"] == pytest.approx(0.006)
    assert report["summary"]["tests"]["passed"] == 6


def test_a_missing_and_an_unfinished_shard_are_named_and_the_group_has_not_passed(
    kindlm: Any, history: Any, shard: Any, report_of: Any
) -> None:
    shard("aaaa2222", "1/3")
    shard("cccc2222", "3/3", ends="interrupt")

    report = report_of("nightly", history.path, code=1)

    lacks = "shard 2/3 is not here, shard 3/3 was interrupted (run cccc2222)"
    assert report["run"]["status"] == "incomplete"
    assert report["run"]["group"]["missing"] == [2]
    assert [s["state"] for s in report["run"]["group"]["shards"]] == ["finished", "interrupted"]
    (error,) = report["errors"]
    assert (error["code"], error["message"]) == ("GROUP_INCOMPLETE", lacks)
    shown = kindlm("show", "nightly", "--db", history.path)
    assert shown.code == 1
    assert f"INCOMPLETE: {lacks}" in " ".join(shown.out.split())
    db = "--db kindlm.db"
    assert f"kindlm history merge DB {db} if they ran elsewhere" in shown.out
    assert f"else kindlm test --resume nightly {db}\n" in shown.out
    junit = kindlm("report", "nightly", "--format", "junit", "--db", history.path)
    assert junit.code == 1
    root = ET.fromstring(junit.out)
    errors = {
        case.get("name"): error.get("message")
        for case in root.iter("testcase")
        if (error := case.find("error")) is not None
    }
    assert errors == {
        "shard 2/3": "is not here",
        "shard 3/3": "was interrupted (run cccc2222)",
    }
    assert root.get("errors") == "2"


def test_nothing_of_a_group_that_lacks_a_shard_has_passed(
    kindlm: Any, history: Any, shard: Any, report_of: Any
) -> None:
    shard("aaaa2222", "1/2")
    report = report_of("nightly", history.path, code=1)
    assert not report["gates"]["passed"]
    assert [suite["status"] for suite in report["run"]["suites"]] == ["incomplete"]

    def written(form: str) -> str:
        return str(kindlm("report", "nightly", "--format", form, "--db", history.path).out)

    gate = ET.fromstring(written("junit")).find(".//testcase[@name='passRateMin']/skipped")
    assert gate is not None
    assert gate.get("message") == "so far 1.00 ≥ 0.95: shard 2/2 is not here"
    assert "| ⏳ | `support` | passRateMin | 1.00 ≥ 0.95 so far |" in written("markdown")
    assert "- support  3 tests" in written("terminal")
    assert "kindlm.yaml · so far" in written("html")


def test_evidence_of_a_group_that_lacks_a_shard_says_passed_of_nothing(
    kindlm: Any, history: Any, shard: Any
) -> None:
    shard("aaaa2222", "1/2")
    document = kindlm("report", "nightly", "--format", "compliance", "--db", history.path).out
    assert "**INCOMPLETE: shard 2/2 is not here" in document
    assert "PASS SO FAR" in document
    assert "PASS passRateMin" not in document
    assert "- Not selected for the shards that are here, and not shown here: 3 tests" in document


def test_of_a_shard_that_ran_twice_the_latest_that_finished_counts(
    kindlm: Any, history: Any, shard: Any, report_of: Any
) -> None:
    shard("aaaa2222", "1/2")
    shard("bbbb2222", "2/2", failing=("t1",))
    shard("cccc2222", "2/2")
    shard("dddd2222", "2/2", ends="interrupt")

    report = report_of("nightly", history.path, code=0)

    assert report["run"]["status"] == "passed"
    assert report["summary"]["executions"]["total"] == 6
    group = report["run"]["group"]
    assert [s["run"] for s in group["shards"]] == ["aaaa2222", "cccc2222"]
    assert [s["run"] for s in group["replaced"]] == ["bbbb2222", "dddd2222"]
    shown = kindlm("show", "nightly", "--db", history.path).out
    assert "Shard 2/2 ran again: run cccc2222 counts, not bbbb2222" in shown


@pytest.mark.parametrize(
    ("second", "changes", "differs"),
    [
        ("2/3", {}, "have different numbers of shards"),
        ("1/3", {}, "have different numbers of shards"),
        ("2/2", {"config_hash": "fedcba987654"}, "different configurations of kindlm.yaml"),
        ("2/2", {"path": "other.yaml"}, "ran different suites"),
        ("2/2", {"options": RunOptions(tags=["fast"])}, "different options (tags)"),
        ("2/2", {"options": RunOptions(keywords="fast")}, "different options (keywords)"),
    ],
)
def test_shards_of_different_plans_are_not_put_together(
    kindlm: Any, history: Any, shard: Any, second: str, changes: dict[str, Any], differs: str
) -> None:
    shard("aaaa2222", "1/2")
    shard("bbbb2222", second, **changes)
    for command in ("show", "report"):
        done = kindlm(command, "nightly", "--db", history.path)
        assert (done.code, done.out) == (1, "")
        said = " ".join(done.err.split())
        assert "shard 1/2 (run aaaa2222)" in said
        assert f"shard {second} (run bbbb2222)" in said
        assert differs in said
    assert kindlm("show", "bbbb2222", "--db", history.path).code == 0


def test_an_execution_of_a_group_is_shown_by_its_id(kindlm: Any, history: Any, shard: Any) -> None:
    shard("aaaa2222", "1/2", group="nightly 1")
    shard("bbbb2222", "2/2", group="nightly 1")
    shown = kindlm("show", "nightly 1", "bbbb2222-1", "--db", history.path)
    assert shown.code == 0
    assert "t1" in shown.out
    by_number = kindlm("show", "nightly 1", "1", "--db", history.path)
    assert by_number.code == 1
    assert "aaaa2222-1" in by_number.err
    assert "kindlm show 'nightly 1'" in by_number.err


@pytest.mark.parametrize(
    ("second", "changes", "shown"),
    [
        ("2/2", {}, "nightly"),
        ("2/2", {"ends": "interrupt"}, "nightly"),
        ("2/3", {}, "bbbb2222"),
        ("2/2", {"group": "weekly"}, "bbbb2222"),
    ],
)
def test_without_a_name_the_newest_run_is_its_whole_group(
    kindlm: Any, history: Any, shard: Any, second: str, changes: dict[str, Any], shown: str
) -> None:
    shard("aaaa2222", "1/2")
    shard("bbbb2222", second, **changes)
    for command in ("show", "report"):
        newest = kindlm(command, "--db", history.path)
        assert newest == kindlm(command, shown, "--db", history.path)
        assert shown in newest.out


def test_a_label_that_several_shards_have_means_their_group(
    kindlm: Any, history: Any, shard: Any
) -> None:
    for group, failing in (("monday", ()), ("tuesday", ("t1",))):
        for part in (1, 2, 3):
            shard(f"{group}{part}", f"{part}/3", group=group, failing=failing)
            history.label(f"{group}{part}", f"of {group}")
    history.label("monday1", "a part")
    for command in ("show", "report"):
        labelled = kindlm(command, "of tuesday", "--db", history.path)
        assert labelled.code == 1
        assert labelled == kindlm(command, "tuesday", "--db", history.path)
    diff = kindlm("diff", "of monday", "of tuesday", "--format", "json", "--db", history.path)
    assert diff.code == 1
    assert json.loads(diff.out)["after"]["id"] == "tuesday"
    part = kindlm("show", "a part", "--db", history.path)
    assert part == kindlm("show", "monday1", "--db", history.path)
    baseline = kindlm("baseline", "set", "of monday", "--db", history.path)
    assert "group monday is now the baseline" in baseline.err


@pytest.mark.parametrize(
    "command",
    [
        ("label", "nightly 1", "good"),
        ("label", "latest", "good"),
        ("review", "latest", "1", "pass"),
        ("export", "-o", "run.jsonl"),
        ("purge", "--run", "latest", "--yes"),
        ("rescore",),
        ("replay", "latest"),
    ],
)
def test_a_command_that_takes_one_run_refuses_a_group(
    kindlm: Any, history: Any, shard: Any, command: tuple[str, ...]
) -> None:
    shard("aaaa2222", "1/2", group="nightly 1")
    shard("bbbb2222", "2/2", group="nightly 1")
    done = kindlm(*command, "--db", history.path)
    assert done.code == 1
    assert "The group 'nightly 1' has several runs, but one run is needed" in done.err
    assert "kindlm runs" in done.err
    assert "kindlm show 'nightly 1'" in done.err


def test_a_group_of_several_projects_is_refused(kindlm: Any, history: Any, shard: Any) -> None:
    shard("aaaa2222", "1/2")
    history.run("bbbb2222", shard="2/2", group="nightly", project="garden").finish()
    done = kindlm("show", "nightly", "--db", history.path)
    assert done.code == 1
    assert "several projects: garden, shop" in done.err


def test_the_list_of_runs_names_the_group_to_type(kindlm: Any, history: Any, shard: Any) -> None:
    shard("aaaa2222", "1/2")
    shard("bbbb2222", "2/2", group=None)
    alone, one = kindlm("runs", "--db", history.path).out.splitlines()[1:]
    assert one.endswith("support · shard 1/2 of nightly")
    assert alone.endswith("support · shard 2/2")


def test_a_shard_as_a_baseline_names_its_group_and_what_to_do(
    kindlm: Any, history: Any, shard: Any
) -> None:
    shard("aaaa2222", "1/2")
    shard("bbbb2222", "2/2")
    said = " ".join(kindlm("baseline", "set", "bbbb2222", "--db", history.path).err.split())
    assert "3 of its 6 tests did not run in this run" in said
    assert "a whole group of shards" in said


def test_a_complete_group_is_a_baseline_like_a_run(kindlm: Any, history: Any, shard: Any) -> None:
    shard("aaaa2222", "1/2")
    said = kindlm("baseline", "set", "nightly", "--db", history.path)
    assert said.code == 1
    assert "The group nightly is incomplete: shard 2/2 is not here." in said.err
    shard("bbbb2222", "2/2")
    said = kindlm("baseline", "set", "nightly", "--db", history.path)
    assert "support: group nightly is now the baseline (no baseline before)." in said.err
    assert "did not run in it" not in said.err
    (listed,) = json.loads(
        kindlm("baseline", "list", "--format", "json", "--db", history.path).out
    )["baselines"]
    assert listed["runs"] == ["aaaa2222", "bbbb2222"]
    assert (listed["run"], listed["group"], listed["here"]) == ("aaaa2222", "nightly", True)
    assert " nightly " in kindlm("baseline", "list", "--db", history.path).out
    assert kindlm("baseline", "compare", "nightly", "--db", history.path).code == 0

    # A shard that runs again later is not what was chosen.
    shard("cccc2222", "2/2", failing=("t1", "t3"))
    shard("dddd2222", "1/2", group="later", failing=("t0",))
    shard("eeee2222", "2/2", group="later")
    for after in ("later", "dddd2222"):
        compared = json.loads(
            kindlm("baseline", "compare", after, "--format", "json", "--db", history.path).out
        )
        (comparison,) = compared["comparisons"]
        assert comparison["baseline"]["group"] == "nightly"
        changed = {test["name"]: test["change"] for test in comparison["diff"]["tests"]}
        assert changed["t0"] == "regressed"
        assert changed["t2"] == "unchanged"
        named = kindlm("diff", "baseline", after, "--format", "json", "--db", history.path)
        assert json.loads(named.out)["before"]["id"] == "nightly"
    by_default = kindlm("diff", "--db", history.path)
    assert "Compared with the baseline, group nightly." in by_default.err
    removed = kindlm("baseline", "remove", "--db", history.path)
    assert "support: group nightly is no longer the baseline." in removed.err


def test_purging_any_shard_of_the_baseline_is_warned_of(
    kindlm: Any, history: Any, shard: Any
) -> None:
    shard("aaaa2222", "1/2")
    shard("bbbb2222", "2/2")
    kindlm("baseline", "set", "nightly", "--db", history.path)
    for run in ("aaaa2222", "bbbb2222"):
        purged = kindlm("purge", "--run", run, "--yes", "--db", history.path)
        assert f"Some of these runs are baselines: {run} of support" in purged.err


@pytest.mark.parametrize(
    ("forced", "is_read"),
    [
        (RunOptions(force_resume=True), True),
        (RunResumed(by="me", planned=3, changed=("support",)), True),
        (RunResumed(by="me", planned=3, changed=("another",)), False),
        (RunResumed(by="me", planned=3), False),
    ],
)
def test_a_group_that_was_resumed_by_force_is_read_as_one_run(
    kindlm: Any, history: Any, shard: Any, forced: RunOptions | RunResumed, is_read: bool
) -> None:
    shard("aaaa2222", "1/2")
    options = forced if isinstance(forced, RunOptions) else None
    shard("bbbb2222", "2/2", options=options, config_hash="fedcba987654", ends="leave")
    if isinstance(forced, RunResumed):
        history.log.append("run/bbbb2222", [new_event(forced)])
    done = kindlm("show", "nightly", "--db", history.path)
    assert ("2 of 2 shards" in done.out) is is_read
    assert ("different configurations of kindlm.yaml" in " ".join(done.err.split())) is not is_read


@pytest.mark.parametrize("suites", [0, 1])
@pytest.mark.parametrize("killed", [1, 2])
def test_a_shard_that_was_killed_at_its_very_start_is_a_part_like_others(
    kindlm: Any, history: Any, make: Any, suites: int, killed: int
) -> None:
    for index in (1, 2):
        run = history.run(f"aaaa222{index}", shard=f"{index}/2", group="nightly", planned=2)
        for number in range(suites if index == killed else 2):
            tests = [make.planned(f"t{at}", selected=at == index - 1) for at in range(2)]
            run.suite(f"s{number}", path=f"s{number}.yaml", tests=tests)
            if index != killed:
                run.execution(f"t{index - 1}", assertions=(make.passed(),))
        (run.leave if index == killed else run.finish)()
    done = kindlm("show", "nightly", "--db", history.path)
    assert done.code == 1
    assert f"shard {killed}/2 was killed (run aaaa222{killed})" in " ".join(done.out.split())
    report = json.loads(kindlm("report", "nightly", "--format=json", "--db", history.path).out)
    assert report["run"]["status"] == "incomplete"
    assert report["summary"]["executions"]["passed"] == 2


def test_what_another_process_finishes_meanwhile_is_not_run_again(
    kindlm: Any, here: Path, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_orders(new_workspace(here), server, [order("k0"), order("k1")])
    for index, database in ((1, "all.db"), (2, "other.db")):
        shard = ("--shard", f"{index}/2", "--run-group", "nightly")
        assert kindlm("test", *shard, "--db", database).code == 0

    def taken_later(path: Path, stream: str) -> AbstractContextManager[None]:
        assert app.run(["history", "merge", "other.db", "--db", "all.db"]) == 0
        return stream_lock(path, stream)

    monkeypatch.setattr(test_workers, "stream_lock", taken_later)
    done = kindlm("test", "--resume", "nightly", "--db", "all.db")
    assert "Group nightly: 0 of 2 shards left." in done.err
    assert done.code == 0, done.err


def test_a_shard_that_another_process_runs_is_not_run_again(
    kindlm: Any, here: Path, server: LoopbackServer
) -> None:
    write_orders(new_workspace(here), server, [order("k0"), order("k1")])
    shard = ("--run-group", "nightly", "--db", "all.db", "--shard")
    assert kindlm("test", *shard, "1/2").code == 0
    assert kindlm("test", *shard, "2/2", "--max-time", "0").code == 1
    (going_on,) = json.loads(kindlm("runs", "--limit=1", "--format=json", "--db=all.db").out)[
        "runs"
    ]
    before = len(server.requests)
    with stream_lock(here / "all.db", f"run/{going_on['id']}"):
        done = kindlm("test", "--resume", "nightly", "--db", "all.db")
    assert done.code == 1
    assert "Group nightly is running already, in process " in done.err
    assert len(server.requests) == before
    assert kindlm("test", "--resume", "nightly", "--db", "all.db").code == 0


def test_a_group_whose_answers_came_from_the_history_says_how_to_finish_it(
    kindlm: Any, here: Path, server: LoopbackServer
) -> None:
    write_orders(new_workspace(here), server, [order("k0"), order("k1")])
    shard = ("--run-group", "nightly", "--db", "all.db", "--cache", "--shard")
    assert kindlm("test", *shard, "1/2").code == 0
    assert kindlm("test", *shard, "2/2", "--max-time", "0").code == 1
    done = kindlm("test", "--resume", "nightly", "--db", "all.db")
    assert done.code == 1
    assert "Group nightly ran with --cache, so workers cannot finish it." in done.err
    assert "--workers" not in done.err
    assert kindlm("test", "--resume", "--db", "all.db").code == 0
    assert kindlm("show", "nightly", "--db", "all.db").code == 0


def test_tail_looks_again_at_a_shard_that_ended_since_its_state_was_read(
    kindlm: Any, history: Any, shard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard("aaaa2222", "1/2")
    last = shard("bbbb2222", "2/2", ends="leave")
    shards_of = tail.shards_of

    def then_end(*of_group: Any) -> Any:
        with stream_lock(history.path, "run/bbbb2222"):
            found = shards_of(*of_group)
        monkeypatch.setattr(tail, "shards_of", shards_of)
        last.end()
        return found

    monkeypatch.setattr(tail, "shards_of", then_end)
    outcome = kindlm("tail", "nightly", "--db", history.path)
    assert (outcome.code, outcome.out.splitlines()[-1]) == (0, "PASSED: 6 tests passed")
