"""Writes the generated parts of the docs; cog calls it: see docs/contributing/docs.md."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from kindlm.events import EVENTS
from kindlm.events.codec import Payload, stored_fields
from kindlm.stored_form import Form
from kindlm_store import HeadOf

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
    parts: dict[str, type] = {}
    sections = [_event(event, parts) for event in EVENTS.values()]
    return "\n".join([*sections, "## Parts\n", *_parts(parts)])


def _parts(parts: dict[str, type]) -> Iterator[str]:
    """Yield a section for each part, and for the parts of these."""
    done: set[str] = set()
    while left := [name for name in parts if name not in done]:
        for name in left:
            done.add(name)
            yield _part(parts[name], parts)


def _event(event: type[Payload], parts: dict[str, type]) -> str:
    head = f"### `{event.type}`\n\n{_text(event)} Schema {event.SCHEMA}."
    return f"{head}\n\n{_table(event, parts)}"


def _part(part: type, parts: dict[str, type]) -> str:
    # What follows the first paragraph is about the value in memory.
    return f"### {part.__name__}\n\n{_text(part, paragraphs=1)}\n\n{_table(part, parts)}"


def _text(kind: type, paragraphs: int | None = None) -> str:
    written = (kind.__doc__ or "").split("\n\n")[:paragraphs]
    return re.sub(r"\s+", " ", "\n".join(written)).strip()


def _table(kind: type, parts: dict[str, type]) -> str:
    rows = list(_rows(kind, parts))
    if not rows:
        return "No payload.\n"
    return "\n".join(["| key | type | meaning |", "| --- | --- | --- |", *rows]) + "\n"


def _rows(kind: type, parts: dict[str, type]) -> Iterator[str]:
    for field in stored_fields(kind):
        if field.key is None:
            yield from _rows(field.annotation, parts)
            continue
        meaning = next((mark for mark in field.marks if isinstance(mark, str)), "")
        text = " or ".join(dict.fromkeys(_names(field.annotation, field.marks, parts)))
        if not field.is_required:
            text += ", optional"
        yield f"| `{field.key}` | {text} | {meaning} |"


def _names(annotation: Any, marks: tuple[Any, ...], parts: dict[str, type]) -> Iterator[str]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if {Form.TEXT, Form.JSON, Form.NOTE}.intersection(marks):
        yield "authored text"
    elif Form.FLAG in marks:
        yield "boolean"
    elif origin in (typing.Union, types.UnionType):
        for argument in arguments:
            if argument is not type(None):
                yield from _names(argument, (), parts)
    elif origin in (Sequence, tuple):
        yield f"list of {' or '.join(_names(arguments[0], (), parts))}"
    elif origin is Mapping:
        yield f"object of {' or '.join(dict.fromkeys(_names(arguments[1], (), parts)))}"
    elif origin is typing.Literal:
        yield " \\| ".join(f"`{value}`" for value in arguments)
    elif origin is typing.Annotated:
        yield from _names(arguments[0], tuple(arguments[1:]), parts)
    elif is_dataclass(annotation) and annotation is not HeadOf:
        parts[annotation.__name__] = annotation
        yield f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    else:
        yield _TYPE_NAMES.get(annotation.__name__, annotation.__name__)


def cli_reference() -> str:
    """Return a section for each command, with what its `--help` prints."""
    from kindlm.cli.app import load_command

    return "\n".join(_help("kindlm", load_command(""), None))


def _help(name: str, command: Any, parent: Any) -> Iterator[str]:
    """Yield the section of a command, then those of its subcommands."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    context.terminal_width = _HELP_WIDTH
    path, text = context.command_path, context.get_help().strip()
    yield f"## {path}\n\n```text\n$ {path} --help\n{text}\n```\n"
    for subname in getattr(command, "commands", ()):
        yield from _help(subname, command.get_command(context, subname), context)
