"""Looking at events that come from elsewhere, before they are in the log for good."""

from __future__ import annotations

import re
from functools import cache
from typing import get_args

from pydantic import ValidationError

from kindlm.events import Event, Payload, load_event
from kindlm_store import RecordedEvent

__all__ = ["require_known_form"]

_STREAM = re.compile(r"(run|journal)/[0-9A-Za-z_.-]{1,100}")


def require_known_form(recorded: RecordedEvent) -> None:
    """Raise `ValueError` for an event that readers of the log could not read.

    Events of unknown types are kept as they are; nobody folds them.
    """
    if not _STREAM.fullmatch(recorded.stream):
        message = f"{recorded.stream!r} is neither a run nor a journal"
        raise ValueError(message)
    model = _payloads().get(recorded.type)
    if model is None:
        return
    if recorded.schema > model.SCHEMA:
        message = f"{recorded.type} is in a newer form than this kindlm knows: update it"
        raise ValueError(message)
    try:
        load_event(recorded)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        message = f"{recorded.type} {place}: {first['msg']}"
        raise ValueError(message) from None


@cache
def _payloads() -> dict[str, type[Payload]]:
    """Return the payload of each type of event that this version knows."""
    models: tuple[type[Payload], ...] = get_args(get_args(Event)[0])
    return {model.model_fields["type"].default: model for model in models}
