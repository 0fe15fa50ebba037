"""Errors as a user sees them, and when colours are used."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from kindlm.cli import console
from kindlm.cli.console import render_problem, report_crash
from kindlm.errors import ErrorCode, KindlmError, SourceLocation
from kindlm_store import ProjectionError

ERROR = KindlmError(
    ErrorCode.CONFIG_VALIDATION_ERROR,
    'Unknown key "tool_caled"',
    'Did you mean "toolCalls"?',
    where=SourceLocation("kindlm.yaml", 23, 7),
    details={"reason": "schema"},
    trace="Traceback (most recent call last):\n  ...",
)


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_an_error_says_what_how_and_where() -> None:
    assert render_problem(ERROR, source_line="      tool_caled: x").plain == (
        '✗ Unknown key "tool_caled"\n'
        '  Did you mean "toolCalls"?\n'
        "  kindlm.yaml:23:7\n"
        "  23 │       tool_caled: x\n"
        "     │       ^"
    )


def test_details_are_shown_when_asked_for() -> None:
    shown = render_problem(ERROR, verbose=True).plain
    assert "code: CONFIG_VALIDATION_ERROR (102)" in shown
    assert "reason: schema" in shown
    assert "Traceback" in shown


@pytest.mark.parametrize(
    ("line", "column", "cells"),
    [
        ("key: x", 1, 0),
        ("ключ: x", 7, 6),
        ("日本: x", 5, 6),
        ("a\x1bb: x", 3, 5),
        ("\tkey: x", 2, 1),
    ],
)
def test_the_caret_stands_below_its_column(line: str, column: int, cells: int) -> None:
    where = SourceLocation("kindlm.yaml", 1, column)
    error = KindlmError(ErrorCode.CONFIG_PARSE_ERROR, "x", where=where)
    _, _, source, caret = render_problem(error, source_line=line).plain.split("\n")
    margin = source.index("│") + 2
    assert caret.index("^") == margin + cells
    # A tab is as wide as the terminal makes it: it stands in both lines.
    assert caret.count("\t") == line.count("\t")


def test_a_place_behind_what_is_shown_has_no_caret() -> None:
    where = SourceLocation("kindlm.yaml", 1, 5000)
    error = KindlmError(ErrorCode.CONFIG_PARSE_ERROR, "x", where=where)
    assert "^" not in render_problem(error, source_line="a" * 6000).plain


def test_escape_sequences_in_an_error_do_not_reach_the_terminal() -> None:
    error = KindlmError(ErrorCode.CONFIG_PARSE_ERROR, "\x1b[2Jgone", "\x1b]0;title\x07")
    assert "\x1b" not in render_problem(error, source_line="\x1b[31m").plain


@pytest.mark.parametrize(
    ("environ", "terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
        ({"CI": "true"}, True, True),
    ],
)
def test_when_colours_are_used(environ: dict[str, str], terminal: bool, expected: bool) -> None:
    stream = Terminal() if terminal else io.StringIO()
    assert console.wants_color(stream, environ) is expected


@pytest.mark.parametrize(
    ("environ", "terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"CI": "true"}, True, False),
        ({"FORCE_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_when_a_person_watches(environ: dict[str, str], terminal: bool, expected: bool) -> None:
    stream = Terminal() if terminal else io.StringIO()
    assert console.is_interactive(stream, environ) is expected


def test_errors_are_red_where_colours_are_forced(
    kindlm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = kindlm("runs").err
    monkeypatch.setenv("NO_COLOR", "1")
    plain = kindlm("runs").err
    assert coloured.startswith("\x1b[1;31m✗")
    assert plain.startswith("✗")
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


def test_a_crash_never_shows_a_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-live-0123456789abcdef"
    monkeypatch.setenv("SHOP_API_KEY", secret)
    console.set_verbose(True)
    report_crash(RuntimeError(f"refused: Bearer {secret}"))
    console.set_verbose(False)
    shown = capsys.readouterr().err
    assert "kindlm itself failed: RuntimeError: refused" in shown
    assert "RuntimeError: refused" in shown.split("\n", 1)[1]
    assert secret not in shown


def test_tables_of_a_newer_version_are_reported_with_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report_crash(ProjectionError("runs", "has version 99 in this file"))
    shown = capsys.readouterr().err
    assert "itself failed" not in shown
    assert "Update kindlm" in shown
    assert "kindlm history merge" in shown
