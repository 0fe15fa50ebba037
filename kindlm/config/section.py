"""The types of the values in kindlm.yaml, and the sections that packages add keys to."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, PrivateAttr

from kindlm.bounds import MAX_CONCURRENCY, MAX_REPEAT, MAX_TIMEOUT_S
from kindlm.config.values import check_pattern, check_url, integral, not_null
from kindlm.section import Section

T = TypeVar("T")


EXTENSION: dict[str, Any] = {"x-kindlm-extension": True}
"""Marks what the published JSON Schema has beyond the KindLM config schema v1."""

Maybe = Annotated[T | None, BeforeValidator(not_null)]
"""A value that may be left out, but not be empty."""

Text = Annotated[str, Field(min_length=1)]
Score = Annotated[float, Field(ge=0, le=1)]
WHOLE = BeforeValidator(integral)
Count = Annotated[int, Field(ge=0), WHOLE]
Repeat = Annotated[int, Field(ge=1, le=MAX_REPEAT), WHOLE]
Concurrency = Annotated[int, Field(ge=1, le=MAX_CONCURRENCY), WHOLE]
Milliseconds = Annotated[int, Field(ge=1000), WHOLE]
Positive = Annotated[float, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, le=MAX_TIMEOUT_S)]
Url = Annotated[str, BeforeValidator(check_url)]
Pattern = Annotated[str, BeforeValidator(check_pattern)]


class Open(Section):
    """A mapping that packages add keys to: `added` holds them as JSON values, validated."""

    _added: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def added(self) -> dict[str, Any]:
        """The keys of packages, as they are written in the file, with their defaults."""
        return self._added

    def add(self, written: dict[str, Any]) -> None:
        """Add keys of packages, before anything reads the section."""
        self._added.update(written)
