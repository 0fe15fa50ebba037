"""What all mappings of a configuration have in common: unknown keys and inexact types are errors.

Keys are written in camelCase in the file, and in snake_case in Python.
"""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from textwrap import dedent
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel


class Section(BaseModel):
    """A mapping of the file."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: Any, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe the keys by the docstrings below them.

        pydantic can read these itself, but does so at each import: as long as all else together.
        """
        schema = handler(core_schema)
        keys = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in _docstrings(cls).items():
            field = cls.model_fields.get(name)
            key = None if field is None else keys.get(field.alias or name)
            if key is None or "description" in key:
                continue
            # What it refers to may say the same of itself.
            if "$ref" not in key or handler.resolve_ref_schema(key).get("description") != text:
                key["description"] = text
        return schema


def _docstrings(section: type[Section]) -> dict[str, str]:
    """Return what stands below the attributes of a section and those that it is made of."""
    found: dict[str, str] = {}
    for part in reversed(section.__mro__):
        if not issubclass(part, Section) or part is Section:
            continue
        try:
            (definition,) = ast.parse(dedent(inspect.getsource(part))).body
        except (OSError, SyntaxError):
            continue  # written nowhere, as in a shell
        for attribute, below in pairwise(getattr(definition, "body", ())):
            match attribute, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = inspect.cleandoc(text)
    return found
