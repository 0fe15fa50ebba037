"""A run, or one suite of it, in numbers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kindlm.history import queries
from kindlm.history.rows import Summary
from kindlm.history.verdict import StatusCounts

__all__ = ["Ask", "Reviewed", "Totals", "read_summary", "read_totals"]

Ask = Callable[[str], sqlite3.Cursor]
"""Asks one of `queries` about the executions that are counted."""


class Reviewed(NamedTuple):
    """How many executions people reviewed; of how many somebody says it is not as recorded."""

    executions: int
    disputed: int


class Totals(NamedTuple):
    """What is told of a run, or of a suite, in numbers.

    `missing` are planned executions that have not ended, `unpriced_models` those whose calls have
    no known cost, `duration_ms` the time that all of it took, None where it is not known.
    """

    summary: Summary
    missing: int
    reviewed: Reviewed
    unpriced_models: list[str]
    duration_ms: float | None


def read_summary(
    ask: Ask, tests: StatusCounts, executions: StatusCounts, spent_nothing: float | None
) -> Summary:
    """Return the numbers of some executions; `spent_nothing` is what they cost without a call."""
    spend = {bool(row["judging"]): row for row in ask(queries.SPEND)}
    cost, judging = spend.get(False), spend.get(True)
    means = ask(queries.MEANS).fetchone()
    then = ask(queries.SPENT_THEN).fetchone()
    return Summary(
        tests=tests,
        executions=executions,
        judge_average=means["judge"],
        drift_maximum=means["drift"],
        cost_usd=cost["cost_usd"] if cost else spent_nothing,
        judge_cost_usd=judging["cost_usd"] if judging else None,
        unknown_costs=sum(row["unknown_costs"] or 0 for row in spend.values()),
        input_tokens=_total(row["input_tokens"] for row in spend.values()),
        output_tokens=_total(row["output_tokens"] for row in spend.values()),
        latency_average_ms=means["latency"],
        cost_then_usd=then["cost_usd"],
        judge_cost_then_usd=then["judges_usd"],
        calls=sum(row["calls"] for row in spend.values()),
        calls_from_history=sum(row["calls_from_history"] for row in spend.values()),
    )


def read_totals(ask: Ask, summary: Summary, missing: int, duration_ms: float | None) -> Totals:
    """Return the numbers with what else there is to know of them."""
    unpriced = [row[0] for row in ask(queries.UNPRICED)] if summary.unknown_costs else []
    reviewed = Reviewed(*ask(queries.REVIEWED).fetchone())
    return Totals(summary, missing, reviewed, unpriced, duration_ms)


def _total(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
