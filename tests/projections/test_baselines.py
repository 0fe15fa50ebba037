"""The table of baselines is the same in whatever order the journals arrive."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm.events.codec import new_event
from kindlm.events.run import BaselineRemoved, BaselineSet
from kindlm.projections import PROJECTIONS
from kindlm_store import Append, EventLog, NewEvent

Row = tuple[str | None, ...]


class Entry(NamedTuple):
    """An entry of a journal; `run` is None where a baseline is removed."""

    journal: int
    suite: str
    label: str | None
    run: str | None
    second: int
    number: int

    @property
    def at(self) -> str:
        return f"2026-01-01T00:00:{self.second:02}.000000Z"

    @property
    def id(self) -> UUID:
        return UUID(int=self.number)

    @property
    def key(self) -> tuple[str, str]:
        return self.suite, self.label or ""

    def event(self) -> NewEvent:
        about = {"project": "shop", "suite": self.suite, "label": self.label, "by": "me@here"}
        payload = (
            BaselineRemoved(**about) if self.run is None else BaselineSet(**about, run=self.run)
        )
        plain = new_event(payload)
        event = NewEvent(plain.type, plain.data, at=self.at)
        event.raw_id = self.id.bytes
        return event


entries = st.lists(
    st.builds(
        Entry,
        journal=st.integers(1, 3),
        suite=st.sampled_from(["a", "b"]),
        label=st.sampled_from([None, "release"]),
        run=st.sampled_from([None, "run1", "run2"]),
        # Few moments: entries of the same one are ordered by their ids.
        second=st.integers(0, 3),
        number=st.integers(1, 2**120),
    ),
    max_size=10,
    unique_by=lambda entry: entry.number,
)


def tables(log: EventLog) -> tuple[list[Row], list[Row]]:
    with closing(log.reader()) as reader:
        return (
            [tuple(row) for row in reader.execute("SELECT * FROM baselines ORDER BY suite, label")],
            [
                tuple(row)
                for row in reader.execute("SELECT suite, label, run FROM active_baselines")
            ],
        )


def arrived(entries: Sequence[Entry], *, together: bool) -> tuple[list[Row], list[Row]]:
    """Return the table and the view after entries arrived in this order, and were folded anew."""
    appends = [Append(f"journal/{entry.journal}", (entry.event(),)) for entry in entries]
    with (
        tempfile.TemporaryDirectory() as folder,
        EventLog.open(Path(folder) / "kindlm.db", projections=PROJECTIONS) as log,
    ):
        if together and appends:
            log.submit(*appends).result()
        for append in [] if together else appends:
            log.submit(append).result()
        folded = tables(log)
        log.rebuild()
        assert tables(log) == folded
        assert not log.projection_errors()
        return folded


def expected(entries: Sequence[Entry]) -> tuple[set[Row], set[Row]]:
    """Return what should be in the table and in the view, from the definition."""
    newest: dict[tuple[str, str], Entry] = {}
    for entry in sorted(entries, key=lambda entry: (entry.at, str(entry.id))):
        newest[entry.key] = entry
    active: dict[str, Entry] = {}
    for entry in sorted(newest.values(), key=lambda entry: (entry.at, str(entry.id))):
        if entry.run is not None:
            active[entry.suite] = entry
    return (
        {("shop", *e.key, e.run, None, "me@here", e.at, str(e.id)) for e in newest.values()},
        {(*e.key, e.run) for e in active.values()},
    )


@examples(10)
@given(entries, st.randoms(use_true_random=False), st.booleans())
def test_any_order_of_arrival_gives_the_same(
    entries: list[Entry], order: random.Random, together: bool
) -> None:
    shuffled = list(entries)
    order.shuffle(shuffled)

    table, view = arrived(shuffled, together=together)

    assert (set(table), set(view)) == expected(entries)
    assert len(view) == len({row[0] for row in view}), "one of a suite is active"


def test_what_was_removed_stays_removed_when_an_older_journal_arrives() -> None:
    removed = Entry(1, "a", None, None, second=2, number=1)
    older = Entry(2, "a", None, "run1", second=1, number=2)

    _, view = arrived([removed, older], together=False)

    assert view == []


def test_a_label_of_its_own_is_removed_alone() -> None:
    entries = [
        Entry(1, "a", None, "run1", second=1, number=1),
        Entry(1, "a", "release", "run2", second=2, number=2),
        Entry(1, "a", "release", None, second=3, number=3),
    ]

    assert arrived(entries[:2], together=False)[1] == [("a", "release", "run2")]
    assert arrived(entries, together=False)[1] == [("a", "", "run1")]
