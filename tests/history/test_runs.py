"""Finding runs by what a user types, and listing them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from kindlm.errors import Err, Ok
from kindlm.history.run_names import find_run
from kindlm.history.runs import RunFilter, read_figures, runs, sources_of


@pytest.fixture
def db(history: Any, make: Any) -> Any:
    """Three runs, oldest first; the second has a label, the third got one later."""
    for run, label in (("abc11111", None), ("abd22222", "release"), ("xyz33333", None)):
        writer = history.run(run, label=label)
        writer.suite("shop" if run == "xyz33333" else "support", tests=[make.planned()])
        writer.execution(assertions=(make.passed(),), judge="1")
        writer.finish()
    history.label("xyz33333", "candidate")
    return history.reader()


@pytest.mark.parametrize(
    ("wanted", "run"),
    [
        ("latest", "xyz33333"),
        ("abc11111", "abc11111"),
        ("abc", "abc11111"),
        ("x", "xyz33333"),
        ("release", "abd22222"),
        ("candidate", "xyz33333"),
    ],
)
def test_a_run_is_found(db: Any, wanted: str, run: str) -> None:
    assert find_run(db, wanted) == Ok(run)


def test_an_ambiguous_beginning_names_the_candidates(db: Any) -> None:
    found = find_run(db, "ab")
    assert isinstance(found, Err)
    assert "abc11111" in found.error.message
    assert "abd22222" in found.error.message


@pytest.mark.parametrize("wanted", ["nope", "", "%", "a_c", "ABC"])
def test_an_unknown_run_is_an_error_with_a_hint(db: Any, wanted: str) -> None:
    found = find_run(db, wanted)
    assert isinstance(found, Err)
    assert found.error.hint


def test_an_empty_history_says_so(history: Any) -> None:
    found = find_run(history.reader(), "latest")
    assert isinstance(found, Err)
    assert "kindlm test" in (found.error.hint or "")


def test_a_label_of_several_runs_is_the_newest(db: Any, history: Any) -> None:
    history.label("abc11111", "candidate")
    assert find_run(db, "candidate") == Ok("xyz33333")


def test_the_newest_label_holds(db: Any, history: Any) -> None:
    history.label("xyz33333", "final")
    assert find_run(db, "final") == Ok("xyz33333")
    assert isinstance(find_run(db, "candidate"), Err)


def test_runs_are_listed_newest_first(db: Any) -> None:
    found = list(runs(db, RunFilter()))

    assert [run.id for run in found] == ["xyz33333", "abd22222", "abc11111"]
    first = found[0]
    figures = read_figures(db, found)["xyz33333"]
    assert (first.label, first.suites, first.ended, first.passed) == (
        "candidate", ("shop",), "finished", True,
    )  # fmt: skip
    assert (figures.executions.passed, figures.executions.tested) == (1, 1)
    assert figures.paid.total_usd == pytest.approx(0.003)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (RunFilter(limit=1), ["xyz33333"]),
        (RunFilter(limit=1, offset=1), ["abd22222"]),
        (RunFilter(suite="support"), ["abd22222", "abc11111"]),
        (RunFilter(since="2999-01-01T00:00:00.000000Z"), []),
        (RunFilter(until="2999-01-01T00:00:00.000000Z", label="REL"), ["abd22222"]),
        (RunFilter(labelled="rel"), []),
        (RunFilter(ids=["abc11111", "nope"]), ["abc11111"]),
        (RunFilter(ids=[]), []),
        (RunFilter(tested_like="abc11111", status="passed"), ["abd22222", "abc11111"]),
        (RunFilter(tested_like="xyz33333", completed=True), ["xyz33333"]),
        (RunFilter(status="not ended"), []),
        (RunFilter(branch="nope"), []),
        (RunFilter(group="nope"), []),
    ],
)
def test_the_list_can_be_narrowed(db: Any, wanted: RunFilter, found: list[str]) -> None:
    assert [run.id for run in runs(db, wanted)] == found


def test_the_sources_of_a_run_are_found_in_order_and_a_circle_ends() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE runs (id, mode, source_run)")
        runs = [("a", "replayed", "b"), ("b", "replayed", "a")]
        runs += [("e", "replayed", "d"), ("d", "replayed", "c"), ("c", "live", None)]
        db.executemany("INSERT INTO runs VALUES (?, ?, ?)", runs)
        assert [*sources_of(db, "e").items()] == [
            ("e", "replayed"),
            ("d", "replayed"),
            ("c", "live"),
        ]
        assert [*sources_of(db, "a")] == ["a", "b"]
