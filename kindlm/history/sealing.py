"""What the journal notes of runs, for whoever verifies or merges them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kindlm_store import RecordedEvent
from kindlm_store.erasing import Erasure, Erasures

SEALED_HEADS: Mapping[str, Callable[[RecordedEvent], Mapping[str, str]]] = {
    "run.sealed": lambda event: {f"run/{event.data['run']}": event.data["head"]}
}
"""Event type → the heads by stream that an event of it notes, as `verify_file` takes them."""


def _purge(event: RecordedEvent) -> Erasure:
    refs, names = event.data.get("refs"), event.data.get("runs", [])
    if not (_are_names(names) and (refs is None or _are_names(refs))):
        # Not of kindlm: what cannot be understood erases nothing.
        return Erasure((), frozenset[str]().__contains__)
    runs = {f"run/{run}" for run in names}

    def covers(stream: str) -> bool:
        # The notes on runs, in journals, were erased with them.
        return not runs or stream in runs or stream.startswith("journal/")

    return Erasure(refs, covers)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


PURGES: Erasures = {"contents.purged": _purge}
"""Event type → the texts that an event of it erased, as `verify_file` and `take` need them."""
