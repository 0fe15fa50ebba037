"""The values that reports read of a run; most fields are named as columns in `queries.py`."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, NamedTuple

from kindlm.dataclass import dataclass
from kindlm.history.queries import value_of
from kindlm.history.verdict import Figures, LimitedScores, StatusCounts, test_status
from kindlm.outcome import CheckResult, Demands, Evidence, GateResult, Outcome, ScoreLimits, Status


@dataclass(frozen=True, slots=True)
class SuiteView:
    """A suite of the run; a suite that could not be loaded has an error and no tests.

    `parts` are its ids in the shards that are read as one run, `id` the first of them. `full_name`
    has the file, too, if another suite of the run has the same name.
    """

    id: str
    parts: tuple[str, ...]
    project: str | None
    name: str
    full_name: str
    path: str
    config_hash: str | None
    error_code: str | None
    error_number: int | None
    error: str | None
    hint: str | None
    line: int | None
    skipped_tests: int
    figures: Figures
    tests: StatusCounts
    executions: StatusCounts
    gates: tuple[GateResult, ...]

    @property
    def passed(self) -> bool:
        """Whether the suite passes as a whole.

        No gate may fail, and no execution may have errored. No test may fail, unless a pass rate
        that the user wrote decides.
        """
        if self.error_code is not None or self.executions.errored:
            return False
        tests_pass = self.tests.failed == 0 or self.tolerates
        return tests_pass and all(gate.passed for gate in self.gates)

    @property
    def tolerates(self) -> bool:
        """Whether the user set a pass rate, and it was reached, so that tests may fail."""
        rates = [gate for gate in self.gates if gate.name == "passRateMin"]
        return any(rate.written for rate in rates) and all(rate.passed for rate in rates)

    @property
    def status(self) -> Status:
        """The status of the suite; skipped, with an error, if it could not be loaded."""
        if self.error_code is not None:
            return Status.SKIPPED
        if not self.passed:
            return Status.FAILED
        return Status.PASSED if self.executions.tested else Status.SKIPPED


@dataclass(frozen=True, slots=True)
class TestView:
    """A test (case x target) over its repeats; in a stopped run, it may have none.

    `latency_ms` is a mean, `cost_usd` a sum, None if a part is unknown. `passed_later` counts
    executions that passed when they were run again. `confidence` is that of displayed intervals.
    """

    __test__ = False  # not a pytest class

    suite_id: str
    suite: str
    name: str
    target: str
    tags: tuple[str, ...]
    counts: StatusCounts
    passed_later: int
    pass_rate_min: float
    latency_ms: float | None
    cost_usd: float | None
    file: str
    line: int | None
    scores: LimitedScores | None
    confidence: float

    @property
    def status(self) -> Status:
        """The status of the test."""
        return test_status(self.counts, self.pass_rate_min, self.scores)

    @property
    def broken_limits(self) -> tuple[str, ...]:
        """The limits that its weighted scores break, in words."""
        return self.scores.broken if self.scores and self.counts.tested else ()

    @property
    def flaky(self) -> bool:
        """Whether the test passed in some repeats or attempts, and failed in others."""
        return self.counts.passed > 0 and (self.counts.failed > 0 or self.passed_later > 0)


@dataclass(frozen=True, slots=True)
class ExecutionView:
    """One execution, as its last attempt or a certain earlier one left it.

    `number` is its number in the run. `status` is None if it never finished. `source` is the
    execution that held the conversation: itself, or one of another run, where the conversation cost
    `cost_then_usd`.
    """

    id: str
    run: str
    number: int
    project: str
    suite_id: str
    suite: str
    file: str
    test: str
    target: str
    repeat: int
    attempt: int
    started_at: str
    status: Status | None
    messages: tuple[dict[str, Any], ...]
    output: str | None
    error_code: str | None
    error_number: int | None
    error: str | None
    hint: str | None
    trace: str | None
    answers: int
    latency_ms: float | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    cost_source: str | None
    finish_reason: str | None
    warnings: tuple[str, ...]
    cost_then_usd: float | None
    source: str
    source_attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionView(CheckResult):
    """A recorded assertion; an advisory one does not affect the status of the execution."""

    duration_ms: float
    line: int | None
    advisory: bool
    demands: Demands | None = None
    """The demand of its check, if it failed and the demand was not safety."""

    @property
    def is_wrong(self) -> bool:
        """Whether it kept the execution from passing."""
        return not self.advisory and self.outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE)


@dataclass(frozen=True, slots=True)
class ReviewView:
    """A review of an execution by `user@host`; `at` is UTC, ISO 8601."""

    passed: bool
    note: str | None
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class ToolCallView:
    """A tool call with its result, in the call to the model or agent with the number `call`.

    `problems` are messages. `called_at` is UTC, ISO 8601; None if reported with the answer.
    """

    attempt: int
    position: int
    call: int
    tool: str
    arguments: Any
    rule: str | None
    response: Any
    problems: tuple[str, ...] = ()
    called_at: str | None = None

    @property
    def has_result(self) -> bool:
        """Whether a result is known; agents often report calls without results."""
        return self.response is not None or self.rule not in (None, "agent")


@dataclass(frozen=True, slots=True)
class SpanView:
    """A recorded span of an agent's trace, during the call `call` to the agent."""

    attempt: int
    call: int
    id: str
    parent: str | None
    kind: str
    name: str
    start_ms: float
    duration_ms: float
    failed: bool
    message: str | None
    input: str | None
    output: str | None
    input_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class CallView:
    """A call to a model or an agent, with its new messages and its answer.

    If another call supplied the answer, `recorded_in` names it, and `cost_then_usd` is its cost.
    `after` is the number of the call whose answer this call continues; None or 0 for the first.
    """

    attempt: int
    call: int
    purpose: str
    provider: str
    model: str
    reported_model: str | None
    status: str | None
    messages: tuple[dict[str, Any], ...]
    text: str | None
    input_tokens: int | None
    output_tokens: int | None
    latency_ms: float | None
    cost_usd: float | None
    error_code: str | None
    http_status: int | None
    error: str | None
    retry_in_ms: float | None
    raw: str | None
    recorded_in: str | None
    cost_then_usd: float | None
    requested_at: str
    parameters: dict[str, Any]
    after: int | None


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt that ended: the execution as it left it, its assertions and its tool calls."""

    execution: ExecutionView
    assertions: tuple[AssertionView, ...]
    tool_calls: tuple[ToolCallView, ...]

    @property
    def number(self) -> int:
        """The number of the attempt, from 1."""
        return self.execution.attempt


class Reviewed(NamedTuple):
    """The number of reviewed executions, and of those whose status a reviewer disputes."""

    executions: int
    disputed: int


def read_test(db: sqlite3.Connection, suite: str, test: str, target: str) -> TestView:
    """Return a test; `suite` is the id of its suite."""
    query = "SELECT * FROM tests WHERE suite = ? AND test = ? AND target = ?"
    return test_of(db.execute(query, (suite, test, target)).fetchone())


def test_of(row: sqlite3.Row) -> TestView:
    """Return the test of a row."""
    tags = (*json.loads(row["suite_tags"]), *json.loads(row["tags"]))
    return value_of(
        TestView,
        row,
        suite_id=row["suite"],
        suite=row["suite_name"],
        name=row["test"],
        tags=tuple(dict.fromkeys(tags)),
        counts=counts_of(row),
        latency_ms=row["latency_avg_ms"],
        scores=scores_of(row),
    )


def scores_of(row: sqlite3.Row) -> LimitedScores | None:
    """Return the weighted scores of a test, if they have limits."""
    if row["weighted_scores"] is None:
        return None
    limits = ScoreLimits(row["score_mean_min"], row["score_std_dev_max"])
    scores = tuple(json.loads(row["weighted_scores"]))
    return LimitedScores(limits, scores, row["passed"] + row["failed"])


def counts_of(row: sqlite3.Row) -> StatusCounts:
    """Return the counts of a test over its repeats."""
    return value_of(StatusCounts, row, pending=row["unfinished"])


def assertion_of(row: sqlite3.Row) -> AssertionView:
    """Return the assertion of a row."""
    found = json.loads(row["evidence"])
    for each in found:
        # Events of earlier versions have the text itself.
        if isinstance(each.get("excerpt"), dict):
            each["excerpt"] = json.loads(row["excerpts"])[each["excerpt"]["$ref"]]
    return value_of(
        AssertionView,
        row,
        message=row["message"] or "",
        duration_ms=row["duration_ms"] or 0.0,
        evidence=tuple(Evidence(**each) for each in found),
        warning="",  # the execution has it
    )
