"""Writes lines to a terminal: indented, wrapped to its width, with or without colour.

Content is never read as markup of `rich`, and unreadable characters in it are written out.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from kindlm.outcome import Outcome, Status
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import visible

Part = str | tuple[str, str] | Text
"""A part of a line; a tuple adds a style, such as `bold red`."""

_NARROWEST = 40
_GAP = 2

BETWEEN = "  ·  "
"""Separates facts in one line."""

MARKS: dict[str, tuple[str, str]] = {
    Status.PASSED: ("✓", "green"),
    Status.FAILED: ("✗", "red"),
    Status.ERRORED: ("!", "magenta"),
    Status.SKIPPED: ("-", "dim"),
    Outcome.INCONCLUSIVE: ("?", "magenta"),
}
"""The sign for each status and outcome, with its colour."""


def _joined(*parts: Part) -> Text:
    """Return the parts as one text that is safe to print."""
    text = Text()
    for part in parts:
        if isinstance(part, tuple):
            text.append(visible(part[0]), part[1])
        else:
            text.append(part if isinstance(part, Text) else visible(part))
    return text


class Page:
    """Writes lines to a stream. `has_blocks` says whether an empty line separated any of them.

    `root` is that of the project: paths are shown relative to the current folder if it is given.
    """

    def __init__(self, out: TextIO, options: ReportOptions) -> None:
        self.verbose, self.color, self.root = options.verbose, options.color, options.root
        self._database = options.database
        self.width = max(options.width, _NARROWEST)
        self.has_blocks = self._begun = False
        self._console = Console(
            file=out,
            width=self.width,
            color_system="standard" if options.color else None,
            force_terminal=options.color,
            no_color=not options.color,
            markup=False,
            highlight=False,
            emoji=False,
        )

    def typed(self, command: str) -> str:
        """Return a command with the history that the user named, unless it needs or names none."""
        if self._database is None or " --db " in command or command.startswith("kindlm validate"):
            return command
        option = "--kindlm-db" if command.startswith("pytest ") else "--db"
        return f"{command} {option} {shlex.quote(self._database)}"

    def blank(self) -> None:
        """Write an empty line, unless it would be the first."""
        self.has_blocks = True
        if self._begun:
            self._console.print()

    def heading(self, text: str) -> None:
        """Write a heading with an empty line before it."""
        self.blank()
        self.line((text, "bold"))

    def line(self, *parts: Part, indent: int = 0, hang: int = 0) -> None:
        """Write text, wrapped at the width; further lines are indented by `hang` more."""
        text = _joined(*parts)
        text.expand_tabs(4)
        margin = indent
        if indent + text.cell_len <= self.width and "\n" not in text.plain:
            hang = 0
        room = max(self.width - indent - hang, _NARROWEST // 2)
        for paragraph in text.split("\n", allow_blank=True):
            for wrapped in paragraph.wrap(self._console, room, overflow="fold"):
                wrapped.rstrip()
                self._put(wrapped, margin)
                margin = indent + hang

    def unbroken(self, *parts: Part, indent: int = 0) -> None:
        """Write a line without wrapping, so that a path or a command in it can be copied."""
        self._put(_joined(*parts), indent)

    def ends(self, parts: Sequence[Part], end: str) -> None:
        """Write text with `end` at the right margin, or on the next line if it does not fit."""
        text = _joined(*parts)
        room = self.width - text.cell_len - cell_len(end)
        if room >= _GAP:
            self._put(_joined(text, " " * room, (end.rstrip(), "dim")), 0)
        else:
            self.line(*parts, hang=2)
            self.line((end.rstrip(), "dim"), indent=max(self.width - cell_len(end), 2))

    def packed(self, head: Part, facts: Sequence[str]) -> None:
        """Write facts after one another; a fact that does not fit begins a new line.

        After a fact with a comma at its end, a space replaces the sign between facts.
        """
        line = _joined(head, facts[0])
        for fact in map(visible, facts[1:]):
            gap = " " if line.plain.endswith(",") else BETWEEN
            if line.cell_len + cell_len(gap + fact) > self.width:
                self.line(line, hang=2)
                line = Text(f"  {fact}")
            else:
                line.append(gap + fact)
        self.line(line, hang=2)

    def row(self, name: str, text: str, indent: int = 0, width: int = 10, end: str = "") -> bool:
        """Write a name and a text beside it; return whether `end` fitted at the right margin."""
        label, body = _joined((name.ljust(width), "dim")), _joined(text)
        body.expand_tabs(4)
        room = self.width - indent - width
        gap = room - body.cell_len - cell_len(end)
        if end and gap >= _GAP and "\n" not in text:
            self._put(_joined(label, body, " " * gap, (end, "dim")), indent)
            return True
        for paragraph in body.split("\n", allow_blank=True):
            for wrapped in paragraph.wrap(self._console, max(room, _NARROWEST // 2)):
                wrapped.rstrip()
                self._put(label + wrapped, indent)
                label = Text(" " * width)
        return False

    def fields(self, rows: list[tuple[str, str]], indent: int = 0) -> None:
        """Write pairs of a name and a text in two columns."""
        width = max((len(name) for name, _ in rows), default=0) + 2
        for name, text in rows:
            self.row(name, text, indent, width)

    def _put(self, text: Text, indent: int) -> None:
        self._begun = True
        margin = Text(" " * indent if text.plain else "")
        self._console.print(margin + text, soft_wrap=True)
