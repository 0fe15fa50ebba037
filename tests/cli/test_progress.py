"""Progress: a bar for who watches, lines for who does not."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console
from suites import make_suite

from kindlm.cli.progress import make_progress
from kindlm.engine.attempt import Finished
from kindlm.errors import ErrorCode, KindlmError
from kindlm.outcome import Status
from kindlm.plan import Execution, Plan, make_plan
from kindlm.suite import Case, Prompt

ESCAPE = "\x1b"


@pytest.fixture
def executions() -> list[Execution]:
    case = Case("greets\x1b[2J", Prompt("Hi"), targets=("gpt",), repeat=3)
    return list(make_plan([make_suite(case)]))


def watch(executions: list[Execution], console: Console, **fields: Any) -> None:
    with make_progress(console, shown=True, redact=str) as progress:
        progress.planned(Plan((executions[0].suite,)), ())
        for execution in executions:
            progress.finished(Finished(execution, **fields))


def test_the_bar_shows_counts_money_and_failures(executions: list[Execution]) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system=None)
    error = KindlmError(ErrorCode.PROVIDER_TIMEOUT, "It took too long.")
    watch(executions, console, status=Status.ERRORED, error=error, cost_usd=0.5)
    shown = out.getvalue()
    assert "3 errored" in shown
    assert "3/3" in shown
    assert "$1.50" in shown
    assert shown.count("It took too long.") == 3


def test_what_costs_nothing_shows_no_money(executions: list[Execution]) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system=None)
    watch(executions, console, status=Status.PASSED)
    assert "$" not in out.getvalue()


def test_without_a_terminal_each_test_has_a_line_when_its_repeats_have_ended(
    executions: list[Execution],
) -> None:
    out = io.StringIO()
    watch(executions, Console(file=out, width=120), status=Status.PASSED)
    (line,) = out.getvalue().splitlines()
    assert "greets" in line
    assert "3/3 passed" in line
    assert ESCAPE not in line


@pytest.mark.parametrize(("rate", "sign"), [(0.3, "✓"), (0.5, "✗")])
def test_a_line_names_a_test_with_the_rate_that_it_needs(rate: float, sign: str) -> None:
    case = Case("greets", Prompt("Hi"), targets=("gpt",), repeat=3, pass_rate=rate)
    out = io.StringIO()
    first, *others = make_plan([make_suite(case)])
    with make_progress(Console(file=out, width=120), shown=True, redact=str) as progress:
        progress.planned(Plan((first.suite,)), ())
        progress.finished(Finished(first, Status.PASSED))
        for execution in others:
            progress.finished(Finished(execution, Status.FAILED))
    assert out.getvalue().startswith(f"{sign} greets")


def test_lines_are_colored_where_that_is_asked_for_and_read_the_same(
    executions: list[Execution],
) -> None:
    plain, colored = io.StringIO(), io.StringIO()
    watch(executions, Console(file=plain, width=20), status=Status.PASSED)
    console = Console(file=colored, force_terminal=False, color_system="standard", width=20)
    watch(executions, console, status=Status.PASSED)
    assert ESCAPE in colored.getvalue()
    assert re.sub(r"\x1b\[[\d;]*m", "", colored.getvalue()) == plain.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_no_part_of_a_line_shows_a_secret(executions: list[Execution], terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    with make_progress(
        console, shown=True, redact=lambda text: text.replace("greets", "[redacted]")
    ) as progress:
        progress.planned(Plan((executions[0].suite,)), ())
        for execution in executions:
            progress.finished(Finished(execution, Status.FAILED))
    assert isinstance(console.file, io.StringIO)
    assert "greets" not in console.file.getvalue()
    assert "[redacted]" in console.file.getvalue()


def test_a_line_is_shown_when_the_repeats_of_an_earlier_session_complete_a_test(
    executions: list[Execution],
) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=False, width=120)
    with make_progress(console, shown=True, redact=str) as progress:
        progress.planned(Plan((executions[0].suite,)), {"1", "3"})
        progress.finished(Finished(executions[1], status=Status.PASSED))
    assert "greets" in out.getvalue()
