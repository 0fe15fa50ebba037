"""Writes the reference of kindlm.yaml from its published JSON Schema, for `configuration.md`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from kindlm.config.published import long_schema
from kindlm.section import MAIN

Schema = dict[str, Any]

_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
_HEAD = "| key | type | default | example | meaning |\n| --- | --- | --- | --- | --- |"


def configuration_reference() -> str:
    """Return a table for each section of the file, in the order of the file."""
    schema = long_schema()
    return _Reference(schema).text()


class _Reference:
    def __init__(self, schema: Schema) -> None:
        self._definitions: dict[str, Schema] = {"": schema, **schema["$defs"]}
        self._places = _places(self._definitions)

    def text(self) -> str:
        return "\n".join(self._section(name) for name in self._places)

    def _section(self, name: str) -> str:
        section, (place, *others) = self._definitions[name], self._places[name]
        title = f"### `{place}`" if place else "### The whole file"
        also = f" The same keys: {', '.join(f'`{other}`' for other in others)}." if others else ""
        if MAIN in section:
            also += f" A value alone stands for `{section[MAIN]}`."
        required = _required(section)
        rows = [
            self._row(key, field, is_required=key in required)
            for key, field in section["properties"].items()
        ]
        return f"{title}\n\n{section['description']}{also}\n\n{_HEAD}\n" + "\n".join(rows) + "\n"

    def _row(self, key: str, field: Schema, *, is_required: bool) -> str:
        described = field.get("description") or self._definitions[_name(field)]["description"]
        default = _code(field["default"]) if "default" in field else "–"
        cells = (
            f"`{key}`" + (" †" if "x-kindlm-extension" in field else ""),
            self._type(field),
            "required" if is_required else default,
            _code(self._example(field)),
            described,
        )
        # What stands between backslash and bar is the cell's, also inside of code.
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    def _type(self, field: Schema) -> str:
        if "$ref" in field:
            place = self._places[_name(field)][0]
            label = place.replace("[]", "").removesuffix(".NAME").rpartition(".")[2]
            return f"[{label}](#{_anchor(place)})"
        if "const" in field or "enum" in field:
            return " | ".join(map(_code, field.get("enum", [field.get("const")])))
        if "oneOf" in field:
            return " or ".join(self._type(branch) for branch in field["oneOf"])
        if field.get("type") == "array":
            return f"list of {self._type(field['items'])}"
        if field.get("type") == "object":
            inner = field.get("additionalProperties")
            return f"mapping of {self._type(inner)}" if isinstance(inner, dict) else "mapping"
        return _TYPES.get(field.get("type", ""), "any value") + range_of(field)

    def _example(self, field: Schema) -> Any:
        """Return the field's own example, or one that is put together from those below it."""
        if "examples" in field:
            return field["examples"][0]
        if "$ref" in field:
            section = self._definitions[_name(field)]
            keys = _required(section) or list(section["properties"])[:1]
            return {key: self._example(section["properties"][key]) for key in keys}
        if field.get("type") == "array" and "items" in field:
            return [self._example(field["items"])]
        if isinstance(field.get("additionalProperties"), dict):
            return {"NAME": self._example(field["additionalProperties"])}
        if "default" in field:
            return field["default"]
        message = f"a key has no example, add Field(examples=[…]): {field.get('description')}"
        raise ValueError(message)


def _places(definitions: dict[str, Schema]) -> dict[str, list[str]]:
    """Return where each definition stands in the file, the outermost place first."""
    places: dict[str, list[str]] = {"": [""]}
    order: dict[str, tuple[int, ...]] = {"": ()}
    todo = [("", "")]
    for name, place in todo:
        for number, (key, field) in enumerate(definitions[name]["properties"].items()):
            for inner, suffix in _references(field, definitions):
                where = f"{place.partition(' with ')[0]}.{key}{suffix}".lstrip(".")
                places.setdefault(inner, []).append(where)
                if inner not in order:
                    order[inner] = (*order[name], number)
                    todo.append((inner, where))
    return {name: places[name] for name in sorted(places, key=order.__getitem__)}


def _references(
    field: Schema, definitions: dict[str, Schema], suffix: str = ""
) -> Iterator[tuple[str, str]]:
    if "$ref" in field:
        yield _name(field), suffix
    sections = 0
    for branch in field.get("oneOf", ()):
        # Another section at the same place is told apart by a key that the first one has not.
        key = next(iter(definitions[_name(branch)]["properties"])) if "$ref" in branch else ""
        yield from _references(branch, definitions, f"{suffix} with {key}" if sections else suffix)
        sections += "$ref" in branch
    if "items" in field:
        yield from _references(field["items"], definitions, f"{suffix}[]")
    if isinstance(field.get("additionalProperties"), dict):
        yield from _references(field["additionalProperties"], definitions, f"{suffix}.NAME")


def _name(field: Schema) -> str:
    return str(field["$ref"]).rpartition("/")[2]


def _required(section: Schema) -> list[str]:
    """Return the required keys; of two names for the same, the first."""
    either = [part["anyOf"][0]["required"][0] for part in section.get("allOf", ())]
    return [*section.get("required", ()), *either]


def _anchor(title: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _code(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[\w./:-]+", value):
        # Needs no quotes in YAML.
        return f"`{value}`"
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def range_of(field: Schema) -> str:
    """Return which numbers a field of a JSON Schema allows, nothing for any."""
    low, high, above = (field.get(key) for key in ("minimum", "maximum", "exclusiveMinimum"))
    if low is not None and high is not None:
        return f" {low:,} to {high:,}"
    if above is not None:
        return f" above {above:,}"
    return f" from {low:,}" if low is not None else ""
