"""Annotations for the form in which `kindlm.events.codec` stores a field of an event.

By default, a field is stored as it is, under its own name. A text among the annotations of a field
is its meaning, for the event reference.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Annotated, Any

from kindlm.dataclass import dataclass


class Form(Enum):
    """The form in which a field is stored, if not as it is."""

    TEXT = auto()
    """By reference: see `Authored`."""
    JSON = auto()
    """By reference: see `AuthoredJson`."""
    NOTE = auto()
    """By reference, but in events of earlier versions as it is: see `Note`."""
    NAME = auto()
    """Only its beginning: see `Name`."""
    OMITTED = auto()
    """Not stored if it is empty."""
    FLAG = auto()
    """Only whether it is set."""
    FLAT = auto()
    """Its fields are stored beside those of the value that contains it."""
    UNSTORED = auto()
    """Not stored."""


Authored = Annotated[str, Form.TEXT]
"""Text by a person or a model: the event has a reference to it, so that it can be erased."""

Note = Annotated[str, Form.NOTE]
"""Text by kindlm that may quote a model or an agent. It is stored like `Authored`; events of
earlier versions have the text itself."""

AuthoredJson = Annotated[Any, Form.JSON]
"""A JSON value by a person or a model: the event has a reference to its text."""

Name = Annotated[str, Form.NAME]
"""A name that a model or an agent may have invented. The event has its beginning, for filters; the
raw body has all of it."""

_LONGEST_NAME = 200


def bounded(name: str) -> str:
    """Return the stored beginning of a name."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


@dataclass(frozen=True, slots=True)
class Key:
    """The key that a field is stored under, if that is not its name."""

    key: str
