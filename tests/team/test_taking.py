"""What a history server takes: bodies in order, each as often as one likes."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from recorded_history import History, Make

from examples import examples
from kindlm.events.codec import new_event
from kindlm.events.run import PURGES, SEALED_HEADS, ContentsPurged, RunLabelled, RunResumed
from kindlm.history.runs import streams_of
from kindlm.projections import PROJECTIONS
from kindlm.team.bodies import NotSentError, bodies, take_body
from kindlm.team.protocol import ApiError, PushAnswer, StreamEnd
from kindlm.team.withholding import Withholding
from kindlm_store import Append, EventLog, stream_lock
from kindlm_store.erasing import erase, find_erasable
from kindlm_store.verification import verify_file

TABLES = [table for projection in PROJECTIONS for table in projection.tables]


def record_runs(history: History) -> None:
    """Record a finished run, one that was derived from it, and notes."""
    finished = history.run("aaaa2222")
    finished.suite(tests=[Make.planned(repeat=3)])
    for number in range(3):
        finished.execution(
            user=f"naïve 🦜 {number}", repeat=number + 1, assertions=(Make.failed(),)
        )
    finished.finish()
    stopped = history.run("bbbb3333", source_run="aaaa2222", mode="rescored")
    stopped.suite(tests=[Make.planned(repeat=2)])
    stopped.execution(tools=(("look", {"n": 1.5}, None),))
    stopped.interrupt()
    history.log.append("journal/l", [new_event(RunLabelled(run="aaaa2222", label="old", by="me"))])


@pytest.fixture
def here(tmp_path: Path) -> Iterator[History]:
    """The history of a client."""
    opened = History(tmp_path / "here.db", write=record_runs)
    yield opened
    opened.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EventLog]:
    with EventLog.open(tmp_path / "team.db", projections=PROJECTIONS) as log:
        yield log


def facts(log: EventLog) -> Any:
    """All that a history says, whatever the order in which it arrived, and all its tables."""
    assert verify_file(log.path, claims=SEALED_HEADS, erasures=PURGES).ok
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
    return {name: StreamEnd(e.version, e.hash) for name, e in ends.items() if e}


def packed(
    log: EventLog, there: Mapping[str, StreamEnd], run: str = "bbbb3333", **more: Any
) -> list[bytes]:
    with closing(log.reader()) as db:
        return list(bodies(db, run, streams_of(db, run)[1], there, **more))


def take(log: EventLog, body: bytes) -> PushAnswer | ApiError:
    try:
        return take_body(log, BytesIO(gzip.decompress(body)), allowed=lambda _: None)
    except ApiError as refused:
        return refused


def push(here: EventLog, server: EventLog, **more: Any) -> list[PushAnswer]:
    answers = [take(server, body) for body in packed(here, heads(server), **more)]
    assert all(isinstance(answer, PushAnswer) for answer in answers), answers
    return answers  # type: ignore[return-value]


def test_a_push_brings_all_and_the_second_nothing(here: History, server: EventLog) -> None:
    answers = push(here.log, server)
    assert sum(answer.added for answer in answers) == len(list(here.log.read()))
    assert facts(server) == facts(here.log)
    assert push(here.log, server) == []


@given(most=st.integers(2_000, 6_000), twice=st.lists(st.booleans(), min_size=60, max_size=60))
@examples(5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_however_it_is_split_and_repeated_it_is_the_same_log(
    here: History, tmp_path_factory: pytest.TempPathFactory, most: int, twice: list[bool]
) -> None:
    path = tmp_path_factory.mktemp("split") / "team.db"
    with EventLog.open(path, projections=PROJECTIONS) as server:
        sent = packed(here.log, {}, most=most)
        assert len(sent) > 1
        for body, again in zip(sent, twice, strict=False):
            first = take(server, body)
            assert isinstance(first, PushAnswer), first
            if again:
                second = take(server, body)
                assert second == PushAnswer(0, first.added, 0)
        assert facts(server) == facts(here.log)


def lines_of(body: bytes) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(body).splitlines()]


def body_of(lines: list[Any]) -> bytes:
    return gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def counted(log: EventLog) -> Any:
    with closing(log.reader()) as db:
        return [
            db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("events", "streams", "contents")
        ]


def change(data: st.DataObject, lines: list[Any]) -> None:
    """Change a line, or what the header says of a stream."""
    index = data.draw(st.integers(0, len(lines) - 1), label="line")
    members = next(iter(lines[index].values())) if index else lines[0]["streams"]["run/aaaa2222"]
    key = data.draw(st.sampled_from(sorted(members)), label="key")
    match data.draw(st.sampled_from(["gone", "twice", "other", "null", "text", "large", "digit"])):
        case "gone":
            del lines[index]
        case "twice":
            lines.insert(index, lines[index])
        case "other":
            lines[index] = lines[(index + 1) % len(lines)]
        case "null":
            members[key] = None
        case "text":
            members[key] = "x"
        case "large":
            members[key] = 10**18
        case "digit":
            value = json.dumps(members[key])
            digits = [at for at, letter in enumerate(value) if letter.isdigit()]
            if digits:
                at = data.draw(st.sampled_from(digits))
                members[key] = json.loads(f"{value[:at]}{9 - int(value[at])}{value[at + 1 :]}")


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_changed_nothing_of_it_is_stored(
    here: History, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    first, second, *others = packed(here.log, {}, most=6_000)
    path = tmp_path_factory.mktemp("changed") / "team.db"
    with EventLog.open(path, projections=PROJECTIONS) as server:
        assert isinstance(take(server, first), PushAnswer)
        before, lines = facts(server), lines_of(second)
        change(data, lines)
        answer = take(server, body_of(lines))
        if isinstance(answer, ApiError):
            assert answer.status in {409, 422}
            assert facts(server) == before
            assert isinstance(take(server, second), PushAnswer)
        # Otherwise it says the same: a text may come twice.
        for body in others:
            assert isinstance(take(server, body), PushAnswer)
        assert facts(server) == facts(here.log)


def refusal(server: EventLog, body: bytes) -> ApiError:
    before = facts(server)
    answer = take(server, body)
    assert isinstance(answer, ApiError), answer
    assert facts(server) == before
    return answer


def test_a_wrong_line_is_named(here: History, server: EventLog) -> None:
    (body,) = packed(here.log, {})
    for kind, change in (("event", {"at": "2020-01-01T00:00:00.000000Z"}), ("text", {"body": "!"})):
        lines = lines_of(body)
        number = next(
            at
            for at, line in enumerate(lines)
            if (at > 20 and "salt" in line.get("text", ())) or (kind == "event" and "event" in line)
        )
        lines[number][kind].update(change)
        answer = refusal(server, body_of(lines))
        assert answer.status == 422
        assert answer.details == {"line": number + 1}
    assert refusal(server, gzip.compress(b"no JSON")).details == {"line": 1}
    assert refusal(server, gzip.compress(b"")).details == {"line": 1}
    for member, half in (("text", "body"), ("event", "subject"), ("event", "type")):
        lines = lines_of(body)
        line = next(line for line in lines[1:] if member in line and half in line[member])
        line[member][half] = "\udd9c"
        answer = refusal(server, body_of(lines))
        assert answer.details == {"line": lines.index(line) + 1}
    deep = lines_of(body)
    deep[-1]["event"]["data"] = json.loads('{"x":' + "[" * 900 + "]" * 900 + "}")
    assert refusal(server, body_of(deep)).status == 422


def test_what_went_on_apart_is_a_conflict(here: History, server: EventLog) -> None:
    push(here.log, server)
    old = heads(server)
    more = new_event(RunResumed(by="me", planned=2))
    server.append("run/bbbb3333", [new_event(RunResumed(by="you", planned=2))])
    here.log.append("run/bbbb3333", [more])
    for body in (*packed(here.log, old), *packed(here.log, {}), *packed(here.log, heads(server))):
        answer = refusal(server, body)
        assert answer.status == 409
        assert answer.details == {"stream": "run/bbbb3333", "reason": "apart"}
        assert "it diverged" in answer.message


def test_a_longer_stream_there_is_compared_with_ours(here: History, server: EventLog) -> None:
    push(here.log, server)
    for who in ("you", "she"):
        server.append("run/bbbb3333", [new_event(RunResumed(by=who, planned=2))])
    # The server has all of ours, and more.
    (answer,) = push(here.log, server)
    assert (answer.added, answer.filled) == (0, 0)
    here.log.append("run/bbbb3333", [new_event(RunResumed(by="me", planned=2))])
    (body,) = packed(here.log, heads(server))
    assert refusal(server, body).details == {"stream": "run/bbbb3333", "reason": "apart"}


def test_what_does_not_follow_what_is_there_is_a_conflict(here: History, server: EventLog) -> None:
    first, second, *_ = packed(here.log, {}, most=6_000)
    assert refusal(server, second).details == {"stream": "run/aaaa2222", "reason": "behind"}
    take(server, first)
    assert isinstance(take(server, second), PushAnswer)


def test_a_run_that_a_process_writes_there_is_left_alone(here: History, server: EventLog) -> None:
    (body,) = packed(here.log, {})
    with stream_lock(server.path, "run/bbbb3333"):
        assert refusal(server, body).details["reason"] == "going on"
    assert isinstance(take(server, body), PushAnswer)


def test_a_journal_may_come_in_a_later_body_than_the_end_that_it_notes(
    here: History, server: EventLog
) -> None:
    bodies_ = packed(here.log, {}, most=3_000)
    ends = [set(lines_of(body)[0]["streams"]) for body in bodies_]
    assert not any({"journal/j", "run/aaaa2222"} <= streams for streams in ends)
    for body in bodies_:
        assert isinstance(take(server, body), PushAnswer)
    assert facts(server) == facts(here.log)


def test_a_note_of_an_end_that_is_not_there_is_refused(here: History, server: EventLog) -> None:
    with closing(here.log.reader()) as db:
        (body,) = bodies(db, "aaaa2222", ["journal/j"], {})
    assert "does not have" in refusal(server, body).message


def test_nothing_is_erased_by_a_push_and_what_was_purged_stays_so(
    here: History, server: EventLog
) -> None:
    push(here.log, server)
    with closing(server.reader()) as db:
        found = find_erasable(server, ["run/aaaa2222"])
        refs = sorted(found.refs)
        assert refs
        purged = ContentsPurged(texts=len(refs), refs=refs, runs=["aaaa2222"], by="me")
        erase(server, found, lambda _: Append("journal/p", [new_event(purged)]))
        gone = facts(server)
        for body in packed(here.log, {}):
            assert take(server, body) == PushAnswer(0, len(list(here.log.read())), 0)
        assert facts(server) == gone
        # Nor does a pull erase at home, or a client on the server.
        (pulled,) = packed(server, {})
        before = facts(here.log)
        assert isinstance(take(here.log, pulled), PushAnswer)
        assert facts(here.log) == before
        (forged,) = bodies(db, "aaaa2222", ["journal/p"], {})
    assert "cannot erase" in refusal(here.log, forged).message


def test_withheld_texts_are_filled_by_a_copy_that_has_them_and_take_none_away(
    here: History, server: EventLog
) -> None:
    push(here.log, server, withhold=Withholding(every_text=True))
    with closing(server.reader()) as db:
        (texts,) = db.execute("SELECT count(*) FROM contents WHERE body IS NOT NULL").fetchone()
    assert texts == 0
    assert verify_file(server.path, claims=SEALED_HEADS, erasures=PURGES).ok
    before = facts(here.log)
    for body in packed(server, {}):
        assert isinstance(take(here.log, body), PushAnswer)
    assert facts(here.log) == before
    answers = [take(server, body) for body in packed(here.log, {})]
    assert sum(answer.filled for answer in answers if isinstance(answer, PushAnswer)) > 0
    assert facts(server) == before


def test_what_a_stream_is_about_is_known_before_anything_is_taken(
    here: History, server: EventLog
) -> None:
    asked: list[Any] = []

    def allowed(projects: Mapping[str, frozenset[str | None]]) -> None:
        asked.append(dict(projects))
        if len(asked) == 1:
            raise ApiError(404, "There is no such run.")

    sent = packed(here.log, {}, most=6_000)
    with pytest.raises(ApiError):
        take_body(server, BytesIO(gzip.decompress(sent[0])), allowed=allowed)
    assert counted(server) == [0, 0, 0]
    for body in sent:
        take_body(server, BytesIO(gzip.decompress(body)), allowed=allowed)
    # A body that goes on with a run does not name its project: the history does.
    assert {name for each in asked for name in each} >= {"run/aaaa2222", "journal/j", "journal/l"}
    assert {project for each in asked for about in each.values() for project in about} == {"shop"}


def test_a_run_that_names_no_project_and_a_note_of_no_run_are_of_none(
    here: History, server: EventLog
) -> None:
    asked: list[Any] = []
    here.log.append("run/odd", [new_event(RunResumed(by="me", planned=2))])
    here.log.append("journal/odd", [new_event(RunLabelled(run="zzzz2222", label="x", by="me"))])
    with closing(here.log.reader()) as db:
        (body,) = bodies(db, "odd", ["run/odd", "journal/odd"], {})
    take_body(server, BytesIO(gzip.decompress(body)), allowed=asked.append)
    assert asked == [{"run/odd": frozenset({None}), "journal/odd": frozenset({None})}]


def test_an_event_that_does_not_fit_into_a_body_ends_the_push(
    here: History, server: EventLog, make: Any
) -> None:
    large = here.run("cccc4444")
    large.suite(tests=[make.planned()])
    large.execution(output=random.Random(1).randbytes(9_000).hex(), user="small")
    large.interrupt()
    with closing(here.log.reader()) as db:
        sent = bodies(db, "cccc4444", ["run/cccc4444"], {}, most=6_000)
        assert isinstance(take(server, next(sent)), PushAnswer)
        with pytest.raises(NotSentError, match=r"event \d of run/cccc4444 is too large"):
            list(sent)


def test_clients_that_push_at_once_disturb_no_other(
    server: EventLog, tmp_path: Path, make: Any
) -> None:
    def client(number: int) -> int:
        here = History(tmp_path / f"{number}.db")
        run = here.run(f"run{number}", project="shop")
        run.suite(tests=[make.planned(repeat=5)])
        for repeat in range(5):
            run.execution(user=f"{number}.{repeat}", repeat=repeat + 1)
        run.finish()
        with closing(here.log.reader()) as db:
            # Not the journal: those of the test have the same name in each history.
            sent = list(bodies(db, f"run{number}", [f"run/run{number}"], {}, most=6_000))
        answers = [take(server, body) for body in sent]
        events = len(list(here.log.read(stream=f"run/run{number}")))
        here.close()
        return events - sum(each.added for each in answers if isinstance(each, PushAnswer))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(client, range(4))) == [0] * 4
    assert verify_file(server.path, claims=SEALED_HEADS, erasures=PURGES).ok
    assert server.projection_errors() == {}


@pytest.mark.parametrize(
    ("started", "execution", "told"),
    [
        ({}, {"tokens": (2**62, 1)}, "gen_ai.usage.input_tokens: the number"),
        ({}, {"latency_ms": 1.7e308}, "latency_ms: the number"),
        ({}, {"cost_usd": -1e300}, "cost_usd: the number"),
        ({}, {"cost_usd": -0.01}, "cost_usd: a cost"),
        ({"group": "g", "shard": "../x"}, {}, "shard: '../x'"),
        ({"group": "g", "shard": "3/2"}, {}, "shard: '3/2'"),
        ({"group": "g", "shard": "1/99999999"}, {}, "shard: '1/99999999'"),
        ({"group": "g", "shard": "2/2"}, {"latency_ms": 1e9, "tokens": (10**9, 0)}, None),
    ],
)
def test_numbers_that_break_pages_stay_outside(
    server: EventLog,
    tmp_path: Path,
    make: Any,
    started: dict[str, Any],
    execution: dict[str, Any],
    told: str | None,
) -> None:
    with closing(History(tmp_path / "odd.db")) as odd:
        run = odd.run("cccc4444", **started)
        run.suite(tests=[make.planned()])
        run.execution(**execution)
        run.finish()
        (body,) = packed(odd.log, {}, "cccc4444")
    answer = take(server, body)
    if told is None:
        assert isinstance(answer, PushAnswer)
    else:
        assert isinstance(answer, ApiError)
        assert answer.status == 422
        assert told in answer.message
        assert list(server.read()) == []


def test_what_is_said_of_a_line_is_short(here: History, server: EventLog) -> None:
    (body,) = packed(here.log, {})
    lines = lines_of(body)
    lines[-1]["event"]["stream"] = "k" * 3_900_000
    answer = take(server, body_of(lines))
    assert isinstance(answer, ApiError)
    assert answer.details == {"line": len(lines)}
    assert (answer.status, len(answer.message) <= 500) == (422, True)
    assert "is not the next event of kkk" in answer.message


def test_the_start_of_a_suite_may_be_long(here: History, server: EventLog, make: Any) -> None:
    large = here.run("cccc4444")
    large.suite(tests=[make.planned("n" * 900 + str(number)) for number in range(4_500)])
    large.interrupt()
    for body in packed(here.log, {}, "cccc4444"):
        assert isinstance(take(server, body), PushAnswer)
    with closing(server.reader()) as db:
        assert db.execute("SELECT max(length(data)) FROM events").fetchone()[0] > 4_000_000
