"""Nothing is written into a file whose triggers, views, indexes or tables are not ours."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kindlm_store import (
    EventLog,
    ForeignSchemaError,
    NewEvent,
    Projection,
    SchemaProblem,
    WriteFailedError,
    open_reader,
    schema_problems,
)

SQL = """
CREATE TABLE said (stream TEXT, outcome TEXT, PRIMARY KEY (stream));
CREATE INDEX said_outcome_stream ON said (outcome, stream);
ON said:
    REPLACE INTO said SELECT stream, data ->> 'outcome' FROM new_events ORDER BY seq
VIEW failed:
    SELECT * FROM said
"""
SAID = Projection("said", 1, SQL)

GREEN = "CREATE TRIGGER green AFTER INSERT ON said BEGIN UPDATE said SET outcome = 'passed'; END"


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        for statement in statements:
            raw.execute(statement)


def problems(path: Path, *projections: Projection) -> list[SchemaProblem]:
    with closing(open_reader(path)) as reader:
        return schema_problems(reader, projections or [SAID])


@pytest.fixture
def recorded(path: Path) -> Path:
    with EventLog.open(path, projections=[SAID]) as log:
        log.append("run/1", [NewEvent("said", {"outcome": "failed"})])
        log.rebuild()
    return path


def test_what_this_code_made_is_as_it_makes_it(recorded: Path) -> None:
    assert problems(recorded) == []
    for _ in range(2):
        with EventLog.open(recorded, projections=[SAID]) as log:
            log.rebuild()
        assert problems(recorded) == []


@pytest.mark.parametrize(
    ("kind", "name", "statement"),
    [
        ("trigger", "green", GREEN),
        ("trigger", "mine", "CREATE TRIGGER mine INSTEAD OF INSERT ON failed BEGIN SELECT 1; END"),
        ("view", "mine", "CREATE VIEW mine AS SELECT 1"),
        ("index", "mine", "CREATE INDEX mine ON said (outcome)"),
        ("index", "mine", "CREATE UNIQUE INDEX mine ON events (type)"),
    ],
)  # fmt: skip
def test_what_is_foreign_is_named_and_nothing_is_written(
    recorded: Path, kind: str, name: str, statement: str
) -> None:
    change(recorded, statement)
    assert problems(recorded) == [SchemaProblem(kind, name, "foreign", None)]
    for repair in (False, True):
        with pytest.raises(ForeignSchemaError, match=f"{kind} '{name}'"):
            EventLog.open(recorded, projections=[SAID], repair=repair)
    change(recorded, f"DROP {kind} {name}")
    EventLog.open(recorded, projections=[SAID]).close()


def test_a_table_of_others_changes_nothing_and_is_named(recorded: Path) -> None:
    change(recorded, "CREATE TABLE notes (text)", "ANALYZE")
    assert problems(recorded) == [SchemaProblem("table", "notes", "foreign", None)]
    EventLog.open(recorded, projections=[SAID]).close()


@pytest.mark.parametrize(
    ("name", "statements"),
    [
        ("said", ("DROP TABLE said", "CREATE TABLE said (stream TEXT, outcome AS ('passed'))")),
        ("said", ("DROP TABLE said", "CREATE VIEW said AS SELECT 1 AS stream, 2 AS outcome")),
        ("failed", ("DROP VIEW failed", "CREATE VIEW failed AS SELECT 1")),
    ],
)
def test_what_was_replaced_is_made_anew_by_a_rebuild_only(
    recorded: Path, name: str, statements: tuple[str, ...]
) -> None:
    change(recorded, *statements)
    assert (name, "changed", "said") in [
        (p.name, p.state, p.projection) for p in problems(recorded)
    ]
    with pytest.raises(ForeignSchemaError, match=f"has a changed .* '{name}'"):
        EventLog.open(recorded, projections=[SAID])
    if "CREATE VIEW said" not in statements[1]:
        with EventLog.open(recorded, projections=[SAID], repair=True) as log:
            log.rebuild()
        assert problems(recorded) == []


@pytest.mark.parametrize(
    ("kind", "name", "projection"),
    [("view", "failed", "said"), ("table", "said", "said")],
)
def test_a_view_or_table_that_is_gone_is_made_anew_by_a_rebuild_only(
    recorded: Path, kind: str, name: str, projection: str
) -> None:
    change(recorded, f"DROP {kind} {name}")
    assert SchemaProblem(kind, name, "missing", projection) in problems(recorded)
    with pytest.raises(ForeignSchemaError, match=f"lacks the {kind} '{name}'"):
        EventLog.open(recorded, projections=[SAID])
    with EventLog.open(recorded, projections=[SAID], repair=True) as log:
        log.rebuild()
    assert problems(recorded) == []


def test_a_log_without_its_events_cannot_be_made_anew(recorded: Path) -> None:
    change(recorded, "DROP VIEW content_texts")
    for repair in (False, True):
        with pytest.raises(ForeignSchemaError, match="lacks the view 'content_texts'"):
            EventLog.open(recorded, projections=[SAID], repair=repair)
    change(recorded, "DROP TABLE contents")
    for repair in (False, True):
        with pytest.raises(ForeignSchemaError, match="lacks the table 'contents'"):
            EventLog.open(recorded, projections=[SAID], repair=repair)


def test_a_trigger_of_ours_that_was_weakened_is_refused_and_one_that_is_gone_is_reported(
    recorded: Path,
) -> None:
    change(recorded, "DROP TRIGGER events_update")
    assert problems(recorded) == [SchemaProblem("trigger", "events_update", "missing", None)]
    EventLog.open(recorded, projections=[SAID]).close()
    change(
        recorded, "CREATE TRIGGER events_update BEFORE UPDATE ON events WHEN 0 BEGIN SELECT 1; END"
    )
    with pytest.raises(ForeignSchemaError, match="has a changed trigger 'events_update'"):
        EventLog.open(recorded, projections=[SAID])


def test_projections_of_another_version_are_known_by_name(recorded: Path) -> None:
    wider = """
    CREATE TABLE said (stream TEXT, outcome TEXT, more TEXT, PRIMARY KEY (stream));
    CREATE INDEX said_more ON said (more);
    VIEW failed:
        SELECT 1
    VIEW other:
        SELECT 2
    """
    newer = Projection("said", 2, wider)
    assert problems(recorded, newer) == []
    EventLog.open(recorded, projections=[newer]).close()
    assert problems(recorded, newer) == problems(recorded) == []
    # And whoever knows none of them.
    EventLog.open(recorded).close()


def test_a_trigger_that_is_made_while_a_log_is_open_stops_it(recorded: Path) -> None:
    with EventLog.open(recorded, projections=[SAID]) as log:
        log.append("run/2", [NewEvent("said", {"outcome": "failed"})])
        change(recorded, GREEN)
        with pytest.raises(WriteFailedError, match="green"):
            log.append("run/3", [NewEvent("said", {"outcome": "failed"})])
        assert len(log.unwritten()) == 1
        with closing(log.reader()) as reader:
            assert [r[0] for r in reader.execute("SELECT outcome FROM said")] == ["failed"] * 2


def test_the_schema_is_read_once_for_as_long_as_it_stays(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []

    def counted(*arguments: object) -> list[SchemaProblem]:
        looked.append(arguments)
        return []

    monkeypatch.setattr("kindlm_store.schema_check.schema_problems", counted)
    with EventLog.open(recorded, projections=[SAID]) as log:
        for number in range(20):
            log.append("run/4", [NewEvent("said", {"outcome": str(number)})])
    assert len(looked) == 1
