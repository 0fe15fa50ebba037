"""What the journal notes of finished runs, for whoever verifies them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kindlm_store import RecordedEvent

__all__ = ["SEALED_HEADS"]


def _sealed_head(event: RecordedEvent) -> dict[str, str]:
    return {f"run/{event.data['run']}": event.data["head"]}


SEALED_HEADS: Mapping[str, Callable[[RecordedEvent], Mapping[str, str]]] = {
    "run.sealed": _sealed_head
}
"""Event type → the heads by stream that an event of it notes, as `verify_file` takes them."""
