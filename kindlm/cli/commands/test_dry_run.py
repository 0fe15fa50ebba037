"""`kindlm test --dry-run`: which tests would run, how often, and for about how much.

The estimate assumes four characters a token, and answers as long as `maxTokens` allows. Each user
message is one call, and so is each pass of a judge, and each comparison by one. The baseline of
`drift` is taken to be as long as an answer. Calls after tool results, and retries, are unknown
before the run.
"""

from __future__ import annotations

import json
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from kindlm.checks.drift import Drift, SimilarTo
from kindlm.checks.judge import Judge
from kindlm.dataclass import dataclass
from kindlm.history.diff.power import comparison_power
from kindlm.history.statistics.tables import Counts
from kindlm.plan import Plan, PlannedSuite
from kindlm.pricing import PriceTable, prices_of
from kindlm.reports.commands import place
from kindlm.reports.figures import money, power_text
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.terminal.page import Page
from kindlm.reports.untrusted import one_line
from kindlm.suite import Case, ModelTarget, Suite
from kindlm.transcript import Usage
from kindlm.wording import count

_WIDEST_NAME = 60
_CHARACTERS_PER_TOKEN = 4

_JUDGE_ANSWER = 512
"""Tokens of the longest answer of a judge."""

_JUDGE_INSTRUCTIONS = 2_000
"""Characters of a judge's prompt without the transcript, the criterion and the rubric."""


def write_plan(plan: Plan, out: TextIO, options: ReportOptions) -> None:
    """Write the plan of a dry run."""
    page = Page(out, options)
    executions = count(len(plan), "execution")
    page.line(("Plan ", "bold"), f"{executions}; nothing is called or recorded")
    total = Estimate()
    for planned in plan.suites:
        if any(case.selected for case in planned.cases):
            total.add(_write_suite(planned, page))
    _write_totals(total, page)
    # Assume that all tests always pass, and that a later run has as many repeats.
    expected = [
        (Counts(case.repeat, case.repeat), case.repeat)
        for planned in plan.suites
        for case in planned.cases
        if case.selected and not case.case.skip
        for _ in case.targets
    ]
    shown = comparison_power(expected)
    if shown is not None:
        page.line(power_text(shown))


def _write_suite(planned: PlannedSuite, page: Page) -> Estimate:
    suite = planned.suite
    page.blank()
    page.line(
        (one_line(suite.name), "bold"), (f"  {place(suite.path, None, page.root)}", "dim"), hang=2
    )
    prices = prices_of(suite)
    selected = [case for case in planned.cases if case.selected]
    width = min(max(cell_len(one_line(case.case.name)) for case in selected), _WIDEST_NAME)
    total = Estimate()
    for case in selected:
        estimate = Estimate()
        if not case.case.skip:
            for target in case.targets:
                estimate.add(estimate_execution(suite, case.case, target, prices), case.repeat)
        total.add(estimate)
        name = one_line(case.case.name)
        name = set_cell_size(name, width) if cell_len(name) <= width else name
        targets = ", ".join(one_line(target) for target in case.targets)
        what = "skipped" if case.case.skip else f"× {case.repeat}  {_cost(estimate)}"
        page.line(f"{name}  {targets}  ", (what, "dim"), indent=2, hang=2)
    return total


def _write_totals(total: Estimate, page: Page) -> None:
    judges = f", {count(total.judge_calls, 'call')} to judges" if total.judge_calls else ""
    tokens = f"about {total.input_tokens:,} in, at most {total.output_tokens:,} out"
    if total.unknown:
        tokens = f"{tokens}, as far as is known" if total.input_tokens else "unknown"
    page.blank()
    page.fields(
        [
            ("Calls", f"at least {count(total.calls, 'call')} to tested targets{judges}"),
            ("Tokens", tokens),
            ("Cost", _cost(total)),
        ]
    )
    page.blank()
    page.line(
        "Assumed: four characters a token, every answer as long as maxTokens allows. Not counted:"
        " tool results, retries."
    )
    if total.unknown:
        names = ", ".join(one_line(name) for name in sorted(total.unknown))
        page.line(
            f"The cost of these is not known: {names}. For a model, add its price to `prices`."
        )


def _cost(estimate: Estimate) -> str:
    known = f"about {money(estimate.cost_usd)}"
    if not estimate.unknown:
        return known
    return f"{known} plus an unknown amount" if estimate.cost_usd else "unknown"


@dataclass(slots=True)
class Estimate:
    """Estimated calls, tokens and cost of some executions.

    `unknown` are models without a price, and agents, commands and kinds of checks whose cost only
    the run shows.
    """

    calls: int = 0
    judge_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unknown: frozenset[str] = frozenset()

    def add(self, other: Estimate, times: int = 1) -> None:
        """Add another estimate, multiplied by `times`."""
        self.calls += times * other.calls
        self.judge_calls += times * other.judge_calls
        self.input_tokens += times * other.input_tokens
        self.output_tokens += times * other.output_tokens
        self.cost_usd += times * other.cost_usd
        self.unknown |= other.unknown

    def add_call(
        self, target: ModelTarget, characters: int, answer: int, prices: PriceTable
    ) -> None:
        """Add the tokens and the cost of a call; `answer` is its longest answer in tokens."""
        tokens = -(-characters // _CHARACTERS_PER_TOKEN)
        usd = prices.cost(target.provider, target.model, Usage(tokens, answer)).usd
        self.input_tokens += tokens
        self.output_tokens += answer
        self.cost_usd += usd or 0.0
        if usd is None:
            self.unknown |= {target.model}


def estimate_execution(suite: Suite, case: Case, target: str, prices: PriceTable) -> Estimate:
    """Return the estimate for one execution of a case on a target."""
    users = (case.prompt.user, *case.follow_ups)
    system = len(case.prompt.system or "")
    model = None if case.command else suite.models.get(target)
    answer = 0 if model is None else model.params.max_tokens
    total = Estimate(calls=len(users))
    if model is not None:
        said = system + len(case.prompt.prefill or "")
        for tool in case.tools:
            offered = {"description": tool.description, "parameters": tool.parameters}
            said += len(json.dumps({"name": tool.name, **offered}))
        for user in users:  # the conversation so far is sent each time
            said += len(user)
            total.add_call(model, said, answer, prices)
            said += answer * _CHARACTERS_PER_TOKEN
    elif prices.cost("", target, Usage()).usd is None:
        # An agent or a program has no known cost, unless `prices` says that it is free.
        total.unknown |= {target}
    answered = answer * _CHARACTERS_PER_TOKEN
    transcript = system + sum(map(len, users)) + answered * len(users)
    is_offline = all(each.type == "scripted" for each in suite.providers.values())
    for check in (expectation.check for expectation in case.expectations):
        passes = 1
        match check:
            case Judge():
                characters = transcript + len(check.asked[0]) + len(check.rubric or "")
                passes = check.passes
            case Drift(method="judge"):
                characters = 2 * answered
            case SimilarTo(method="judge"):
                characters = len(check.text) + answered
            case _:
                if (check.asks_judge or check.embeds) and not is_offline:
                    total.unknown |= {check.kind}
                continue
        if (judge := suite.judge(check.judge_model)) is not None:
            judging = Estimate(judge_calls=1)
            judging.add_call(judge, characters + _JUDGE_INSTRUCTIONS, _JUDGE_ANSWER, prices)
            total.add(judging, passes)
    return total
