"""`kindlm runs`: the list of runs, and what to say when there is none."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer
from small_disk import mounted

from kindlm.cli.options import parse_since
from kindlm.events.run import GitState
from kindlm_store import stream_lock

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def record(history: Any, make: Any, run: str, *, suite: str = "support", **started: Any) -> None:
    writer = history.run(run, **started)
    writer.suite(suite, tests=[make.planned()])
    writer.execution(assertions=(make.passed(),))
    writer.finish()


def test_the_newest_run_is_first(kindlm: Any, history: Any, make: Any) -> None:
    record(history, make, "k3f9x2ab")
    record(history, make, "m2aaaaaa", suite="greetings")
    history.label("m2aaaaaa", "second")
    outcome = kindlm("runs", "--db", history.path)
    assert outcome.code == 0
    header, first, second = outcome.out.splitlines()
    assert header.split()[:3] == ["RUN", "LABEL", "WHEN"]
    assert first.split()[:2] == ["m2aaaaaa", "second"]
    assert "passed" in first
    assert "main c0ffeec0" in first
    assert first.endswith("greetings")
    assert second.startswith("k3f9x2ab")


def test_a_history_without_runs_says_how_to_record_one(kindlm: Any, history: Any) -> None:
    outcome = kindlm("runs", "--db", history.path)
    assert (outcome.code, outcome.out) == (0, "")
    record, look = (f"kindlm {name} --db {history.path.name}" for name in ("test", "runs"))
    assert outcome.err == f"No run matches. Record one: {record}. All runs: {look}\n"


def test_columns_are_aligned_whatever_the_label(kindlm: Any, history: Any, make: Any) -> None:
    from rich.cells import cell_len

    record(history, make, "k3f9x2ab", label="日本語")
    record(history, make, "m2aaaaaa", label="x\x1b[31m\nred")
    lines = kindlm("runs", "--db", history.path).out.splitlines()
    assert "\x1b" not in "".join(lines)
    assert len(lines) == 3
    places = {cell_len(line[: line.index(" passed ")]) for line in lines[1:]}
    assert len(places) == 1


def test_programs_get_json(kindlm: Any, history: Any, make: Any) -> None:
    record(history, make, "k3f9x2ab", label="one", suite="a, b")
    found = json.loads(kindlm("runs", "--db", history.path, "--format", "json").out)
    (run,) = found["runs"]
    assert (run["id"], run["label"], run["suites"]) == ("k3f9x2ab", "one", ["a, b"])
    assert (run["status"], run["passed"]) == ("passed", True)
    assert run["executions"] == {"passed": 1, "total": 1}
    assert run["costUsd"] == 0.001
    assert run["git"]["branch"] == "main"


@pytest.mark.parametrize(
    ("costs", "shown"),
    [((0.5, 0.25), "$0.75"), ((0.5, None), "$0.50 + unknown"), ((None, None), "unknown")],
)
def test_an_unknown_part_of_a_cost_is_shown(
    kindlm: Any, history: Any, make: Any, costs: tuple[float | None, ...], shown: str
) -> None:
    writer = history.run("k3f9x2ab")
    writer.suite(tests=[make.planned(repeat=2)])
    for repeat, usd in enumerate(costs, start=1):
        writer.execution(repeat=repeat, cost_usd=usd, assertions=(make.passed(),))
    writer.finish()
    header, line, *_ = kindlm("runs", "--db", history.path).out.splitlines()
    assert line[header.index("COST") : header.index("GIT")].strip() == shown
    (run,) = json.loads(kindlm("runs", "--db", history.path, "--format", "json").out)["runs"]
    report = kindlm("report", "--db", history.path, "--format", "json")
    for told in (run, json.loads(report.out)["summary"]):
        known = [usd for usd in costs if usd is not None]
        assert told["costUsd"] == (sum(known) if known else None)
        assert told["unknownCosts"] == costs.count(None)


def test_gates_that_nobody_wrote_are_counted_where_they_fail(kindlm: Any, here: Path) -> None:
    suite = """\
kindlm: 1
providers: { fake: { type: scripted, replies: [hello] } }
models: [{ id: agent, provider: fake, model: m }]
tests: [{ name: greets, input: Hi, expect: { output: { contains: WORD } } }]
"""

    def gates(word: str, more: str = "") -> str:
        (here / "kindlm.yaml").write_text(suite.replace("WORD", word) + more, "utf-8")
        kindlm("test")
        header, newest, *_ = kindlm("runs").out.splitlines()
        return newest[header.index("GATES") : header.index("COST")].strip()

    assert gates("hello") == ""
    assert gates("bye") == "0/1"
    assert gates("hello", "gates: { passRateMin: 1 }") == "1/1"
    assert gates("hello", "gates: { passRateMin: 1, latencyMaxMs: 0.0001 }") == "1/2"


def test_runs_can_be_selected(kindlm: Any, history: Any, make: Any) -> None:
    record(history, make, "k3f9x2ab")
    record(history, make, "m2aaaaaa", suite="greetings")

    def listed(*options: str) -> list[str]:
        outcome = kindlm("runs", "--db", history.path, "--format", "json", *options)
        return [run["id"] for run in json.loads(outcome.out)["runs"]]

    assert listed("--limit", "1") == ["m2aaaaaa"]
    assert listed("--suite", "support") == ["k3f9x2ab"]
    assert listed("--since", "1d") == ["m2aaaaaa", "k3f9x2ab"]
    assert listed("--since", "2999-01-01") == []


def test_uncommitted_changes_are_marked(kindlm: Any, history: Any, make: Any) -> None:
    for run, dirty in (("aaaa2222", True), ("bbbb3333", False)):
        git = GitState(commit="a" * 40, branch="main", dirty=dirty)
        record(history, make, run, git=git)
    _, newest, oldest = kindlm("runs", "--db", history.path).out.splitlines()
    assert "main aaaaaaaa+ " in oldest
    assert "main aaaaaaaa " in newest
    report = json.loads(kindlm("runs", "--format", "json", "--db", history.path).out)
    assert [run["git"]["dirty"] for run in report["runs"]] == [False, True]


def test_a_full_disk_is_called_by_its_name(
    kindlm: Any, history: Any, make: Any, tmp_path: Path
) -> None:
    for run in ("aaaa2222", "bbbb3333"):
        record(history, make, run)
    history.close()
    with mounted(tmp_path / "small", "1m") as folder:
        database = folder / "full.db"
        database.write_bytes(history.path.read_bytes())
        with suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        commands = (
            ("runs",),
            ("diff",),
            ("purge", "--run", "aaaa", "-y"),
            ("token", "create", "--name", "ci"),
        )
        for command in commands:
            outcome = kindlm(*command, "--db", database)
            assert outcome.code == 1
            assert "There is no space left on the disk" in outcome.err
            assert "permissions" not in outcome.err


def test_what_became_of_a_run_is_reported(kindlm: Any, history: Any) -> None:
    history.run("interrup").interrupt()
    history.run("killedrn").leave()
    history.run("runninrn").leave()
    with stream_lock(history.path, "run/runninrn"):
        outcome = kindlm("runs", "--db", history.path, "--format", "json")
    statuses = {run["id"]: run["status"] for run in json.loads(outcome.out)["runs"]}
    assert statuses == {
        "interrup": "interrupted",
        "killedrn": "killed",
        "runninrn": "running",
    }


def test_without_a_history_none_is_made(kindlm: Any, here: Path) -> None:
    for command in ("runs", "show", "report", "verify", "rebuild", "browse"):
        outcome = kindlm(command)
        assert outcome.code == 1
        assert outcome.out == ""
        assert "kindlm test" in outcome.err
    assert list(here.iterdir()) == []


def test_the_history_of_the_project_is_found(
    kindlm: Any, history: Any, make: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(history, make, "k3f9x2ab")
    (here / "kindlm.toml").write_text('[store]\npath = "kindlm.db"\n', "utf-8")
    (here / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(here / "deep" / "down")
    assert "k3f9x2ab" in kindlm("runs").out
    monkeypatch.setenv("KINDLM_DB", "elsewhere.db")
    assert kindlm("runs").code == 1


def test_a_file_that_is_no_history_is_refused(kindlm: Any, here: Path) -> None:
    (here / "notes.txt").write_text("not a database at all" * 100, "utf-8")
    outcome = kindlm("runs", "--db", "notes.txt")
    assert outcome.code == 1
    assert "is not an SQLite database" in outcome.err
    assert (here / "notes.txt").read_text("utf-8").startswith("not a database")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30d", "2026-10-22T12:00:00.000000Z"),
        ("2h", "2026-11-21T10:00:00.000000Z"),
        ("2026-11-01T00:00:00+02:00", "2026-10-31T22:00:00.000000Z"),
        ("2026-11-01T00:00:00Z", "2026-11-01T00:00:00.000000Z"),
        ("0226-01-31T00:00:00+00:00", "0226-01-31T00:00:00.000000Z"),
    ],
)
def test_points_in_time(text: str, expected: str) -> None:
    assert parse_since(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "30", "d", "999999w", "2026-13-01", "-1d"])
def test_what_is_no_point_in_time_is_refused(text: str) -> None:
    with pytest.raises(typer.Exit):
        parse_since(text, NOW)
