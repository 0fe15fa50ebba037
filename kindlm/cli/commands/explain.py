"""`kindlm explain`: the meaning of an error code and its fix, from the docs, offline."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import fill

import typer

from kindlm.cli.console import REFERENCE, refuse
from kindlm.cli.options import argument

_IN_WHEEL = Path(__file__).parents[1] / "errors.md"
_IN_CHECKOUT = Path(__file__).parents[3] / "docs" / "reference" / "errors.md"

_SECTION = re.compile(r"^### (\w+)\n\n\*\*(\d+)\.\*\* (.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `(\w+)` \| (.*) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def explain_command(
    code: str | None = argument(
        "CODE", "An error code, its number, or a failure code.", default=None
    ),
) -> None:
    """Explain an error code, or list all codes."""
    page = _LINK.sub(r"\1", (_IN_WHEEL if _IN_WHEEL.is_file() else _IN_CHECKOUT).read_text("utf-8"))
    errors = {name: (number, text.strip()) for name, number, text in _SECTION.findall(page)}
    failures = dict(_ROW.findall(page))
    width = min(shutil.get_terminal_size().columns, 100)
    if code is None:
        first = {f"{number} {name}": text for name, (number, text) in errors.items()}
        typer.echo("\n".join(["Errors:", *_table(first)]))
        typer.echo("\n".join(["\nFailed checks:", *_table(failures)]))
        return
    numbers = {number: name for name, (number, _) in errors.items()}
    name = numbers.get(code, code.upper().replace("-", "_"))
    if name in errors:
        number, text = errors[name]
        typer.echo(f"{name} ({number})\n\n{_wrapped(text, width)}\n\n{REFERENCE}#{name.lower()}")
    elif name in failures:
        text = _wrapped(failures[name], width)
        typer.echo(f"{name}, a failed check\n\n{text}\n\n{REFERENCE}#codes-of-assertions")
    else:
        refuse(f'There is no code "{code}".', "List all codes: kindlm explain")


def _table(texts: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each code, with the beginning of its meaning."""
    width = max(map(len, texts))
    for name, text in texts.items():
        beginning = re.split(r"[.:;](?:\s|\Z)", text, maxsplit=1)[0]
        yield f"  {name:{width}}  {beginning}"


def _wrapped(text: str, width: int) -> str:
    """Return Markdown paragraphs and lists as lines that fit a terminal."""
    blocks = re.split(r"\n\n+|\n(?=- )", text)
    return "\n\n".join(fill(block, width, break_on_hyphens=False) for block in blocks)
