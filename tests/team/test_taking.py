"""What a history server takes: bodies in order, each as often as one likes."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from recorded_history import History

from examples import examples
from kindlm.events import RunLabelled, new_event
from kindlm.events.run import PURGES, SEALED_HEADS
from kindlm.projections import PROJECTIONS
from kindlm.recording.event_files import StreamEnd
from kindlm.recording.run_streams import streams_of
from kindlm.team.bodies import bodies
from kindlm.team.protocol import ApiError, PushAnswer
from kindlm.team.taking import take_body
from kindlm_store import EventLog

TABLES = [table for projection in PROJECTIONS for table in projection.tables]


@pytest.fixture
def here(tmp_path: Path, make: Any) -> Iterator[History]:
    """The history of a client: a finished run, one that was derived from it, and notes."""
    opened = History(tmp_path / "here.db")
    finished = opened.run("aaaa2222")
    finished.suite(tests=[make.planned(repeat=3)])
    for number in range(3):
        finished.execution(
            user=f"naïve 🦜 {number}", repeat=number + 1, assertions=(make.failed(),)
        )
    finished.finish()
    stopped = opened.run("bbbb3333", source_run="aaaa2222", mode="rescored")
    stopped.suite(tests=[make.planned(repeat=2)])
    stopped.execution(tools=(("look", {"n": 1.5}, None),))
    stopped.interrupt()
    opened.log.append("journal/l", [new_event(RunLabelled(run="aaaa2222", label="old", by="me"))])
    yield opened
    opened.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EventLog]:
    with EventLog.open(tmp_path / "team.db", projections=PROJECTIONS) as log:
        yield log


def facts(log: EventLog) -> Any:
    """All that a history says, whatever the order in which it arrived, and all its tables."""
    assert log.verify(claims=SEALED_HEADS, erasures=PURGES).ok
    assert log.projection_errors() == {}
    with closing(log.reader()) as db:
        queries = [
            "SELECT id, stream, version, type, schema, at, subject, data, hash FROM event_log",
            "SELECT ref, salt, digest, body FROM contents",
            "SELECT name, version, head, sealed FROM streams",
            *(f"SELECT * FROM {table}" for table in TABLES),
        ]
        return [sorted(map(tuple, db.execute(query)), key=repr) for query in queries]


def heads(log: EventLog) -> dict[str, StreamEnd]:
    with closing(log.reader()) as db:
        names = [name for (name,) in db.execute("SELECT name FROM streams")]
    ends = {name: log.head(name) for name in names}
    return {name: StreamEnd(version=e.version, hash=e.hash) for name, e in ends.items() if e}


def packed(
    log: EventLog, there: Mapping[str, StreamEnd], run: str = "bbbb3333", **more: Any
) -> list[bytes]:
    with closing(log.reader()) as db:
        return list(bodies(db, run, streams_of(db, run)[1], there, **more))


def take(log: EventLog, body: bytes, refused: ApiError | None = None) -> PushAnswer | ApiError:
    return take_body(log, BytesIO(gzip.decompress(body)), allowed=lambda _: refused)


def push(here: EventLog, server: EventLog, **more: Any) -> list[PushAnswer]:
    answers = [take(server, body) for body in packed(here, heads(server), **more)]
    assert all(isinstance(answer, PushAnswer) for answer in answers), answers
    return answers  # type: ignore[return-value]


def test_a_push_brings_all_and_the_second_nothing(here: History, server: EventLog) -> None:
    answers = push(here.log, server)
    assert sum(answer.added for answer in answers) == len(list(here.log.read()))
    assert facts(server) == facts(here.log)
    assert push(here.log, server) == []


@given(most=st.integers(1_000, 6_000), twice=st.lists(st.booleans(), min_size=60, max_size=60))
@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_however_it_is_split_and_repeated_it_is_the_same_log(
    here: History, tmp_path_factory: pytest.TempPathFactory, most: int, twice: list[bool]
) -> None:
    path = tmp_path_factory.mktemp("split") / "team.db"
    with EventLog.open(path, projections=PROJECTIONS, synchronous="OFF") as server:
        sent = packed(here.log, {}, most=most)
        assert len(sent) > 1
        for body, again in zip(sent, twice, strict=False):
            first = take(server, body)
            assert isinstance(first, PushAnswer), first
            if again:
                second = take(server, body)
                assert second == PushAnswer(0, first.added, 0)
        assert facts(server) == facts(here.log)
