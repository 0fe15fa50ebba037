"""Appending: order, optimistic concurrency, seals, transactions, backpressure, and the ends."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kindlm_store import (
    Append,
    ConflictError,
    EventLog,
    Head,
    HeadOf,
    NewEvent,
    SealedError,
    StoreClosedError,
    Text,
    WriteFailedError,
)
from kindlm_store.erasing import find_erasable
from kindlm_store.verification import verify_file


def test_an_event_is_read_back_as_it_was_appended(log: EventLog) -> None:
    new = NewEvent("order.placed", {"items": [1, 2.5, None, True]}, schema=3, subject="order-1")
    log.append("shop/1", [new])
    (event,) = log.read()
    assert (event.position, event.stream, event.version) == (1, "shop/1", 1)
    assert (event.id, event.type, event.schema) == (new.id, "order.placed", 3)
    assert (event.at, event.subject, event.data) == (new.at, "order-1", new.data)
    assert log.head("shop/1") == Head(1, event.hash, sealed=False)


def test_versions_and_positions_have_no_gaps(log: EventLog) -> None:
    for number in range(30):
        log.submit(Append(f"s/{number % 3}", [NewEvent("t", {"n": number})]))
    log.flush().result()
    assert [event.position for event in log.read()] == list(range(1, 31))
    assert [event.version for event in log.read(stream="s/1")] == list(range(1, 11))
    assert [event.data["n"] for event in log.read(stream="s/1")] == list(range(1, 30, 3))


def test_an_append_at_another_version_than_expected_conflicts(log: EventLog) -> None:
    log.append("s", [NewEvent("t", {})], expected_version=0)
    with pytest.raises(ConflictError, match=r"s: is at version 1, not at 0"):
        log.append("s", [NewEvent("t", {})], expected_version=0)
    log.append("s", [NewEvent("t", {})], expected_version=1)
    assert [event.version for event in log.read()] == [1, 2]


def test_a_sealed_stream_takes_nothing_more(log: EventLog) -> None:
    log.append("s", [NewEvent("t", {}), NewEvent("t", {})], seal=True)
    with pytest.raises(SealedError):
        log.append("s", [NewEvent("t", {})])
    head = log.head("s")
    assert head is not None
    assert head.sealed
    assert head.version == 2


def test_all_appends_of_a_submit_are_recorded_or_none(log: EventLog) -> None:
    log.append("sealed", [NewEvent("t", {})], seal=True)
    ticket = log.submit(
        Append("a", [NewEvent("t", {"text": Text("unheard")})]),
        Append("sealed", [NewEvent("t", {})]),
    )
    with pytest.raises(SealedError):
        ticket.result()
    assert log.head("a") is None
    with closing(log.reader()) as reader:
        assert reader.execute("SELECT count(*) FROM contents").fetchone()[0] == 0


def test_a_conflict_fails_its_own_ticket_only(log: EventLog) -> None:
    tickets = [
        log.submit(Append("s", [NewEvent("t", {"n": n})], expected_version=expected))
        for n, expected in enumerate([0, 5, None, 1, 2])
    ]
    log.flush().result()
    outcomes: list[object] = []
    for ticket in tickets:
        try:
            ticket.result()
            outcomes.append("recorded")
        except ConflictError:
            outcomes.append("conflict")
    assert outcomes == ["recorded", "conflict", "recorded", "conflict", "recorded"]
    assert [event.data["n"] for event in log.read()] == [0, 2, 4]


def test_an_event_is_recorded_once(log: EventLog) -> None:
    event = NewEvent("t", {})
    log.append("s", [event])
    again = Append("s", [event])
    with pytest.raises(WriteFailedError, match="in order, once"):
        log.submit(again).result()
    # The log stops, and nothing is lost.
    assert log.unwritten() == [again]
    assert [event.version for event in log.read(stream="s")] == [1]
    assert verify_file(log.path).ok


def test_head_of_is_the_hash_before_the_event_that_names_it(log: EventLog) -> None:
    log.submit(
        Append("run", [NewEvent("finished", {})], seal=True),
        Append("journal", [NewEvent("sealed", {"head": HeadOf("run"), "in": [HeadOf("run")]})]),
    ).result()
    run, event = log.read()
    assert event.data == {"head": run.hash, "in": [run.hash]}
    with pytest.raises(ConflictError, match="no event"):
        log.append("journal", [NewEvent("sealed", {"head": HeadOf("nobody")})])


def test_texts_are_stored_once_and_by_reference(log: EventLog) -> None:
    log.append("s", [NewEvent("t", {"a": Text("long"), "b": [Text("long"), Text("")]})])
    log.append("s", [NewEvent("t", {"a": Text("long")})])
    first, second = log.read()
    ref = first.data["a"]["$ref"]
    empty = first.data["b"][1]["$ref"]
    assert first.data["b"][0] == second.data["a"] == {"$ref": ref}
    assert len(ref) == 32
    assert [log.text(each) for each in (ref, empty, "unknown")] == ["long", "", None]
    with closing(log.reader()) as reader:
        joined = reader.execute(
            "SELECT body FROM event_log JOIN content_texts"
            """ ON ref = json_extract(data, '$.a."$ref"') WHERE version = 2"""
        )
        assert joined.fetchone()["body"] == "long"


def test_the_reference_of_a_text_differs_between_files(tmp_path: Path) -> None:
    refs = set()
    for name in ("a.db", "b.db"):
        with EventLog.open(tmp_path / name) as log:
            log.append("s", [NewEvent("t", {"x": Text("guess me")})])
            refs.add(next(log.read()).data["x"]["$ref"])
    assert len(refs) == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": [{"b": float("nan")}]}, r"data\.a\[0\]\.b is nan"),
        ({"a": float("inf")}, r"data\.a is inf"),
        ({"a": {1, 2}}, r"data\.a is a set"),
        ({"a": {"$ref": "x"}}, r"data\.a\.\$ref is a reserved name"),
        ({"a": 10**5000}, r"data\.a is an integer of more"),
        ({"a": {1: 2, "b": 3}}, r"data\.a\.1 is named by a int"),
        ({"a": b"bytes"}, r"data\.a is a bytes"),
        (["not a mapping"], r"data is a list"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_path(
    log: EventLog, data: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        log.submit(Append("s", [NewEvent("t", data)]))


def test_what_is_nested_too_deeply_is_refused(log: EventLog) -> None:
    circle: dict[str, Any] = {}
    circle["again"] = circle
    with pytest.raises(ValueError, match="nested deeper than 128"):
        log.submit(Append("s", [NewEvent("t", circle)]))
    lists: Any = 1
    both: Any = 1
    for _ in range(200):
        lists, both = [lists], [{"deep": both}]
    for deep in (lists, both):
        with pytest.raises(ValueError, match="nested deeper than 128"):
            log.submit(Append("s", [NewEvent("t", {"deep": deep})]))
    log.append("s", [NewEvent("t", {"wide": [[n] for n in range(1_000)]})])


@pytest.mark.parametrize(
    "append",
    [
        Append("", [NewEvent("t", {})]),
        Append("s", []),
        Append("s\0", [NewEvent("t", {})]),
    ],
)
def test_an_append_without_a_name_or_an_event_is_refused(log: EventLog, append: Append) -> None:
    with pytest.raises(ValueError, match=r"must|no event"):
        log.submit(append)


@pytest.mark.parametrize(
    "members",
    [
        {"type": ""},
        {"subject": "\ud800"},
        {"schema": 0},
        {"at": "2026-01-01T00:00:00Z"},
        {"at": "2026-01-01T00:00:00.000000+02:00"},
    ],
)
def test_an_event_with_an_envelope_that_does_not_fit_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|not a time"):
        NewEvent(**({"type": "t", "data": {}} | members))


def test_what_the_caller_changes_later_is_not_stored(log: EventLog) -> None:
    data = {"list": [1]}
    ticket = log.submit(Append("s", [NewEvent("t", data)]))
    data["list"].append(2)
    ticket.result()
    assert next(log.read()).data == {"list": [1]}


def test_reading_narrows_by_stream_and_type(log: EventLog) -> None:
    for number in range(12):
        event = NewEvent("abc"[number % 3], {"n": number}, subject=f"x{number % 4}")
        log.submit(Append(f"s/{number % 2}", [event]))
    log.flush().result()

    def numbers(**narrow: Any) -> list[int]:
        return [event.data["n"] for event in log.read(**narrow)]

    assert numbers(stream="s/1") == [1, 3, 5, 7, 9, 11]
    assert numbers(types=["a"]) == [0, 3, 6, 9]
    assert numbers(types=["b", "a"]) == [0, 1, 3, 4, 6, 7, 9, 10]
    assert numbers(types=["a", "nothing"], stream="s/0") == [0, 6]
    assert numbers(types=[]) == []
    assert numbers(stream="nobody") == []


def test_reading_goes_on_over_many_pages(log: EventLog) -> None:
    log.append("s/1", [NewEvent("t", {"n": n}) for n in range(2_500)])
    assert [e.data["n"] for e in log.read()] == list(range(2_500))
    assert [e.data["n"] for e in log.read(stream="s/1")] == list(range(2_500))


def test_tickets_are_awaited_by_many_tasks_and_loops(path: Path) -> None:
    async def produce(log: EventLog, stream: str) -> None:
        async def one() -> None:
            await log.submit(Append(stream, [NewEvent("t", {})]))

        await asyncio.gather(*(one() for _ in range(200)))

    with EventLog.open(path) as log, ThreadPoolExecutor(4) as threads:
        for loop in [threads.submit(asyncio.run, produce(log, f"s/{n}")) for n in range(4)]:
            loop.result()
        for number in range(4):
            head = log.head(f"s/{number}")
            assert head is not None
            assert head.version == 200


def test_a_cancelled_wait_leaves_the_append_alone(log: EventLog) -> None:
    async def main() -> None:
        ticket = log.submit(Append("s", [NewEvent("t", {})]))

        async def wait() -> None:
            await ticket

        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await log.flush()
        await ticket
        assert len(list(log.read())) == 1

    asyncio.run(main())


def test_closing_writes_what_was_submitted(path: Path) -> None:
    with EventLog.open(path) as log:
        tickets = [log.submit(Append("s", [NewEvent("t", {})])) for _ in range(500)]
    assert all(ticket.done() and ticket.exception() is None for ticket in tickets)
    assert not path.with_name("log.db-wal").exists()
    with pytest.raises(StoreClosedError):
        log.submit(Append("s", [NewEvent("t", {})]))
    log.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_reported_to_open_the_log_anew(log: EventLog) -> None:
    # SQLite would take the locks of the parent for its own, and read what is overwritten.
    uses: list[Callable[[], object]] = [
        lambda: log.submit(Append("s", [NewEvent("t", {})])),
        lambda: list(log.read()),
        lambda: find_erasable(log, ["s"]),
        log.reader,
    ]
    child = os.fork()
    if not child:
        refused = 0
        for use in uses:
            try:
                use()
            except StoreClosedError:
                refused += 1
        log.close()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(uses)
    log.append("s", [NewEvent("t", {})])


def test_a_long_name_of_many_members_is_not_copied_for_each() -> None:
    taken = []
    for length in (10, 300_000):
        data = {"x" * length: dict.fromkeys(map(str, range(5_000)), 1), "unfit": "\0"}
        started = time.process_time()
        NewEvent("t", data)
        taken.append(time.process_time() - started)
    assert taken[1] < 5 * taken[0] + 0.05


def test_ids_are_version_7_and_grow() -> None:
    ids = [NewEvent("t", {}).id for _ in range(10_000)]
    assert ids == sorted(set(ids))
    assert {id_.version for id_ in ids} == {7}
    assert {id_.variant for id_ in ids} == {UUID(int=0x8 << 60).variant}
