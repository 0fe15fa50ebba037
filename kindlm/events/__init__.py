"""The event vocabulary: one dataclass for each type of event.

An event is one value: made where the fact is seen, recorded, and read back.
Type strings are stable: they are stored, never renamed. A payload that changes its shape gets a
higher `SCHEMA`; stored events stay as they are. What authors wrote (prompts,
replies, arguments, reasons, configurations) is `Authored`: the event holds the text, the store
keeps it once and by reference, and it can be erased. Ids, names, numbers and enums are in the
stored event itself. Where OpenTelemetry has a name for a fact (`gen_ai.…`), the stored key is that
name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindlm.events import execution_events, run
from kindlm.events.codec import Payload, TextOf, read

EVENTS: Mapping[str, type[Payload]] = {
    kind.type: kind
    for module in (run, execution_events)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Payload) and "type" in vars(kind)
}
"""All events by their types, in the order in which their modules have them."""


def load_event(type: str, data: Any, text_of: TextOf) -> Payload:  # noqa: A002
    """Return the event that is stored under a type that is known.

    Raises:
        EventError: Its data is not that of such an event.
    """
    event: Payload = read(EVENTS[type], data, text_of)
    return event
