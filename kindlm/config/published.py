"""The JSON Schema of kindlm.yaml, for editors."""

from __future__ import annotations

from typing import Any

from kindlm.config.schema import KindlmConfig

__all__ = ["json_schema"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema; `x-kindlm-extension` marks what goes beyond the format's version 1.

    It says less than `load_suite` checks: nothing of what refers to something else.
    """
    schema = _without_null(KindlmConfig.model_json_schema(by_alias=True))
    return {"$schema": _DIALECT, **schema, "title": "kindlm.yaml"}


def _without_null(schema: Any) -> Any:
    """Remove null from what may be left out: absent and null differ in the file."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _without_null(item) for key, item in schema.items() if key != "title"}
    branches = found.get("anyOf")
    if isinstance(branches, list) and {"type": "null"} in branches:
        rest = [item for item in branches if item != {"type": "null"}]
        del found["anyOf"]
        found |= rest[0] if len(rest) == 1 else {"anyOf": rest}
    # A section that is left out has the defaults of its keys.
    if found.get("default", ...) is None or "$ref" in found:
        found.pop("default", None)
    if isinstance(found.get("description"), str):
        found["description"] = " ".join(found["description"].split())
    return found
