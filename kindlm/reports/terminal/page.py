"""A page for a terminal: lines with an indent, wrapped to the width, with or without colour.

Content never becomes markup. Without colour, only text is written.
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
"""A piece of a line, with a style such as `bold red` or without."""

_NARROWEST = 40
_GAP = 2

_MARKS: dict[str, tuple[str, str]] = {
    Status.PASSED: ("✓", "green"),
    Status.FAILED: ("✗", "red"),
    Status.ERRORED: ("!", "magenta"),
    Status.SKIPPED: ("-", "dim"),
    Outcome.INCONCLUSIVE: ("?", "magenta"),
}


def mark(outcome: str) -> tuple[str, str]:
    """Return the sign for a status or an outcome, with its colour."""
    return _MARKS[outcome]


class Page:
    """Writes lines to a stream. `has_blocks` says whether any of them was empty.

    `root` is that of the project, if paths are to be shown as they are from the current folder.
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
            legacy_windows=False,
            markup=False,
            highlight=False,
            emoji=False,
        )

    def typed(self, command: str) -> str:
        """Return a command as it has to be typed: a history that was named is named again."""
        if self._database is None:
            return command
        return f"{command} --db {shlex.quote(visible(self._database))}"

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
        """Write text, wrapped at the width; lines after the first are indented by `hang` more."""
        text = Text.assemble(*parts)
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
        """Write a line that is never wrapped, so that it can be copied: a path, a command."""
        self._put(Text.assemble(*parts), indent)

    def ends(self, parts: Sequence[Part], end: str) -> None:
        """Write text with an end at the right margin, or below it where it does not fit."""
        text = Text.assemble(*parts)
        room = self.width - text.cell_len - cell_len(end)
        if room >= _GAP:
            self._put(Text.assemble(text, " " * room, (end, "dim")), 0)
        else:
            self.line(*parts, hang=2)
            self.line((end, "dim"), indent=max(self.width - cell_len(end), 2))

    BETWEEN = "  ·  "
    """Stands between facts in one line."""

    def packed(self, head: Part, facts: Sequence[str]) -> None:
        """Write facts after one another; one that does not fit begins the next line."""
        line = Text.assemble(head, facts[0])
        for fact in facts[1:]:
            if line.cell_len + cell_len(self.BETWEEN + fact) > self.width:
                self.line(line, hang=2)
                line = Text(f"  {fact}")
            else:
                line.append(self.BETWEEN + fact)
        self.line(line, hang=2)

    def row(self, name: str, text: str, indent: int = 0, width: int = 10, end: str = "") -> bool:
        """Write a name and a text beside it; return whether the end had room at the margin."""
        label, body = Text(name.ljust(width), "dim"), Text(text)
        body.expand_tabs(4)
        room = self.width - indent - width
        gap = room - body.cell_len - cell_len(end)
        if end and gap >= _GAP and "\n" not in text:
            self._put(Text.assemble(label, body, " " * gap, (end, "dim")), indent)
            return True
        for paragraph in body.split("\n", allow_blank=True):
            for wrapped in paragraph.wrap(self._console, max(room, _NARROWEST // 2)):
                wrapped.rstrip()
                self._put(label + wrapped, indent)
                label = Text(" " * width)
        return False

    def fields(self, rows: list[tuple[str, str]], indent: int = 0) -> None:
        """Write names and texts in two columns."""
        width = max((len(name) for name, _ in rows), default=0) + 2
        for name, text in rows:
            self.row(name, text, indent, width)

    def _put(self, text: Text, indent: int) -> None:
        self._begun = True
        margin = Text(" " * indent if text.plain else "")
        self._console.print(margin + text, soft_wrap=True)
