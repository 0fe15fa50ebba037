"""`kindlm label`: naming runs, and taking names away."""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any

import pytest

from kindlm.events.codec import new_event
from kindlm.events.run import RunLabelled
from kindlm_store import EventLog, NewEvent, WriteFailedError


@pytest.fixture
def record(history: Any, make: Any) -> Any:
    """Record a run that finished."""

    def call(run: str, **started: Any) -> None:
        writer = history.run(run, **started)
        writer.suite(tests=[make.planned()])
        writer.execution(assertions=(make.passed(),))
        writer.finish()

    return call


@pytest.fixture
def label(kindlm: Any, history: Any) -> Any:
    """Run `kindlm label` on the history."""

    def call(*arguments: str) -> Any:
        return kindlm("label", *arguments, "--db", history.path)

    return call


@pytest.fixture
def labels(kindlm: Any, history: Any) -> Any:
    """Return the label of each run, as `kindlm runs` lists them."""

    def call() -> dict[str, str | None]:
        listed = kindlm("runs", "--format", "json", "--db", history.path)
        return {run["id"]: run["label"] for run in json.loads(listed.out)["runs"]}

    return call


def test_a_name_is_shown_wherever_the_run_is(
    kindlm: Any, history: Any, record: Any, label: Any, labels: Any
) -> None:
    record("run1")

    outcome = label("run", "before the change")

    assert (outcome.code, outcome.out) == (0, "")
    assert "run1 is now labelled 'before the change'" in outcome.err
    assert labels() == {"run1": "before the change"}
    assert "before the change" in kindlm("show", "run1", "--db", history.path).out
    report = kindlm("report", "before the change", "--format", "json", "--db", history.path)
    assert json.loads(report.out)["run"]["label"] == "before the change"


def test_who_named_it_and_when_is_in_a_journal(history: Any, record: Any, label: Any) -> None:
    record("run1")
    label("run1", "v1")

    (event,) = history.log.read(types=["run.labelled"])

    assert event.stream.startswith("journal/")
    assert event.data["run"] == "run1"
    assert re.fullmatch(r"[^@]+@[^@]+", event.data["by"])
    assert event.at.endswith("Z")


def test_the_last_name_counts(record: Any, label: Any, labels: Any) -> None:
    record("run1", label="first")

    assert "'first' before" in label("run1", "second").err
    label("first", "third")
    assert labels() == {"run1": "second"}, "the old name finds it no more"
    assert label("second", "third").code == 0
    assert labels() == {"run1": "third"}


def test_the_last_name_counts_although_another_clock_was_ahead(
    history: Any, record: Any, label: Any, labels: Any
) -> None:
    record("run1")
    event = new_event(RunLabelled(run="run1", label="early", by="me@ahead"))
    history.log.append(
        "journal/ahead", [NewEvent(event.type, event.data, at="2999-01-01T00:00:00.000000Z")]
    )

    label("run1", "late")
    assert labels() == {"run1": "late"}
    label("run1", "--remove")
    assert labels() == {"run1": None}


def test_a_name_is_taken_away_also_the_one_it_began_with(
    kindlm: Any, history: Any, record: Any, label: Any, labels: Any
) -> None:
    record("run1", label="first")

    outcome = label("first", "--remove")

    assert outcome.code == 0
    assert "Removed the label 'first' from run run1" in outcome.err
    assert labels() == {"run1": None}
    assert "first" not in kindlm("show", "run1", "--db", history.path).out
    assert label("first", "--remove").code == 1
    assert "has no label" in label("run1", "--remove").err
    kindlm("rebuild", "--db", history.path)
    assert labels() == {"run1": None}


def test_which_of_several_runs_a_name_means_is_reported(record: Any, label: Any) -> None:
    record("run1", label="v1")
    record("run2")
    record("run3")

    assert "Run run3 is now labelled" in label("run3", "v1").err
    assert "run3 has the same label and is newer" in label("run2", "v1").err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("latest", "Reserved: "),
        ("git:main", "Reserved: "),
        (" ", "cannot be a label"),
        ("run2", "the id of a run"),
    ],
)
def test_names_that_mean_runs_are_refused(
    name: str, words: str, history: Any, record: Any, label: Any
) -> None:
    record("run1")
    record("run2")

    outcome = label("run1", name)

    assert outcome.code == 1
    assert words in outcome.err
    assert list(history.log.read(types=["run.labelled"])) == []


@pytest.mark.parametrize("arguments", [("run1",), ("run1", "v1", "--remove")])
def test_either_a_name_or_its_removal(record: Any, label: Any, arguments: tuple[str, ...]) -> None:
    record("run1")

    outcome = label(*arguments)

    assert outcome.code == 1
    assert "--remove" in outcome.err


def test_spaces_around_a_name_do_not_belong_to_it(record: Any, label: Any, labels: Any) -> None:
    record("run1")
    label("run1", "  v1 ")
    assert labels() == {"run1": "v1"}


@pytest.mark.parametrize("name", ["\x1b[31mred", "x" * 201])
def test_a_name_is_one_line_of_some_length(record: Any, label: Any, labels: Any, name: str) -> None:
    record("aaaa2222")
    assert label("aaaa", name).code == 1
    assert labels() == {"aaaa2222": None}
    assert label("aaaa", "x" * 200).code == 0


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        ("SQLITE_FULL", "There is no space left on the disk of the history"),
        ("SQLITE_IOERR", "The history could not be written: disk"),
    ],
)
def test_a_label_that_the_disk_does_not_take_is_an_error_of_the_disk(
    label: Any, record: Any, monkeypatch: pytest.MonkeyPatch, cause: str, message: str
) -> None:
    record("aaaa2222")
    error = sqlite3.OperationalError("disk")
    error.sqlite_errorcode = getattr(sqlite3, cause)

    def append(*_: Any) -> None:
        raise WriteFailedError from error

    monkeypatch.setattr(EventLog, "append", append)
    refused = label("aaaa", "x")
    assert refused.code == 1
    assert message in refused.err
    assert "itself failed" not in refused.err
