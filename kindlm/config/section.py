"""What all sections of kindlm.yaml have in common: strictness, and the types of their values."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from kindlm.bounds import MAX_CONCURRENCY, MAX_REPEAT, MAX_TIMEOUT_S
from kindlm.config.values import check_pattern, check_url, integral, not_null

__all__ = [
    "EXTENSION",
    "WHOLE",
    "Concurrency",
    "Count",
    "Maybe",
    "Milliseconds",
    "Pattern",
    "Positive",
    "Repeat",
    "Score",
    "Seconds",
    "Section",
    "Text",
    "Url",
]

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


class Section(BaseModel):
    """A mapping of the file."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )
