"""What all payloads have in common, and how they hold what somebody wrote."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from kindlm_store import Text

__all__ = [
    "Authored",
    "ContentRef",
    "Data",
    "Payload",
]


class Data(BaseModel):
    """A part of a payload."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, arbitrary_types_allowed=True
    )


class ContentRef(Data):
    """A text that is stored by reference, as it is read back from the log."""

    ref: str = Field(alias="$ref")


Authored = Text | ContentRef
"""A text that somebody wrote: `Text` when it is recorded, `ContentRef` when it is read back."""


class Payload(Data):
    """What all events have in common: they are immutable and know their type and schema."""

    SCHEMA: ClassVar[int] = 1

    type: str
