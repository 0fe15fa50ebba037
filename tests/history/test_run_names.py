"""Which runs the words of a comparison mean."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from recorded_history import History, Make

from kindlm.errors import Err, KindlmError, Ok
from kindlm.events.codec import new_event
from kindlm.events.run import BaselineSet, GitState
from kindlm.history.run_names import RunNames, find_run_or_group, find_sides

MAIN, OLD = "a1" * 20, "b2" * 20


def record(history: History, run: str, suite: str = "support", **started: Any) -> None:
    writer = history.run(run, **started)
    writer.suite(suite, tests=[Make.planned()])
    writer.execution()
    writer.finish()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """Two suites in turns, a run that was stopped, and one that was rescored."""
    history = History(tmp_path_factory.mktemp("runs") / "kindlm.db")
    record(history, "r1first0", git=GitState(commit=OLD, branch="main", dirty=False))
    record(history, "s1other0", suite="billing", git=None)
    record(history, "r2second", label="v1.2", git=GitState(commit=MAIN, branch="main", dirty=False))
    record(history, "s2other0", suite="billing", git=None)
    record(history, "r3dirty0", git=GitState(commit=MAIN, branch="main", dirty=True))
    record(history, "r4rescor", mode="rescored", source_run="r3dirty0")
    stopped = history.run("r5stoppd")
    stopped.suite(tests=[Make.planned()])
    stopped.interrupt()
    yield history
    history.close()


def find(runs: History, before: str | None = None, after: str | None = None) -> Any:
    commits = {"main": MAIN, "v1": OLD, "empty": "c3" * 20}
    found = find_sides(runs.reader(), before, after, commits.get)
    return tuple(found.value) if isinstance(found, Ok) else found.error


def test_by_default_the_two_newest_runs_of_a_suite_that_finished_live(runs: History) -> None:
    assert find(runs) == ("r2second", "r3dirty0")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("r1first0", None, ("r1first0", "r3dirty0")),
        ("r1", "r2", ("r1first0", "r2second")),
        ("v1.2", "r3", ("r2second", "r3dirty0")),
        ("s1other0", None, ("s1other0", "s2other0")),
        (None, "s2other0", ("s1other0", "s2other0")),
        (None, "r5stoppd", ("r3dirty0", "r5stoppd")),
        ("r3dirty0", "r4rescor", ("r3dirty0", "r4rescor")),
        ("latest~2", None, ("r1first0", "r3dirty0")),
        ("latest~0", "latest", ("r3dirty0", "r3dirty0")),
        ("previous", "latest~1", ("r1first0", "r2second")),
        ("latest", "previous", ("r3dirty0", "r2second")),
    ],
)
def test_names_and_words(runs: History, before: Any, after: Any, expected: Any) -> None:
    assert find(runs, before, after) == expected


def test_a_commit_means_its_clean_run_if_there_is_one(runs: History) -> None:
    assert find(runs, "git:main", "r3dirty0") == ("r2second", "r3dirty0")
    assert find(runs, "git:v1") == ("r1first0", "r3dirty0")


def test_a_recorded_commit_is_known_without_git(runs: History) -> None:
    assert find(runs, "git:b2b2b2b") == ("r1first0", "r3dirty0")


@pytest.mark.parametrize(
    ("before", "message", "hint"),
    [
        ("nothing", "There is no run 'nothing'", "kindlm runs"),
        ("main", "There is no run 'main'", "this branch: kindlm diff --base main"),
        ("r", "'r' matches several runs", "more characters"),
        ("latest~9", "the history has 3 finished runs of 'support'", "kindlm test"),
        ("git:gone", "'gone', which is not a known git revision", "kindlm runs"),
        ("git:", "'', which is not a known git revision", "kindlm runs"),
        ("git:empty", "commit c3c3c3c3", "kindlm runs"),
    ],
)
def test_errors_say_what_there_is(runs: History, before: str, message: str, hint: str) -> None:
    error = find(runs, before)
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize(("before", "after"), [("", None), (None, ""), ("latest", ""), ("r1", "")])
def test_a_variable_that_was_never_set_names_no_run(
    runs: History, before: str | None, after: str | None
) -> None:
    error = find(runs, before, after)
    assert "There is no run ''" in error.message


def test_an_unset_name_beside_a_branch_is_no_run(runs: History) -> None:
    found = RunNames(runs.reader()).find_changed("", "main", "main")
    assert isinstance(found, Err)
    assert "There is no run ''" in found.error.message


def test_the_baseline_is_that_of_the_other_side(history: History) -> None:
    for run in ("r1first0", "r2second", "r3third0"):
        record(history, run)
    record(history, "s2other0", suite="billing")
    assert "No baseline is set for 'support'" in find(history, "baseline", "r3third0").message
    chosen = BaselineSet(project="shop", suite="support", run="r1first0", label=None, by="me")
    history.log.append("journal/b", [new_event(chosen)])
    assert find(history, "baseline", "r3third0") == ("r1first0", "r3third0")
    assert "No baseline" in find(history, "baseline").message


@pytest.fixture
def set_baseline(history: History) -> Any:
    """Return a function that chooses a run, or shards, as the baseline of a suite."""

    def choose(suite: str, *runs: str) -> None:
        shards = tuple(runs) if len(runs) > 1 else None
        chosen = BaselineSet(
            project="shop", suite=suite, run=runs[0], label=None, by="me", runs=shards
        )
        history.log.append("journal/b", [new_event(chosen)])

    return choose


def record_both(history: History, *runs: str) -> None:
    for run in runs:
        writer = history.run(run)
        for suite in ("support", "billing"):
            writer.suite(suite, tests=[Make.planned()])
            writer.execution()
        writer.finish()


def test_different_baselines_are_never_passed_over_for_the_run_before(
    history: History, set_baseline: Any
) -> None:
    record_both(history, "r1first0", "r2second", "r3third0", "r4fourth")
    set_baseline("support", "r1first0")
    set_baseline("billing", "r2second")
    for before in (None, "baseline"):
        error = find(history, before)
        assert "different baselines: 'billing' has run r2second, 'support'" in error.message
        assert "kindlm baseline compare" in error.hint
        assert "previous" in error.hint
    # One that is the baseline of a part of its suites does not make up for the other one.
    assert "different baselines" in find(history, None, "r2second").message
    assert find(history, "previous") == ("r3third0", "r4fourth")
    assert find(history, "r1first0") == ("r1first0", "r4fourth")


@pytest.mark.parametrize("missing", [("r0absent",), ("r1first0", "r0absent")])
def test_a_baseline_that_is_not_here_is_an_error(
    history: History, set_baseline: Any, missing: tuple[str, ...]
) -> None:
    record_both(history, "r1first0", "r2second", "r3third0")
    set_baseline("support", *missing)
    for before in (None, "baseline"):
        error = find(history, before, "r3third0")
        assert "r0absent" in error.message
        assert "is not in this history" in error.message
        assert "previous" in error.hint
    assert find(history, "previous") == ("r2second", "r3third0")


def test_the_baseline_itself_is_compared_with_the_run_before(
    history: History, set_baseline: Any
) -> None:
    record_both(history, "r1first0", "r2second")
    set_baseline("support", "r2second")
    assert find(history) == ("r1first0", "r2second")


def test_nothing_to_compare_with(history: History) -> None:
    assert "No run has finished yet" in find(history).message
    record(history, "only0000")
    error = find(history)
    assert "No run of 'support' finished before run" in error.message
    assert isinstance(find_sides(history.reader(), None, None, lambda _: None), Err)
    previous = find_run_or_group(history.reader(), "previous")
    assert isinstance(previous, Err)
    assert "There is no run 'previous'" in previous.error.message


def test_a_shard_follows_the_same_part_or_a_whole_run(history: History) -> None:
    for group in ("monday", "tuesday"):
        record(history, f"{group}2", group=group, shard="2/2")
    record(history, "wednsdy1", group="wednesday", shard="1/2")
    assert find_run_or_group(history.reader(), "latest~1") == Ok("tuesday2")
    assert find(history, None, "tuesday2") == ("monday2", "tuesday2")
    assert isinstance(find(history, None, "monday2"), KindlmError)
    record(history, "whole000")
    assert isinstance(find(history, None, "whole000"), KindlmError)
    record(history, "thrsday1", group="thursday", shard="1/2")
    assert find(history, None, "thrsday1") == ("whole000", "thrsday1")


def test_a_shard_follows_whole_groups(history: History) -> None:
    for group in ("monday", "tuesday"):
        for shard in ("1/2", "2/2"):
            writer = history.run(f"{group}{shard[0]}", group=group, shard=shard)
            tests = [Make.planned(name, selected=name == shard) for name in ("1/2", "2/2")]
            writer.suite(tests=tests)
            writer.execution(shard)
            writer.finish()
    before, after = find(history, None, "tuesday2")
    assert (before.name, after) == ("monday", "tuesday2")


def test_a_shard_that_is_all_of_a_group_is_compared_like_a_whole_run(history: History) -> None:
    record(history, "whole001")
    record(history, "onlypart", group="one", shard="1/1")
    assert find(history) == ("whole001", "onlypart")
    record(history, "whole002")
    assert find(history) == ("onlypart", "whole002")


def stop(history: History, run: str, **started: Any) -> None:
    writer = history.run(run, **started)
    writer.suite(tests=[Make.planned()])
    writer.interrupt()


def of_branch(name: str) -> dict[str, Any]:
    return {"git": GitState(commit=MAIN, branch=name, dirty=False)}


@pytest.mark.parametrize(
    ("newer", "base", "is_told"),
    [
        (of_branch("work"), None, True),
        (of_branch("main"), None, True),
        ({"git": None}, None, True),
        (of_branch("work"), "main", True),
        (of_branch("main"), "main", False),
        (of_branch("work"), "work", True),
        ({"mode": "rescored", "source_run": "finished"}, None, False),
    ],
)
def test_a_newer_run_that_was_stopped_is_told_if_it_could_have_been_meant(
    history: History, newer: dict[str, Any], base: str | None, is_told: bool
) -> None:
    stop(history, "older000", **of_branch("work"))
    record(history, "finished", **of_branch("work"))
    names = RunNames(history.reader(), "finished")
    assert names.unfinished_since(base) is None
    stop(history, "newer000", **newer)
    names = RunNames(history.reader(), "finished")
    assert names.unfinished_since(base) == ("newer000" if is_told else None)


def test_a_run_that_was_stopped_is_told_if_it_began_together_with_a_finished_one(
    history: History,
) -> None:
    stop(history, "stopped0")
    record(history, "finished")
    with closing(sqlite3.connect(history.path)) as db, db:
        db.execute("UPDATE runs SET started_at = '2026-01-01T00:00:00Z'")
    assert RunNames(history.reader(), "finished").unfinished_since() == "stopped0"
