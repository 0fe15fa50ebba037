"""Writes the generated parts of the docs; `cog -r docs/*.md README.md` calls it."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kindlm import events
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
    return "\n".join([*sections, "## Parts\n", *_parts(parts)])


def _parts(parts: dict[str, type[BaseModel]]) -> Iterator[str]:
    """Yield a section for each part, and for the parts of these."""
    done: set[str] = set()
    while left := [name for name in parts if name not in done]:
        for name in left:
            done.add(name)
            yield _part(parts[name], parts)


def _event(model: type[Payload], parts: dict[str, type[BaseModel]]) -> str:
    name = model.model_fields["type"].default
    return f"### `{name}`\n\n{_text(model)} Schema {model.SCHEMA}.\n\n{_table(model, parts)}"


def _part(model: type[BaseModel], parts: dict[str, type[BaseModel]]) -> str:
    return f"### {model.__name__}\n\n{_text(model)}\n\n{_table(model, parts)}"


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

    from kindlm.cli.app import make_app

    return "\n".join(_help("kindlm", get_command(make_app()), None))


def _help(name: str, command: Any, parent: Any) -> Iterator[str]:
    """Yield the section of a command, then those of its subcommands."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    context.terminal_width = _HELP_WIDTH
    path, text = context.command_path, context.get_help().strip()
    yield f"## {path}\n\n```text\n$ {path} --help\n{text}\n```\n"
    for subname, subcommand in getattr(command, "commands", {}).items():
        yield from _help(subname, subcommand, context)
