"""What `kindlm test --dry-run` shows: which tests would run, how often, and for about how much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from kindlm.cli.estimate import Estimate, estimate_execution
from kindlm.history.diff.power import comparison_power
from kindlm.history.statistics.tables import Counts
from kindlm.plan import Plan, PlannedCase, PlannedSuite
from kindlm.providers.pricing import PriceTable
from kindlm.reports.figures import money, power_text
from kindlm.reports.registry import ReportOptions
from kindlm.reports.terminal.page import Page
from kindlm.reports.untrusted import one_line
from kindlm.wording import count

_WIDEST_NAME = 60
_LISTED_TESTS = 1_000
"""So many tests are listed; the sums are of all of them."""


def write_plan(plan: Plan, out: TextIO, options: ReportOptions) -> None:
    """Write the plan of a run that is not run."""
    page = Page(out, options)
    executions = count(len(plan), "execution")
    page.line(("Plan ", "bold"), f"{executions}; nothing is called, nothing is recorded")
    total = Estimate()
    for planned in plan.suites:
        if any(case.selected for case in planned.cases):
            total += _write_suite(planned, page)
    _write_totals(total, page)
    shown = comparison_power(_expected(plan))
    if shown is not None:
        page.line(power_text(shown))


def _expected(plan: Plan) -> Iterator[tuple[Counts, int]]:
    """Yield the counts of all tests if they always pass, and as many repeats of a later run."""
    for case in (case for planned in plan.suites for case in planned.cases):
        if case.selected and not case.case.skip:
            counts = Counts(case.repeat, case.repeat)
            yield from [(counts, case.repeat)] * len(case.targets)


def _write_suite(planned: PlannedSuite, page: Page) -> Estimate:
    suite = planned.suite
    page.blank()
    page.line((one_line(suite.name), "bold"), (f"  {one_line(suite.path)}", "dim"), hang=2)
    prices = PriceTable(suite.prices)
    selected = [case for case in planned.cases if case.selected]
    width = min(max(cell_len(one_line(case.case.name)) for case in selected), _WIDEST_NAME)
    total = Estimate()
    for number, case in enumerate(selected):
        estimate = _estimate(planned, case, prices)
        total += estimate
        if number < _LISTED_TESTS:
            _write_case(case, estimate, width, page)
    if len(selected) > _LISTED_TESTS:
        page.line(
            f"… and {count(len(selected) - _LISTED_TESTS, 'more test', 'more tests')}", indent=2
        )
    return total


def _estimate(planned: PlannedSuite, case: PlannedCase, prices: PriceTable) -> Estimate:
    if case.case.skip:
        return Estimate()
    each = (estimate_execution(planned.suite, case.case, target, prices) for target in case.targets)
    return sum(each, Estimate()).times(case.repeat)


def _write_case(case: PlannedCase, estimate: Estimate, width: int, page: Page) -> None:
    name = one_line(case.case.name)
    name = set_cell_size(name, width) if cell_len(name) <= width else name
    targets = ", ".join(one_line(target) for target in case.targets)
    what = "skipped" if case.case.skip else f"× {case.repeat}  {_cost(estimate)}"
    page.line(f"{name}  {targets}  ", (what, "dim"), indent=2, hang=2)


def _write_totals(total: Estimate, page: Page) -> None:
    judges = f", {count(total.judge_calls, 'call')} of judges" if total.judge_calls else ""
    page.blank()
    page.fields(
        [
            ("Calls", f"at least {count(total.calls, 'call')} of what is tested{judges}"),
            (
                "Tokens",
                f"about {total.input_tokens:,} in, at most {total.output_tokens:,} out",
            ),
            ("Cost", _cost(total)),
        ]
    )
    page.blank()
    page.line(
        "Assumed: four characters a token, every answer as long as maxTokens allows. Not counted:"
        " answers to tool calls, retries, drift."
    )
    if total.unpriced:
        names = ", ".join(one_line(name) for name in sorted(total.unpriced))
        page.line(f"No price is known for: {names}. Models can be priced under `prices`.")
    if total.unforeseen:
        names = ", ".join(one_line(name) for name in sorted(total.unforeseen))
        page.line(f"What these spend is known once they ran: {names}.")


def _cost(estimate: Estimate) -> str:
    if not (estimate.unpriced or estimate.unforeseen):
        return f"about {money(estimate.cost_usd)}"
    return (
        f"about {money(estimate.cost_usd)} and what is not known"
        if estimate.cost_usd
        else "unknown"
    )
