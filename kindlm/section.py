"""What all mappings of a configuration have in common: unknown keys and inexact types are errors.

Keys are written in camelCase in the file, and in snake_case in Python.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

__all__ = ["Section"]


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
