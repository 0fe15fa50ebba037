"""The comparison of two runs for a terminal: regressions first, with what changed inside them."""

from __future__ import annotations

from io import StringIO
from textwrap import dedent
from typing import TextIO

from kindlm.history.diff.details import Edit, TestDetails
from kindlm.history.diff.evidence_values import Kind, TestDiff
from kindlm.history.diff.run_diff import RunDiff
from kindlm.reports.diff import parts, phrases
from kindlm.reports.facts import run_text
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal.page import Page, Part
from kindlm.reports.untrusted import bounded, one_line
from kindlm.wording import count

_DETAILED = 20
_LISTED = 20
_CALLS = 20
_CHECKS = 12
_CONFIG = 20
_TEXT = 1_200
_WIDTH = 110

_STYLES = {Edit.KEPT: "", Edit.REMOVED: "red strike", Edit.ADDED: "green"}


def write_diff(diff: RunDiff, out: TextIO, options: ReportOptions) -> None:
    """Write the comparison; `verbose` writes all tests."""
    page = Page(out, options)
    for name, view in (("Before ", diff.before), ("After  ", diff.after)):
        page.line((name, "dim"), (one_line(view.id), "bold cyan"), f"  {run_text(view)}", hang=9)
    for note in phrases.notes_of(diff):
        page.line(("! ", "yellow"), note, hang=2)
    most = (len(diff.tests),) * 2 if options.verbose else (_DETAILED, _LISTED)
    for section in phrases.sections_of(diff, *most):
        if section.kind is Kind.UNCHANGED and not options.verbose:
            page.heading(f"Unchanged: {count(len(section.tests), 'test')}")
            continue
        page.heading(section.look.title)
        for test in section.detailed:
            _write_line(diff, test, section.look, page)
            _write_details(test, diff.details(test), page)
        for test in section.listed:
            _write_line(diff, test, section.look, page)
        if section.more:
            page.line(f"… and {section.more:,} more: --test NAME, or --verbose for all", indent=2)
    for config in diff.configs:
        several = len(diff.configs) > 1
        page.heading(f"Configuration{f' of {one_line(config.suite)}' if several else ''}")
        changes, rest = parts.config_texts(config, _CONFIG)
        for path, text in changes:
            page.line((f"{path}  ", "dim"), text, indent=2, hang=2)
        if rest:
            page.line(rest, indent=2)
    if rows := phrases.figure_rows(diff):
        page.heading("Averages over tests in both runs")
        page.fields(rows, indent=2)
    headline = phrases.headline_of(diff)
    page.blank()
    color = {True: "bold green", False: "bold red", None: "bold yellow"}[headline.good]
    page.line((headline.word, color), f": {'; '.join(headline.reasons)}", hang=2)
    page.line((f"{phrases.scope_text(diff)}.", "dim"), indent=2)
    if exit_code := phrases.fail_on_text(diff):
        page.line(exit_code, indent=2)
    step = phrases.next_step(diff)
    page.blank()
    page.unbroken(("Next  ", "dim"), page.typed(step.command), (f"   {step.why}", "dim"))


def _write_line(diff: RunDiff, test: TestDiff, look: phrases.Look, page: Page) -> None:
    suite = (f"  {one_line(test.key.suite)}", "dim") if diff.has_several_suites else ""
    status = "" if look.listed else f"  {phrases.status_text(test)}"
    page.line(
        (look.sign, look.style),
        " ",
        (one_line(test.key.name), "bold"),
        f" · {one_line(test.key.target)}",
        suite,
        f"  {phrases.outcome_text(test)}",
        (status, look.style),
        indent=2,
        hang=2,
    )


def details_text(test: TestDiff, details: TestDetails) -> str:
    """Return what changed inside a test, as lines that are safe to print."""
    out = StringIO()
    _write_details(test, details, Page(out, ReportOptions(width=_WIDTH)))
    return dedent(out.getvalue()).rstrip()


def _write_details(test: TestDiff, details: TestDetails, page: Page) -> None:
    if needed := phrases.needs_text(test):
        page.line((needed, "yellow"), indent=6)
    if details.config:
        page.line(
            ("test definition changed: ", "dim"), one_line(", ".join(details.config)), indent=6
        )
    _write_calls(details, page)
    _write_checks(details, page)
    for name, error in zip(("error before", "error"), details.errors, strict=True):
        if error:
            text = bounded(error, _TEXT, lines=10)
            page.line((f"{name}  ", "dim"), (text, "magenta"), indent=6, hang=2)
    for place, words in details.words.items():
        name = f"answer of turn {place}" if isinstance(place, int) else place
        shown: list[Part] = []
        for edit, text in parts.excerpt(words, _TEXT):
            shown.append((text if page.color else parts.marked(edit, text), _STYLES[edit]))
        page.line((f"{name}  ", "dim"), *shown, indent=6, hang=2)
        if words.left_out:
            page.line(f"{words.left_out:,} more characters were not compared", indent=8)
    page.fields(list(parts.measures(test)), indent=6)


def _write_calls(details: TestDetails, page: Page) -> None:
    if details.calls_changed:
        page.line(("calls", "dim"), indent=6)
        for change in details.calls[:_CALLS]:
            sign, style = parts.EDITS[change.edit]
            made = (f"{sign} ", style), one_line(change.made.tool)
            aside = parts.call_aside(change)
            page.line(*made, (f"  {aside}" if aside else "", "dim"), indent=8, hang=4)
            for argument in change.arguments[:_CALLS]:
                name = one_line(argument.path) or "arguments"
                page.line((f"{name}  ", "dim"), parts.change_text(argument), indent=12, hang=2)
            if len(change.arguments) > _CALLS:
                page.line(f"… and {len(change.arguments) - _CALLS} more", indent=12)
        if len(details.calls) > _CALLS:
            page.line(f"… and {len(details.calls) - _CALLS} more", indent=8)
    if details.sequences:
        page.line(("tool calls by repeat, before → after", "dim"), indent=6)
        for found in details.sequences:
            tools = parts.sequence_text(found.tools)
            page.line(f"{found.before} → {found.after}  {tools}", indent=8, hang=2)


def _write_checks(details: TestDetails, page: Page) -> None:
    checks = parts.changed_checks(details.checks)
    if checks:
        page.line(("checks", "dim"), indent=6)
    for check in checks[:_CHECKS]:
        worse = check.direction < 0
        sign = ("✗", "red") if worse else ("✓", "green") if check.direction else ("·", "dim")
        page.line(
            sign,
            f" {parts.check_name(check)}  {parts.check_text(check)}",
            (f"  {one_line(check.failure_code or '')}", "red" if worse else "dim"),
            indent=8,
            hang=2,
        )
        if check.message and worse:
            page.line((bounded(check.message, 400, lines=4), "dim"), indent=10)
    if len(checks) > _CHECKS:
        page.line(f"… and {len(checks) - _CHECKS} more", indent=8)
