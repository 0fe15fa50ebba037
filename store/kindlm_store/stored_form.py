"""What a stored event must look like: the form in which an append would have stored it.

An event that comes from another file is held to it before it is taken: nothing can be taken back.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kindlm_store.events import Text, is_timestamp
from kindlm_store.payload import prepare, scrub

if TYPE_CHECKING:
    from kindlm_store.copies import StoredEvent

_UUID_BYTES = 16
_TEXT_REF = re.compile(r"[A-Za-z0-9_-]{32}")


def require_form(event: StoredEvent, version: int) -> None:
    """Refuse an event with a value that no append would have stored.

    Raises:
        ValueError: There is one.
    """
    kinds = (type(event.id), type(event.schema), type(event.at), type(event.data), type(event.hash))
    if (
        kinds != (bytes, int, str, str, bytes)
        or event.version != version
        or len(event.id) != _UUID_BYTES
        or event.schema < 1
        or not is_timestamp(event.at)
        or not is_name(event.type)
        or not (event.subject is None or is_name(event.subject))
    ):
        message = f"event {version:,} is not in the stored form"
        raise ValueError(message)


def is_name(value: object) -> bool:
    """Whether a value can be the name of a stream, a type or a subject."""
    return isinstance(value, str) and bool(value) and scrub(value) == value


def read_data(event: StoredEvent) -> tuple[dict[str, Any], list[str]]:
    """Return the data of an event, and what it refers to.

    Raises:
        ValueError: It is not what an append would have stored.
    """
    try:
        submitted = json.loads(event.data, object_hook=_as_submitted)
        payload = prepare(submitted, str)
        refs = [gap.body for gap in payload.gaps if isinstance(gap, Text)]
        filled = payload.fill(f'{{"$ref":"{ref}"}}' for ref in refs)
    except (ValueError, RecursionError, TypeError) as error:
        message = f"event {event.version:,}: {error}"
        raise ValueError(message) from None
    if filled != event.data:
        message = f"event {event.version:,}: data is not in canonical form"
        raise ValueError(message)
    data: dict[str, Any] = json.loads(event.data)
    return data, refs


def _as_submitted(members: dict[str, Any]) -> Any:
    """Put a `Text` in the place of each reference: so a payload is checked as when submitted."""
    if "$ref" not in members:
        return members
    ref = members["$ref"]
    if len(members) != 1 or not isinstance(ref, str) or not _TEXT_REF.fullmatch(ref):
        message = "$ref is no reference to a text"
        raise ValueError(message)
    return Text(ref)
