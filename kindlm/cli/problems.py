"""An error as text: what happened, how to fix it, the place with its line and a caret."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from kindlm.errors import DOCS, KindlmError, SourceLocation
from kindlm.reports.untrusted import visible

REFERENCE = f"{DOCS}/reference/errors/"
"""The page that explains each code; `kindlm explain CODE` prints its section offline."""

_SOURCE_WIDTH = 160
"""Characters of a source line that are shown; a line can be as long as a file may be."""

_DETAIL_WIDTH = 2_000


def render_problem(
    error: KindlmError,
    *,
    warning: bool = False,
    source_line: str | None = None,
    refer: bool = False,
    verbose: bool = False,
) -> Text:
    """Return an error, or a warning, as the lines a user sees; all texts made harmless.

    With `refer`, the last line says where to read more.
    """
    lines = _head(error.message, error.hint, warning=warning)
    if error.where is not None:
        lines += _place(error.where, source_line)
    if verbose:
        lines.append(Text(f"  code: {error.code.name} ({error.code.value})", style="dim"))
        for name, value in error.details.items():
            lines.append(Text(f"  {name}: {visible(str(value))[:_DETAIL_WIDTH]}", style="dim"))
        for line in (error.trace or "").rstrip().splitlines():
            lines.append(Text(f"  {visible(line)}", style="dim"))
    if refer:
        lines.append(Text(f"  See: {REFERENCE}#{error.code.name.lower()}", style="dim"))
    return Text("\n").join(lines)


def render_warning(message: str, hint: str | None) -> Text:
    """Return a warning that is about no place in a file, as the lines a user sees."""
    return Text("\n").join(_head(message, hint, warning=True))


def _head(message: str, hint: str | None, *, warning: bool) -> list[Text]:
    sign, style = ("! ", "bold yellow") if warning else ("✗ ", "bold red")
    lines = [Text(sign + visible(message), style=style)]
    if hint:
        lines.append(Text(f"  {visible(hint)}"))
    return lines


def _place(where: SourceLocation, source_line: str | None) -> Iterator[Text]:
    yield Text(f"  {visible(str(where))}", style="cyan")
    if source_line is None or where.line is None:
        return
    margin = f"  {where.line} │ "
    shown = visible(source_line[:_SOURCE_WIDTH])
    yield Text(margin + shown, style="dim")
    before = source_line[: (where.column or 1) - 1]
    if where.column is None or len(before) >= _SOURCE_WIDTH:
        return
    # Tabs stay tabs, so that the caret stands below its place however wide they are shown.
    indent = "".join("\t" if mark == "\t" else " " * cell_len(visible(mark)) for mark in before)
    yield Text(" " * (len(margin) - 2) + "│ " + indent) + Text("^", style="bold red")
