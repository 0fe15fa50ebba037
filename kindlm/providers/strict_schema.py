"""Which JSON Schemas OpenAI's strict structured output takes.

Strict mode makes the reply fit the schema for certain, and refuses a schema outside its subset of
JSON Schema: every object closed, every property required, no composition but `anyOf`, the root an
object. See https://platform.openai.com/docs/guides/structured-outputs (supported schemas).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["allows_strict"]

_VALUE_KEYWORDS = frozenset(
    {"$comment", "$schema", "const", "description", "enum", "exclusiveMaximum", "title", "type"}
    | {"exclusiveMinimum", "format", "maxItems", "maximum", "minItems", "minimum", "multipleOf"}
    | {"pattern"}
)
_OBJECT_KEYWORDS = frozenset({"additionalProperties", "properties", "required"})


def allows_strict(schema: Mapping[str, Any]) -> bool:
    """Tell whether a schema may be sent with `strict`."""
    return schema.get("type") == "object" and _allowed(schema)


def _allowed(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    children = [*_list(schema.get("anyOf"))]
    if "items" in schema:
        children.append(schema["items"])
    others = schema.keys() - _VALUE_KEYWORDS - {"anyOf", "items"}
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping) or schema.get("additionalProperties") is not False:
            return False
        if set(_list(schema.get("required"))) != properties.keys():
            return False
        children.extend(properties.values())
        others -= _OBJECT_KEYWORDS
    return not others and all(_allowed(child) for child in children)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
