"""Events of any size and with any characters, written by clocks that go astray."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kindlm_store import Append, EventLog, NewEvent, Text
from kindlm_store.verification import verify_file

MEGABYTE = 1_000_000

TEXTS = {
    "NUL": "a\0b\0",
    "lone surrogates": "\ud800 and \udfff, turned round: \udc00\ud800",
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f\x85\u2028\u2029\ufeff\ufffe",
    "escapes of a terminal": "\x1b]0;title\x07\x1b[2J",
    "a pair of surrogates": "\U0001f302",
    "a megabyte": "0123456789" * (MEGABYTE // 10),
    "a megabyte of quotation marks": '"\\' * (MEGABYTE // 2),
    "a megabyte of NUL": "\0" * MEGABYTE,
    "nothing": "",
}


def stored(text: str) -> str:
    """What is kept of a text: NUL and lone surrogates are replaced."""
    return text.replace("\0", "�").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_is_kept(database: Path, text: str) -> None:
    data = {"inline": text, "list": [text], text[:100] or "empty": 1, "text": Text(text)}
    with EventLog.open(database) as log:
        log.append("s", [NewEvent("t", data)])
    with EventLog.open(database) as log:
        (event,) = log.read()
        assert event.data["inline"] == event.data["list"][0] == stored(text)
        assert log.text(event.data["text"]["$ref"]) == stored(text)
        assert verify_file(log.path).ok


def test_events_of_eight_megabytes(database: Path, dice: Random) -> None:
    """Inside the event and as a text, among small ones that have to wait for them."""
    large = dice.randbytes(4 * MEGABYTE).hex()
    events = [
        NewEvent("t", {"large": large}),
        NewEvent("t", {"large": Text(large)}),
        NewEvent("t", {"large": Text(large[::-1])}),
    ]
    with EventLog.open(database) as log:
        tickets = [
            log.submit(Append("s", [event]), Append("small", [NewEvent("t", {})]))
            for event in events
        ]
        for ticket in tickets:
            ticket.result()
        assert [event.version for event in log.read(stream="small")] == [1, 2, 3]
    with EventLog.open(database) as log:
        inside, apart, turned = log.read(stream="s")
        assert inside.data["large"] == log.text(apart.data["large"]["$ref"]) == large
        assert log.text(turned.data["large"]["$ref"]) == large[::-1]
        assert verify_file(log.path).ok


def test_a_clock_that_goes_backwards(
    database: Path, dice: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Order and versions are those of the log, ids grow; the time is what the clock said."""
    now = 1_800_000_000_000_000_000

    def wander() -> int:
        nonlocal now
        now += dice.randrange(-3_600_000_000_000, 1_000_000_000)
        return now

    monkeypatch.setattr("kindlm_store.new_event._Clock._time_ns", staticmethod(wander))
    events = [NewEvent("t", {"n": number}) for number in range(200)]
    with EventLog.open(database) as log:
        for event in events:
            log.submit(Append("s", [event]))
    with EventLog.open(database) as log:
        read = list(log.read())
        assert [event.data["n"] for event in read] == list(range(200))
        assert [event.version for event in read] == list(range(1, 201))
        assert [event.at for event in read] == [event.at for event in events]
        assert [event.at for event in read] != sorted(event.at for event in read)
        assert [event.id for event in read] == sorted(event.id for event in read)
        assert verify_file(log.path).ok
