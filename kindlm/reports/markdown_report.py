"""The report `markdown`: a run as a comment on a pull request, or as the summary of a CI job.

The verdict comes first, then changes since the previous run, gates, and the causes of failures. The
report of a large run is cut so that it fits into a comment.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TextIO

from kindlm.dataclass import replace
from kindlm.history.run_view import RunView
from kindlm.outcome import Status
from kindlm.reports import commands, facts
from kindlm.reports.causes import causes_of
from kindlm.reports.diff.markdown import SIGNS, changes_table, comment_of
from kindlm.reports.diff.parts import changes_since_before
from kindlm.reports.diff.phrases import diff_command, notes_of
from kindlm.reports.figures import comparison, duration
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import cell, code, html_code, plain
from kindlm.wording import count

_REASONS = 10
_NOTES = 10
_CHANGES = 10
_GATES = 30
_DETAILED = 50
_LISTED = 200
_EXPLAINED = 1_000

_STATUS_SIGNS = {
    Status.PASSED: "✅",
    Status.FAILED: "❌",
    Status.ERRORED: "💥",
    Status.SKIPPED: "⏭️",
}


def write_report(view: RunView, out: TextIO, options: ReportOptions) -> None:
    """Write as much of the report as fits into a comment."""
    # Paths are relative to the repository: readers are not in the folder of this process.
    anywhere = replace(options, root=None, database=None)
    following = options.first or commands.next_command(view, anywhere)
    end = f"\nNext: {code(following)}\n"
    left_out = f"\n… cut to fit into a comment: {code(commands.show_run(view))} shows the rest.\n"
    out.writelines(comment_of(_pieces(view, options), left_out, end))


def _pieces(view: RunView, options: ReportOptions) -> Iterator[str]:
    """Yield the report in pieces, the most important first; it may be cut after any of them."""
    yield "".join(_head(view))
    yield from _broken(view)
    yield "".join(_changes(view, options))
    yield "".join(_gates(view))
    yield from _failing(view)
    yield "".join(_list(view))


def _head(view: RunView) -> Iterator[str]:
    verdict = facts.verdict_of(view)
    yield f"### {SIGNS[verdict.good]} kindlm: {verdict.word}\n\n"
    reasons = [plain(reason) for reason in verdict.reasons[:_REASONS]]
    if len(verdict.reasons) > _REASONS:
        reasons.append(f"and {len(verdict.reasons) - _REASONS:,} more")
    yield f"{', '.join(reasons)}.\n\n"
    figures = list(facts.figures_of(view))
    if (attacks := facts.attacks_of(view)) is not None:
        by_class = f", by class: {attacks.by_class}" if attacks.classes else ""
        figures.append(f"attack success rate {attacks}{by_class}")
    what = "Run" if view.group is None else "Group"
    yield f"{what} {code(view.id)} ({code(facts.run_text(view))}) · {plain(' · '.join(figures))}\n"
    for note in islice(facts.notes_of(view), _NOTES):
        yield f"\n> {plain(note)}\n"


def _broken(view: RunView) -> Iterator[str]:
    for suite in view.suites:
        if suite.error_code is not None:
            where = suite.path if suite.line is None else f"{suite.path}:{suite.line}"
            hint = f"  {plain(suite.hint)}\n" if suite.hint else ""
            name, why = f"{code(suite.name)} ({code(where)})", code(suite.error or suite.error_code)
            yield f"\n- 💥 {name} could not be run: {why}\n{hint}"


def _changes(view: RunView, options: ReportOptions) -> Iterator[str]:
    """Yield what changed since the previous run."""
    if (changes := changes_since_before(view, options)) is None:
        return
    diff, headline, is_marked = changes
    sign = f"{SIGNS[headline.good]} " if is_marked else ""
    yield f"\n#### Since run {code(diff.before.id)}: {sign}{headline.word}\n\n"
    yield f"{plain('; '.join(headline.reasons))}.\n"
    for note in islice(notes_of(diff), _NOTES):
        yield f"\n> {plain(note)}\n"
    yield from changes_table(diff, _CHANGES)
    yield f"\nIn full: {code(diff_command(diff))}\n"


def _gates(view: RunView) -> Iterator[str]:
    """Yield the gates as a folded table, failed ones first; the verdict names these."""
    gates = [(suite, gate) for suite in view.suites for gate in suite.gates]
    if not gates:
        return
    gates.sort(key=lambda each: each[1].passed)
    failed = sum(not gate.passed for _, gate in gates)
    yield f"\n<details><summary>{count(len(gates), 'gate')}, {failed:,} failed</summary>\n"
    yield "\n| | suite | gate | value |\n|---|---|---|---|\n"
    for suite, gate in gates[:_GATES]:
        so_far = gate.passed and facts.lacking_of(view, suite)
        sign = "⚠️" if gate.warning else "⏳" if so_far else SIGNS[gate.passed]
        value = f"{plain(comparison(gate))}{' so far' if so_far else ''}"
        yield f"| {sign} | {cell(suite.full_name)} | {plain(gate.name)} | {value} |\n"
    if len(gates) > _GATES:
        yield f"| | … and {len(gates) - _GATES:,} more | | |\n"
    yield "\n</details>\n"


def _failing(view: RunView) -> Iterator[str]:
    """Yield the causes of failures, also of tolerated ones, then those of failed attempts."""
    went_wrong = facts.went_wrong(view)
    wrong = (test for _, test in islice(went_wrong, _EXPLAINED))
    retried = islice((test for test in view.tests() if test.passed_later), _EXPLAINED)
    for title, causes in (
        ("What went wrong", causes_of(view, wrong)),
        ("Passed on retry", causes_of(view, retried, retried=True)),
    ):
        if causes:
            yield f"\n#### {title}\n"
        for cause in causes[:_DETAILED]:
            whom = f"{html_code(cause.sentence)} · {html_code(cause.whom)}"
            rows = "".join(f"- {name}: {code(text)}\n" for name, text in cause.details)
            summary = f"<summary>{_STATUS_SIGNS[cause.how]} {whom}</summary>"
            yield f"\n<details>{summary}\n\n{rows}\n</details>\n"
        if len(causes) > _DETAILED:
            more = count(len(causes) - _DETAILED, "more cause")
            yield f"\n… and {more}: {code(commands.show_run(view))}\n"
    if next(went_wrong, None) is not None:
        yield f"\nThe causes are those of the first {_EXPLAINED:,} tests that did not pass.\n"


def _list(view: RunView) -> Iterator[str]:
    total = view.summary.tests.total
    if not total:
        return
    yield "\n<details><summary>Each test on each target</summary>\n"
    yield "\n| | test | passed | time | cost |\n|---|---|---|---|---|\n"
    for test in islice(view.tests(), _LISTED):
        time = "" if test.latency_ms is None else duration(test.latency_ms)
        spent = plain(facts.cost_of(view, test))
        name, passed = f"{cell(test.name)} · {cell(test.target)}", facts.repeats_text(test)
        yield f"| {_STATUS_SIGNS[test.status]} | {name} | {passed} | {time} | {spent} |\n"
    if total > _LISTED:
        yield f"| | … and {total - _LISTED:,} more | | | |\n"
    yield "\n</details>\n"
