"""Progress: one line that a terminal redraws, a few lines for who does not watch."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from suites import make_suite
from terminal_typing import Terminal

from kindlm.cli import progress as module
from kindlm.cli.console import make_console, note, show, warn
from kindlm.cli.progress import ProgressView, kind_of_progress
from kindlm.engine.attempt import Finished
from kindlm.engine.stop import Stop
from kindlm.errors import ErrorCode, KindlmError
from kindlm.outcome import CheckResult, Outcome, Status
from kindlm.plan import Execution, Plan, make_plan
from kindlm.suite import Case, Prompt

ESCAPE = "\x1b"
SLOW = KindlmError(ErrorCode.PROVIDER_TIMEOUT, "It took too long.")


def planned(tests: int = 1, **fields: Any) -> list[Execution]:
    names = ["greets\x1b[2J", *(f"test {number}" for number in range(1, tests))]
    options: dict[str, Any] = {"repeat": 3, **fields}
    cases = [Case(name, Prompt("Hi"), targets=("gpt",), **options) for name in names]
    return list(make_plan([make_suite(*cases)]))


def progress_on(console: Console, redact: Callable[[str], str] = str) -> ProgressView:
    return kind_of_progress(console, shown=True)(console, redact, Stop())


def watch(executions: list[Execution], console: Console, *ends: Finished, ended: Any = ()) -> str:
    """Return what is shown of executions that end like that."""
    with progress_on(console, lambda text: text.replace("secret", "[redacted]")) as progress:
        progress.planned(Plan((executions[0].suite,)), ended)
        for finished in ends:
            progress.finished(finished)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def all_of(executions: list[Execution], status: Status, **fields: Any) -> list[Finished]:
    return [Finished(execution, status, **fields) for execution in executions]


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)


def pipe(**options: Any) -> Console:
    return Console(file=io.StringIO(), width=20, **options)


def test_the_line_on_a_terminal_counts_what_ended_and_what_it_cost() -> None:
    first, second, third = planned()
    ends = [
        Finished(first, Status.PASSED, cost_usd=0.5),
        Finished(second, Status.ERRORED, SLOW, cost_usd=1),
    ]
    shown = watch([first, second, third], terminal(), *ends)
    assert "2/3  ✓1 !1   $1.50" in shown
    assert "It took too long" not in shown  # the report says that
    assert "$" not in watch([first, second, third], terminal(), Finished(first, Status.PASSED))


def test_a_message_while_the_line_stands_has_a_line_of_its_own(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell() -> None:
        note("It waits.")
        warn("It is slow.")
        show([SLOW])

    monkeypatch.setenv("NO_COLOR", "1")
    with os.fdopen(os.dup(terminal.slave), "w") as screen, monkeypatch.context() as patch:
        patch.setattr("sys.stderr", screen)
        with progress_on(make_console()):
            while "starting" not in terminal.shown:
                pass
            tell()
        during = terminal.shown
        tell()
        after = terminal.shown
    erased = [line for line in during.split("\r\n") if "It " in line]
    assert [line.rpartition("\r\x1b[2K")[2] for line in erased] == after.split("\r\n")[:3]
    assert all("\r\x1b[2K" in line for line in erased)


def test_what_an_earlier_session_did_counts_as_done() -> None:
    executions = planned()
    ends = all_of(executions[1:2], Status.PASSED)
    assert "2/3  ✓1" in watch(executions, terminal(), *ends, ended={"1"})


def test_elsewhere_a_failing_test_has_one_line_whatever_its_repeats_do() -> None:
    executions = planned(2)
    shown = watch(executions, pipe(), *all_of(executions, Status.ERRORED, error=SLOW))
    assert shown.splitlines() == [
        "! greets\\x1b[2J on gpt: It took too long.",
        "! test 1 on gpt: It took too long.",
    ]
    assert watch(executions, pipe(), *all_of(executions, Status.PASSED)) == ""


def test_elsewhere_a_failing_test_is_told_in_the_words_of_its_cause() -> None:
    message = 'Expected the output to contain "refunded", got "Sorry."'
    check = CheckResult(
        "contains",
        "refunded",
        Outcome.FAILED,
        expected="refunded",
        failure_code="CONTAINS_FAILED",
        message=message,
    )
    shown = watch(planned(), pipe(), *all_of(planned(), Status.FAILED, failed=(check,)))
    assert shown == '✗ greets\\x1b[2J on gpt: Missing in the answer: "refunded"\n'


@pytest.mark.parametrize(("rate", "failing"), [(0.3, False), (0.5, True)])
def test_a_test_is_failing_once_it_can_no_longer_reach_its_rate(rate: float, failing: bool) -> None:
    executions = planned(pass_rate=rate)
    shown = watch(executions, pipe(), *all_of(executions[1:], Status.FAILED))
    assert bool(shown) is failing


def test_many_failing_tests_are_counted_and_not_listed() -> None:
    executions = planned(1000, repeat=1)
    lines = watch(executions, pipe(), *all_of(executions, Status.FAILED)).splitlines()
    assert len([line for line in lines if line.startswith("✗")]) == 10
    assert lines[10] == "… more failing tests are only counted"


def test_elsewhere_a_long_run_has_a_line_at_each_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHORTEST_STEP_S", 0.0)
    executions = planned(20)
    lines = watch(executions, pipe(), *all_of(executions, Status.PASSED)).splitlines()
    assert [line.split()[0] for line in lines] == [f"{done}/60" for done in range(6, 60, 6)]


def test_elsewhere_silence_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_SILENCE_S", 0.001)
    executions, console = planned(), pipe()
    assert isinstance(console.file, io.StringIO)
    with progress_on(console) as progress:
        progress.planned(Plan((executions[0].suite,)), ())
        while "0/3" not in console.file.getvalue():
            pass


def test_lines_are_colored_where_that_is_asked_for_and_read_the_same() -> None:
    executions = planned()
    ends = all_of(executions, Status.ERRORED, error=SLOW)
    colored = watch(executions, pipe(force_terminal=False, color_system="standard"), *ends)
    assert ESCAPE in colored
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == watch(executions, pipe(), *ends)


def test_no_part_of_a_line_shows_a_secret() -> None:
    executions = list(make_plan([make_suite(Case("a secret", Prompt("Hi"), targets=("secret",)))]))
    error = KindlmError(ErrorCode.PROVIDER_API_ERROR, "The secret is wrong.")
    shown = watch(executions, pipe(), *all_of(executions, Status.ERRORED, error=error))
    assert shown == "! a [redacted] on [redacted]: The [redacted] is wrong.\n"
