"""What reports add up: gates, tolerated and missing tests, totals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from kindlm.history.costs import Paid
from kindlm.history.rows import SuiteView, Summary, TestView
from kindlm.history.run_view import RunView
from kindlm.history.statistics.intervals import wilson_interval
from kindlm.history.verdict import GateResult, StatusCounts
from kindlm.outcome import Status
from kindlm.reports.figures import comparison, cost, duration, percent, score, tally
from kindlm.reports.terminal_page import Page, Part, mark
from kindlm.reports.untrusted import bounded, one_line, visible
from kindlm.wording import count

_NAMED_TESTS = 20
_NAMED_MODELS = 5
_WARNINGS = 5


def write_gates(view: RunView, page: Page) -> None:
    """Write every gate with its value, its threshold and what it said."""
    suites = [suite for suite in view.suites if suite.gates]
    for suite in suites:
        page.heading("Gates" if len(suites) == 1 else f"Gates of {one_line(suite.name)}")
        width = max(len(gate.name) for gate in suite.gates)
        for gate in suite.gates:
            page.line(
                _gate_mark(gate),
                f" {gate.name.ljust(width)}  {comparison(gate)}",
                (f"  {gate.message}", "dim"),
                indent=2,
                hang=4,
            )


def write_tolerated(view: RunView, page: Page) -> None:
    """Name the tests that failed and are tolerated, since a written pass rate was reached."""
    for suite in view.suites:
        if not (suite.tolerates and suite.tests.failed):
            continue
        gate = next(gate for gate in suite.gates if gate.name == "passRateMin")
        tests = (test for test in view.tests(suite.id) if test.status is Status.FAILED)
        page.heading(f"Failed, and tolerated by passRateMin {gate.threshold:g}")
        _write_names(tests, suite.tests.failed, page)


def write_missing(view: RunView, page: Page) -> None:
    """Say what a run that was stopped did not come to."""
    if not view.missing or view.status == "running":
        return
    page.heading(f"Not run: {view.missing:,} of {count(view.info.planned, 'execution')}")
    unfinished = list(islice(_untested(view), _NAMED_TESTS + 1))
    if unfinished:
        _write_names(unfinished[:_NAMED_TESTS], len(unfinished), page)


def write_skipped(view: RunView, page: Page) -> None:
    """Say why executions were skipped that no test says to skip, and why assertions were."""
    reasons, assertions = view.skip_reasons(), view.skipped_assertions()
    if not reasons and not assertions:
        return
    page.heading("Skipped")
    for suite, reason, number in reasons:
        executions = count(number, "execution")
        page.line(f"{executions} of {one_line(suite)}: {one_line(reason)}", indent=2, hang=2)
    for suite, kind, message, number in assertions:
        skipped = count(number, f"{one_line(kind)} assertion")
        said = one_line(message or "[erased]")
        page.line(f"{skipped} of {one_line(suite)}: {said}", indent=2, hang=2)


def write_warnings(view: RunView, page: Page) -> None:
    """Write what executions were warned of that passed: of the others it stands beside them."""
    warnings = view.warnings_of_passed()
    if not warnings:
        return
    page.heading("Warnings")
    for warning, number in warnings[:_WARNINGS]:
        text = f" {count(number, 'execution')}: {visible(bounded(warning, 500, lines=5))}"
        page.line(("!", "yellow"), text, indent=2, hang=2)
    if len(warnings) > _WARNINGS:
        page.line(f"… and {len(warnings) - _WARNINGS:,} more warnings", indent=2)


def write_then(view: RunView, page: Page) -> None:
    """Say what users were told when the run ended, where today's rules say something else."""
    if view.told_otherwise:
        then = "passed" if view.info.passed else "failed"
        page.line((f"When the run ended, it was told as {then}.", "yellow"), indent=2, hang=2)
    for suite in view.suites:
        for told in told_otherwise(view, suite):
            page.line((told, "yellow"), indent=2)


def told_otherwise(view: RunView, suite: SuiteView) -> Iterator[str]:
    """Yield what users were told of gates when the run ended, where today's rules differ."""
    for gate in suite.gates:
        then_gate = view.gates_then.get((suite.id, gate.name))
        if then_gate is None or then_gate.passed is gate.passed:
            continue
        told = replace(gate, passed=then_gate.passed, actual=then_gate.actual)
        was = f"{'passed' if told.passed else 'failed'} then: {comparison(told)}"
        yield f"Gate {gate.name} of {one_line(suite.name)} {was}."


def write_totals(view: RunView, page: Page) -> None:
    """Write the run in numbers."""
    page.heading("Totals")
    page.fields(list(totals_of(view)), indent=2)


def totals_of(view: RunView, suite: SuiteView | None = None) -> Iterator[tuple[str, str]]:
    """Yield the run, or one suite of it, in numbers, each with its name."""
    summary = view.summary if suite is None else view.summary_of(suite)
    pending = "pending" if view.status == "running" else "not run"
    yield "tests", f"{summary.tests.total:,}: {tally(summary.tests, pending)}"
    missing = view.missing if suite is None else view.missing_of(suite)
    # With those that have not even begun.
    waiting = max(missing - summary.executions.pending, 0)
    executions = summary.executions + StatusCounts(pending=waiting)
    running = summary.executions.pending if view.status == "running" else 0
    told = tally(executions, pending, running=running)
    yield "executions", f"{executions.total:,}: {told}"
    if executions.pass_rate is not None:
        interval = wilson_interval(executions.passed, executions.tested) or (0.0, 1.0)
        low, high = map(percent, interval)
        yield "pass rate", f"{percent(executions.pass_rate)} (95 % interval: {low} to {high})"
    if summary.judge_average is not None:
        yield "judge", f"mean score {score(summary.judge_average)}"
    if summary.drift_maximum is not None:
        yield "drift", f"at most {score(summary.drift_maximum)}"
    if summary.input_tokens is not None or summary.output_tokens is not None:
        yield "tokens", f"{_number(summary.input_tokens)} in, {_number(summary.output_tokens)} out"
    yield "cost", _cost(view, suite, summary)
    if summary.calls_from_history and view.info.mode == "live":
        calls = count(summary.calls, "call")
        yield "cache", f"{summary.calls_from_history:,} of {calls} answered from the history"
    if (people := view.reviewed(suite)).executions:
        reviewed = f"{count(people.executions, 'execution')} reviewed"
        yield "reviews", f"{reviewed}, {people.disputed:,} of them disputed"
    # How long one suite took is not recorded.
    took = view.info.duration_ms if suite is None else None
    times = [] if took is None else [duration(took)]
    if summary.latency_average_ms is not None:
        times.append(f"mean latency {duration(summary.latency_average_ms)}")
    if times:
        yield "time", ", ".join(times)


def _cost(view: RunView, suite: SuiteView | None, summary: Summary) -> str:
    parts = [] if summary.paid.total_usd is None else [cost(summary.paid)]
    if summary.unknown_costs:
        unpriced = view.unpriced_models(suite)
        named = unpriced[:_NAMED_MODELS]
        models = ", ".join(one_line(model, 60) for model in named)
        if more := len(unpriced) - len(named):
            models += f" and {more:,} more"
        parts.append(f"unknown for {count(summary.unknown_costs, 'call')} of {models}")
    return (", ".join(parts) or "none") + _then(summary)


def _then(summary: Summary) -> str:
    """Return what answers of another run cost there, as it follows what was spent now."""
    then = Paid(summary.cost_then_usd, summary.judge_cost_then_usd)
    return "" if then.total_usd is None else f"; when it was recorded {cost(then)}"


def _gate_mark(gate: GateResult) -> Part:
    if gate.warning:
        return ("!", "yellow")
    return mark(Status.PASSED if gate.passed else Status.FAILED)


def _untested(view: RunView) -> Iterator[TestView]:
    """Yield the tests of which nothing ended, of all those that were selected."""
    for suite in view.suites:
        for test in view.tests(suite.id):
            unfinished = any(execution.status is None for execution in view.executions(test))
            if not test.counts.total or unfinished:
                yield test


def _write_names(tests: Iterable[TestView], total: int, page: Page) -> None:
    for test in islice(tests, _NAMED_TESTS):
        counts = test.counts
        repeats = f"  {counts.passed}/{counts.tested}" if counts.tested else ""
        page.line(
            f"{one_line(test.name)} · {one_line(test.target)}", (repeats, "dim"), indent=2, hang=2
        )
    if total > _NAMED_TESTS:
        page.line("… and more", indent=2)


def _number(tokens: int | None) -> str:
    return "unknown" if tokens is None else f"{tokens:,}"
