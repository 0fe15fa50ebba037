"""What cannot be said to a command, and baselines on the way of a conversation."""

from __future__ import annotations

from collections.abc import Iterator

from kindlm.config.diagnostics import Reporter
from kindlm.config.files import ReferencedFiles
from kindlm.config.interpolation import names_in
from kindlm.config.places import Path
from kindlm.config.raw import Raw, expectations, items, section, texts
from kindlm.errors import Ok


def check_conversations(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report what has no meaning for commands, and comparisons that have nothing to compare."""
    for path, test in items(raw, "tests"):
        if "command" in test:
            _check_command(path, test, reporter, files)
        elif "reportsTools" in test:
            reporter.error(
                (*path, "reportsTools"),
                "`reportsTools` of a test is about its `command`, and this one has none",
                "Move it to the agent, in `agents`; models need none",
                reason="schema",
                at_key=True,
            )
        for place, expect in expectations(test):
            if len(place) > 1 and section(expect, "baseline"):
                reporter.error(
                    (*path, *place, "baseline"),
                    "A baseline holds final texts: it cannot be compared with a text in between",
                    "Move it to the `expect` of the test",
                    reason="schema",
                    at_key=True,
                )


def _check_command(path: Path, test: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    if "prompt" in test:
        reporter.error(
            (*path, "prompt"),
            "`prompt` and `command` exclude each other: a command is sent no prompt",
            "Remove one of them; a variable of the test can be an argument of the command",
            reason="schema",
            at_key=True,
        )
    if test.get("conversation"):
        reporter.error(
            (*path, "conversation"),
            "A command is sent no messages: it runs once, and what it prints is its answer",
            "Remove `conversation`, or test an agent that can be talked to (`agents:`)",
            reason="schema",
            at_key=True,
        )
    used = {name for _, text in texts(test.get("command"), ()) for name in names_in(text)}
    if any("\0" in value for value in _values(test, used, files)):
        reporter.error(
            (*path, "command"),
            "An argument of this command holds the character U+0000, which no argument can",
            "Remove it from the variable",
            reason="command",
        )


def _values(test: Raw, names: set[str], files: ReferencedFiles) -> Iterator[str]:
    """Yield the values of variables, of the test itself and of its rows."""
    file = test.get("varsFrom")
    rows = files.rows(file) if isinstance(file, str) and file else None
    found = [row.values for row in rows.value.rows] if isinstance(rows, Ok) else []
    for values in (section(test, "vars"), *found):
        for name in names:
            value = values.get(name)
            if isinstance(value, str):
                yield value
