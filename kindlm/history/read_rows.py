"""From rows of the read models to the values that reports get."""

from __future__ import annotations

import json
import sqlite3

from kindlm.history.json_text import read_json
from kindlm.history.rows import AssertionView, ExecutionView, TestView
from kindlm.history.verdict import LimitedScores, StatusCounts
from kindlm.outcome import Outcome, Status
from kindlm.suite import ScoreLimits

__all__ = ["assertion_of", "counts_of", "execution_of", "scores_of", "test_of"]


def test_of(row: sqlite3.Row) -> TestView:
    """Return the test of a row."""
    tags = (*json.loads(row["suite_tags"]), *json.loads(row["tags"]))
    return TestView(
        suite_id=row["suite"],
        suite=row["suite_name"],
        name=row["test"],
        target=row["target"],
        tags=tuple(dict.fromkeys(tags)),
        counts=counts_of(row),
        passed_later=row["passed_later"],
        pass_rate_min=row["pass_rate_min"],
        latency_ms=row["latency_avg_ms"],
        cost_usd=row["cost_usd"],
        file=row["file"],
        line=row["line"],
        scores=scores_of(row),
        confidence=row["confidence"],
    )


def scores_of(row: sqlite3.Row) -> LimitedScores | None:
    """Return the weighted scores of the test of a row, if they have limits."""
    if row["weighted_scores"] is None:
        return None
    limits = ScoreLimits(row["score_mean_min"], row["score_std_dev_max"])
    return LimitedScores(limits, tuple(json.loads(row["weighted_scores"])))


def counts_of(row: sqlite3.Row) -> StatusCounts:
    """Return how the repeats of the test of a row came out."""
    return StatusCounts(
        row["passed"], row["failed"], row["errored"], row["skipped"], row["unfinished"]
    )


def execution_of(row: sqlite3.Row) -> ExecutionView:
    """Return the execution of a row."""
    values = dict(row)
    values["status"] = Status(row["status"]) if row["status"] else None
    values["messages"] = tuple(json.loads(row["messages"]))
    values["warnings"] = tuple(json.loads(row["warnings"] or "[]"))
    values["answers"] = row["answers"] or 0
    return ExecutionView(**values)


def assertion_of(row: sqlite3.Row) -> AssertionView:
    """Return the assertion of a row."""
    values = dict(row)
    values["outcome"] = Outcome(row["outcome"])
    values["advisory"] = bool(row["advisory"])
    values["evidence"] = tuple(json.loads(row["evidence"]))
    values["expected"] = read_json(row["expected"])
    values["actual"] = read_json(row["actual"])
    return AssertionView(**values)
