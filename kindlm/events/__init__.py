"""The event vocabulary: one dataclass for each type of event.

Writers and readers use the same dataclass. Type strings are stored, so they are never renamed. A
payload that changes its shape gets a higher `schema`; stored events stay as they are.

Content (prompts, replies, arguments, reasons, configurations) is `Authored`: the event holds the
text, and the store keeps each text once, by reference, so that it can be erased. Ids, names,
numbers and enums are in the stored event itself. If OpenTelemetry has a name for a fact
(`gen_ai.…`), the stored key is that name.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kindlm.events import execution_events, run
from kindlm.events.codec import EventError, OfAttempt, Payload, TextOf, read, values_in
from kindlm_store import EventLog, RecordedEvent

if TYPE_CHECKING:
    from kindlm_store.merging import Merge

STREAM_NAME = r"(run|journal)/[0-9A-Za-z_.-]{1,100}"

EVENTS: Mapping[str, type[Payload]] = {
    kind.type: kind
    for module in (run, execution_events)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Payload) and "type" in vars(kind)
}
"""All events by type, in the order of their modules."""


def load_event(type: str, data: Any, text_of: TextOf) -> Payload:  # noqa: A002
    """Return a stored event of a known type; raise `EventError` if the data does not fit it."""
    event: Payload = read(EVENTS[type], data, text_of)
    return event


_LIMITS = {"parameters.": 2**63 - 1, "tests[].repeat": 10_000, "": 10**12}
"""The largest numbers by the beginnings of their keys.

A parameter such as `seed` may be SQLite's largest integer. A later run plans each repeat of a test.
The sum of many other numbers must fit into SQLite.
"""


def require_known_form(recorded: RecordedEvent) -> None:
    """Raise `ValueError` for an event of another history that readers of the log could not read.

    Events of unknown types are accepted; projections ignore them.
    """
    if not re.fullmatch(STREAM_NAME, recorded.stream):
        raise ValueError(f"{recorded.stream!r} is neither a run nor a journal")
    event = EVENTS.get(recorded.type)
    if event is None:
        return
    if recorded.schema > event.SCHEMA:
        raise ValueError(f"{recorded.type} is in a newer form than this kindlm knows: update it")
    subject = recorded.subject or ""
    if issubclass(event, OfAttempt) and not re.fullmatch(r"[0-9]{1,15}\.[0-9]{1,15}", subject):
        raise ValueError(f"{recorded.type} has an impossible subject: {recorded.subject!r}")
    data = recorded.data
    for key, number in values_in(data):
        if isinstance(number, int | float):
            most = next(most for start, most in _LIMITS.items() if key.startswith(start))
            if not abs(number) <= most:  # also true for NaN
                raise ValueError(f"{recorded.type} {key}: the number is too large")
            if number < 0 and key.endswith("_usd"):
                # It would reduce the recorded cost of a resumed run, and so lift cost limits.
                raise ValueError(f"{recorded.type} {key}: a cost is never negative")
    try:
        load_event(recorded.type, data, str)
    except EventError as error:
        raise ValueError(f"{recorded.type} {'.'.join(error.path)}: {error.problem}") from None
    shard = data.get("shard") if event is run.RunStarted else None
    if shard is not None:
        part = re.fullmatch(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})", shard)
        if part is None or int(part[1]) > int(part[2]):
            what = f"{shard!r} is not one of up to 9,999, like 2/4"
            raise ValueError(f"{recorded.type} shard: {what}")


def merge_of(log: EventLog, source: sqlite3.Connection, path: Path, **more: Any) -> Merge:
    """Return the `Merge` of another log into a history, with the rules of kindlm's events.

    `more` are other fields of it, which take precedence over these rules.
    """
    from kindlm_store.merging import Merge  # most commands merge nothing

    rules = {"accept": require_known_form, "claims": run.SEALED_HEADS, "erasures": run.PURGES}
    fields: dict[str, Any] = rules | more
    return Merge(log, source, path, **fields)
