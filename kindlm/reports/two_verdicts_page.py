"""The part of the terminal report about tests that EvalView and kindlm judge differently."""

from __future__ import annotations

from itertools import islice

from kindlm.history.repeat_statistics import TwoVerdicts, differing_verdicts
from kindlm.history.run_view import RunView
from kindlm.reports.page import Page
from kindlm.reports.untrusted import one_line
from kindlm.reports.verdict_text import show_run

__all__ = ["write_two_verdicts"]

_TESTS = 100


def write_two_verdicts(view: RunView, page: Page, *, verbose: bool) -> None:
    """Write a line for each test on which the two verdicts differ."""
    found = list(islice(differing_verdicts(view), None if verbose else _TESTS + 1))
    if not found:
        return
    page.heading("Judged by the rules of EvalView, and otherwise by those of kindlm")
    for test in found if verbose else found[:_TESTS]:
        page.line(
            f"{one_line(test.test)} · {one_line(test.target)}",
            (f"  {_words(test)}", "dim"),
            indent=2,
            hang=2,
        )
    if not verbose and len(found) > _TESTS:
        page.line(f"… and more: {show_run(view)} --verbose", indent=2)


def _words(test: TwoVerdicts) -> str:
    if test.n == 1:
        return f"EvalView: {_word(test.evalview)}, kindlm: {_word(test.kindlm)}"
    return f"EvalView: {test.evalview} of {test.n} pass, kindlm: {test.kindlm} of {test.n}"


def _word(passed: int) -> str:
    return "passes" if passed else "does not pass"
