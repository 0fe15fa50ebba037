"""Annotations for the form in which a field of an event is stored.

Each field is stored under its own name, unless its annotation says otherwise: another key, a text
that goes into `contents` with only a reference in the event, or a field that is not stored.
`kindlm.events.codec` writes and reads by these annotations.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Annotated, Any

from kindlm.dataclass import dataclass


class Form(Enum):
    """In which form a field is stored, if not as it is."""

    TEXT = auto()
    """By reference: see `Authored`."""
    JSON = auto()
    """By reference: see `AuthoredJson`."""
    NOTE = auto()
    """By reference, and in events of earlier versions as it is: see `Note`."""
    NAME = auto()
    """Its beginning only: see `Name`."""
    OMITTED = auto()
    """An empty text is not stored."""
    FLAG = auto()
    """Whether the field is set is stored, not what it holds."""
    FLAT = auto()
    """The fields of this value are stored beside those of the one that holds it."""
    UNSTORED = auto()
    """Not at all."""


Authored = Annotated[str, Form.TEXT]
"""A text that a person or model wrote: it is stored by reference, and can be erased."""

Note = Annotated[str, Form.NOTE]
"""What kindlm says and may quote a model or an agent in: stored as `Authored`.

Events of earlier versions hold the text itself.
"""

AuthoredJson = Annotated[Any, Form.JSON]
"""A JSON value that a person or model wrote: it is stored by reference, as its text."""

Name = Annotated[str, Form.NAME]
"""A name that a model or an agent may have made up: the event holds its beginning only.

It stands in the event itself, so that it can be filtered by; the raw body keeps it whole.
"""

_LONGEST_NAME = 200


def bounded(name: str) -> str:
    """Return the beginning of a name, as it is stored."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


@dataclass(frozen=True, slots=True)
class Key:
    """The key that a field is stored under, if that is not its name."""

    key: str


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a field means, for the event reference."""

    text: str
