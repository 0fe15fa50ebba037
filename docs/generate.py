"""Writes the generated parts of the docs; `cog -r docs/*.md README.md` calls it."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kindlm import events
from kindlm.config import json_schema
from kindlm.events import Authored, ContentRef, Payload

_HELP_WIDTH = 100

_TYPE_NAMES = {
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "NoneType": "null",
}


def event_reference() -> str:
    """Return a section for each event type, and one for each of their parts."""
    members = typing.get_args(typing.get_args(events.Event)[0])
    parts: dict[str, type[BaseModel]] = {}
    sections = [_event(model, parts) for model in members]
    return "\n".join([*sections, "## Parts\n", *(_part(model) for model in parts.values())])


def _event(model: type[Payload], parts: dict[str, type[BaseModel]]) -> str:
    name = model.model_fields["type"].default
    return f"### `{name}`\n\n{_text(model)} Schema {model.SCHEMA}.\n\n{_table(model, parts)}"


def _part(model: type[BaseModel]) -> str:
    return f"### {model.__name__}\n\n{_text(model)}\n\n{_table(model, {})}"


def _text(model: type[BaseModel]) -> str:
    return re.sub(r"\s+", " ", model.__doc__ or "").strip()


def _table(model: type[BaseModel], parts: dict[str, type[BaseModel]]) -> str:
    rows = ["| key | type | meaning |", "| --- | --- | --- |"]
    for name, field in model.model_fields.items():
        if name == "type":
            continue
        key = field.alias or name
        rows.append(f"| `{key}` | {_type(field, parts)} | {field.description or ''} |")
    return "\n".join(rows) + "\n" if len(rows) > 2 else "No payload.\n"


def _type(field: FieldInfo, parts: dict[str, type[BaseModel]]) -> str:
    text = " or ".join(dict.fromkeys(_names(field.annotation, parts)))
    return text if field.is_required() else f"{text}, optional"


def _names(annotation: Any, parts: dict[str, type[BaseModel]]) -> Iterator[str]:
    if annotation == Authored or annotation is ContentRef:
        yield "authored text"
        return
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        wanted = [argument for argument in arguments if argument is not type(None)]
        if ContentRef in wanted:
            yield "authored text"
            return
        for argument in wanted:
            yield from _names(argument, parts)
    elif origin is list:
        yield f"list of {' or '.join(_names(arguments[0], parts))}"
    elif origin is dict:
        yield f"object of {' or '.join(dict.fromkeys(_names(arguments[1], parts)))}"
    elif origin is typing.Literal:
        yield " \\| ".join(f"`{value}`" for value in arguments)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        parts[annotation.__name__] = annotation
        yield f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    else:
        yield _TYPE_NAMES.get(annotation.__name__, annotation.__name__)


def cli_reference() -> str:
    """Return a section for each command, with what its `--help` prints."""
    from typer.main import get_command

    from kindlm.cli.app import app

    return "\n".join(_help("kindlm", get_command(app), None))


def _help(name: str, command: Any, parent: Any) -> Iterator[str]:
    """Yield the section of a command, then those of its subcommands."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    context.terminal_width = _HELP_WIDTH
    path, text = context.command_path, context.get_help().strip()
    yield f"## {path}\n\n```text\n$ {path} --help\n{text}\n```\n"
    for subname, subcommand in getattr(command, "commands", {}).items():
        yield from _help(subname, subcommand, context)


def configuration_reference() -> str:
    """Return a section for each section of kindlm.yaml, the outer ones first."""
    schema = json_schema()
    places = _places(schema)
    return "\n".join(
        _config_section(schema if name == "" else schema["$defs"][name], found, places)
        for name, found in places.items()
    )


def _places(schema: dict[str, Any]) -> dict[str, list[str]]:
    """Return where each definition of the JSON Schema stands in the file, in order of depth."""
    places = {"": [""]}
    todo = [("", "", schema)]
    for _, place, section in todo:
        for key, field in section.get("properties", {}).items():
            for name, suffix in _references(field):
                inner = f"{place}.{key}{suffix}".lstrip(".")
                if inner not in places.setdefault(name, []):
                    places[name].append(inner)
                    if len(places[name]) == 1:
                        todo.append((name, inner, schema["$defs"][name]))
    return places


def _references(field: dict[str, Any], suffix: str = "") -> Iterator[tuple[str, str]]:
    if "$ref" in field:
        yield field["$ref"].rpartition("/")[2], suffix
    for branch in field.get("oneOf", ()):
        yield from _references(branch, suffix)
    if "items" in field:
        yield from _references(field["items"], f"{suffix}[]")
    if isinstance(field.get("additionalProperties"), dict):
        yield from _references(field["additionalProperties"], f"{suffix}.NAME")


def _config_section(
    section: dict[str, Any], found: list[str], places: dict[str, list[str]]
) -> str:
    title = f"`{found[0]}`" if found[0] else "The file"
    also = f" Likewise {', '.join(f'`{place}`' for place in found[1:])}." if found[1:] else ""
    rows = ["| key | type | default | example | meaning |", "| --- | --- | --- | --- | --- |"]
    required = section.get("required", [])
    for key, field in section["properties"].items():
        mark = " †" if field.get("x-kindlm-extension") else ""
        default = "required" if key in required else _code(field["default"]) if "default" in field else ""
        example = _code(field["examples"][0]) if "examples" in field else ""
        cells = [f"`{key}`{mark}", _config_type(field, places), default, example, _cell(field)]
        rows.append(f"| {' | '.join(cells)} |")
    return f"### {title}\n\n{section.get('description', '')}{also}\n\n" + "\n".join(rows) + "\n"


def _cell(field: dict[str, Any]) -> str:
    return str(field.get("description", "")).replace("|", "\\|")


def _code(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Texts as YAML has them, where it needs no quotes for them.
    plain = text[1:-1] if isinstance(value, str) and re.fullmatch(r"[\w./:-]+", value) else text
    return f"`{plain}`".replace("|", "\\|")


def _config_type(field: dict[str, Any], places: dict[str, list[str]]) -> str:
    if "$ref" in field:
        place = places[field["$ref"].rpartition("/")[2]][0]
        return f"[section](#{re.sub(r'[^a-z0-9_-]', '', place.lower())})"
    if "const" in field:
        return _code(field["const"])
    if "enum" in field:
        return " \\| ".join(_code(value) for value in field["enum"])
    if "oneOf" in field:
        return " or ".join(_config_type(branch, places) for branch in field["oneOf"])
    if field.get("type") == "array":
        return f"list of {_config_type(field['items'], places)}"
    if field.get("type") == "object":
        inner = field.get("additionalProperties")
        return f"mapping of {_config_type(inner, places)}" if isinstance(inner, dict) else "mapping"
    names = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
    return names.get(field.get("type", ""), "any value") + _range(field)


def _range(field: dict[str, Any]) -> str:
    low, high, above = (field.get(key) for key in ("minimum", "maximum", "exclusiveMinimum"))
    if low is not None and high is not None:
        return f" {low}–{high}"
    if above is not None:
        return f" above {above}"
    return f" from {low}" if low is not None else ""
