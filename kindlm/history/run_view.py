"""`RunView`: one recorded run, or the shards of one, as every report reads it.

The same code serves a run that ended a moment ago and one of last year. What can be large (tests,
executions, their assertions) is read in pieces, so that a report needs no more memory than the
piece it is writing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from kindlm.history import queries
from kindlm.history.groups import Group, Shard, as_one_run, read_shard
from kindlm.history.json_text import read_arguments, read_json
from kindlm.history.masking import shown_note
from kindlm.history.rows import (
    AssertionView,
    AttemptView,
    CallView,
    ExecutionView,
    GateThen,
    Repeat,
    Reviewed,
    ReviewView,
    SuiteView,
    Summary,
    TestView,
    ToolCallView,
    Totals,
    assertion_of,
    counts_of,
    execution_of,
    scores_of,
    test_of,
    value_of,
)
from kindlm.history.run_names import run_before
from kindlm.history.runs import Run, RunFilter, runner_of, runs, state_of
from kindlm.history.verdict import StatusCounts, count_tests, evaluate_gates, suite_metrics
from kindlm.suite import Gate

__all__ = ["RunView", "read_attempts"]

_Ask = Callable[[str], sqlite3.Cursor]
"""Asks one of `queries` about the executions that are counted."""


class RunView:
    """Reads a run from the read models, or a group of shards as one run.

    `db` is a read-only connection. `id` is the id of the run, or the name of the group; `runs` are
    the ids of the runs that are read.
    """

    def __init__(self, db: sqlite3.Connection, run: str | Group) -> None:
        self._db = db
        self.group = None if isinstance(run, str) else run
        self.id = run if isinstance(run, str) else run.name
        self.runs = (run,) if isinstance(run, str) else run.runs

    @property
    def db(self) -> sqlite3.Connection:
        """What it reads with, for those that compare it with other runs."""
        return self._db

    @property
    def is_recorded(self) -> bool:
        """Whether the history knows the run at all."""
        return next(self._infos, None) is not None

    @cached_property
    def info(self) -> Run:
        """The run's own row; raise `LookupError` if there is none."""
        infos = list(self._infos)
        if not infos:
            raise LookupError(self.id)
        return infos[0] if self.group is None else as_one_run(self.group, infos)

    @property
    def _infos(self) -> Iterator[Run]:
        return runs(self._db, RunFilter(ids=self.runs))

    @cached_property
    def suites(self) -> tuple[SuiteView, ...]:
        """All suites of the run, in order, each with its gates evaluated by today's rules."""
        return tuple(self._suite(parts) for parts in self._suite_rows.values())

    def suite(self, wanted: str) -> SuiteView:
        """Return one suite by its id, without a look at the others; raise `LookupError`."""
        for rows in self._suite_rows.values():
            if any(row["id"] == wanted for row in rows):
                return self._suite(rows)
        raise LookupError(wanted)

    @cached_property
    def _suite_rows(self) -> dict[int, list[sqlite3.Row]]:
        """The suites by their ordinals, each with its rows in the runs that are read as one."""
        rows: dict[int, list[sqlite3.Row]] = {}
        for row in self.over_runs(queries.SUITES):
            rows.setdefault(row["ordinal"], []).append(row)
        return rows

    @cached_property
    def summary(self) -> Summary:
        """The run in numbers."""
        tests = sum((suite.tests for suite in self.suites), StatusCounts())
        executions = sum((suite.executions for suite in self.suites), StatusCounts())
        return self._summary(self.over_runs, tests, executions)

    @cached_property
    def totals(self) -> Totals:
        """What is told of the run in numbers."""
        return _totals(self.over_runs, self.summary, self.missing, self.info.duration_ms)

    def totals_of(self, suite: SuiteView) -> Totals:
        """Return what is told of one suite in numbers; how long it took is not recorded."""

        def ask(query: str) -> sqlite3.Cursor:
            return self._over(queries.of_suites(query), suite.parts)

        summary = self._summary(ask, suite.tests, suite.executions)
        return _totals(ask, summary, self.missing_of(suite), None)

    @cached_property
    def shard(self) -> Shard | None:
        """What the run is a part of, and which other parts are here; None for a whole run."""
        return read_shard(self._db, self.info)

    @cached_property
    def reviewed(self) -> Reviewed:
        """How many executions of the run people reviewed."""
        return Reviewed(*self.over_runs(queries.REVIEWED).fetchone())

    @property
    def tested_nothing(self) -> bool:
        """Whether no execution was tested: filters, skips, or an empty plan."""
        return self.summary.executions.tested == 0

    @cached_property
    def missing(self) -> int:
        """How many planned executions have not ended: those of a run that was stopped."""
        finished: int = self.over_runs(queries.FINISHED).fetchone()[0]
        return self.info.planned - finished

    def missing_of(self, suite: SuiteView) -> int:
        """Return how many planned executions of a suite have not ended."""
        if not self.missing:
            return 0
        planned: int = self._over(queries.PLANNED, suite.parts).fetchone()[0]
        ended = suite.executions.total - suite.executions.pending
        return max(0, planned - ended)

    @property
    def complete(self) -> bool:
        """Whether every planned execution has ended."""
        return self.missing == 0

    def is_whole(self, suite: str | None = None) -> bool:
        """Whether it came to its end, so that no result is missing: of the run, or of one suite.

        A group is whole if all of its shards are.
        """
        if suite is None or self.group is not None:
            return self.info.ended == "finished" and self.complete
        return not any(self.missing_of(each) for each in self.suites if each.name == suite)

    @property
    def passed(self) -> bool:
        """Whether the run finished and its verdict, by today's rules, is that it passes."""
        return self.info.ended == "finished" and self.fulfilled

    @property
    def fulfilled(self) -> bool:
        """The verdict by today's rules: every suite passes, and something was tested.

        A shard that no test was dealt to has nothing to test, and fails nothing.
        """
        had_nothing = self.info.shard is not None and self.info.planned == 0
        tested = had_nothing or not self.tested_nothing
        return self.complete and tested and all(s.passed for s in self.suites)

    @property
    def told_otherwise(self) -> bool:
        """Whether the user was told another verdict when the run ended than today's rules give."""
        return self.info.passed is not None and self.info.passed is not self.passed

    @cached_property
    def gates_then(self) -> dict[tuple[str, str], GateThen]:
        """What the gates said when the run ended, by suite (its id) and name; {} before.

        Those of a shard judged only what it ran, and are none of its group.
        """
        if self.group is not None:
            return {}
        rows = self.over_runs(queries.GATES_THEN)
        return {
            (suite, name): GateThen(bool(passed), actual) for suite, name, passed, actual in rows
        }

    @property
    def status(self) -> str:
        """The verdict of a finished run: passed or failed; else how it stands.

        That is interrupted, aborted, running while its lock is held, or killed; of a group of
        which a shard is missing or did not finish, incomplete.
        """
        if self.info.ended == "finished":
            return "passed" if self.passed else "failed"
        return state_of(self._db, self.id, self.info.ended)

    @property
    def runner(self) -> str | None:
        """What chose the tests, such as pytest, so that nobody else goes on; None for kindlm."""
        return runner_of(self._db, self.runs[0])

    @property
    def run_before(self) -> str | None:
        """The run to compare this one with: the newest before it of its suites that finished."""
        return run_before(self._db, self.id) if self.group is None else None

    def skip_reasons(self) -> list[tuple[str, str, int]]:
        """Return why executions were skipped that were to run: suite, reason, how many."""
        return [tuple(row) for row in self.over_runs(queries.SKIPPED)]

    def warnings_of_passed(self) -> list[tuple[str, int]]:
        """Return what executions that passed were warned of, and how many of them."""
        return [tuple(row) for row in self.over_runs(queries.WARNED)]

    def skipped_assertions(self) -> list[tuple[str, str, str | None, int]]:
        """Return which assertions had nothing to decide: suite, kind, message, how many."""
        return [tuple(row) for row in self.over_runs(queries.SKIPPED_ASSERTIONS)]

    def targets(self, suite: SuiteView) -> list[str]:
        """Return the targets that a suite defines, selected or not, in the order of its file."""
        return [row[0] for row in self._over(queries.TARGETS, suite.parts)]

    def tests(self, suite: str | None = None) -> Iterator[TestView]:
        """Yield the selected tests of the run, or of one suite (by id), in order of their file."""
        for parts in self._parts(suite):
            for row in self._over(queries.TESTS, parts):
                yield test_of(row)

    def executions(self, test: TestView) -> Iterator[ExecutionView]:
        """Yield the executions of a test, repeat by repeat."""
        key = (test.suite_id, test.name, test.target)
        for row in self._db.execute(queries.EXECUTIONS + queries.OF_TEST, key):
            yield execution_of(row)

    def execution(self, wanted: str) -> ExecutionView | None:
        """Return one execution by its id, or by its number in the run, which a group has none."""
        in_run = wanted.rpartition("-")[0] in self.runs
        identity = wanted if in_run else f"{self.id}-{wanted}"
        row = self._db.execute(queries.EXECUTIONS + queries.OF_ID, (identity,)).fetchone()
        return None if row is None else execution_of(row)

    def repeats(self, execution: ExecutionView) -> list[Repeat]:
        """Return the repeats of the test of an execution on its target, itself too."""
        key = (execution.suite_id, execution.test, execution.target)
        return [Repeat(*row) for row in self._db.execute(queries.REPEATS, key)]

    def attempts(self, execution: ExecutionView) -> list[ExecutionView]:
        """Return the execution as each attempt left it that ended, the last one as it is.

        Those before the last did not pass, and were run again.
        """
        if execution.attempt == 1:
            return [execution]
        rows = self._db.execute(queries.RETRIED_ATTEMPTS, (execution.id,))
        return [*map(execution_of, rows), execution]

    def assertions(self, execution: ExecutionView) -> list[AssertionView]:
        """Return the assertions of an execution, in the attempt that it is given as."""
        rows = self._db.execute(queries.ASSERTIONS, (execution.id, execution.attempt))
        return [assertion_of(row) for row in rows]

    def reviews(self, execution: ExecutionView) -> list[ReviewView]:
        """Return what people said of an execution, of each the last word, in order of time.

        Notes are as they may be shown.
        """
        found = self._db.execute(queries.REVIEWS, (execution.id,)).fetchall()
        return [
            value_of(
                ReviewView,
                row,
                passed=bool(row["passed"]),
                note=self.shown_note(execution, row["note"]),
            )
            for row in found
        ]

    def shown_note(self, execution: ExecutionView, note: str | None) -> str | None:
        """Return what somebody noted of an execution, without personal data found in it."""
        return note and shown_note(note, read_attempts(self, execution))

    def tool_calls(self, execution: ExecutionView) -> list[ToolCallView]:
        """Return the tool calls of an execution, in the attempt that it is given as."""
        return self._tool_calls(execution, all_attempts=False)

    def all_tool_calls(self, execution: ExecutionView) -> list[ToolCallView]:
        """Return the tool calls of all attempts of an execution."""
        return self._tool_calls(execution, all_attempts=True)

    def calls(self, execution: ExecutionView) -> list[CallView]:
        """Return all model calls of an execution, of every attempt, retries and judges too."""
        return [
            value_of(
                CallView,
                row,
                messages=tuple(map(self._filled, json.loads(row["messages"]))),
                parameters=json.loads(row["parameters"] or "{}"),
            )
            for row in self._db.execute(queries.CALLS, (execution.id,))
        ]

    def first_messages(self, execution: ExecutionView) -> tuple[dict[str, Any], ...]:
        """Return the messages the conversation began with, their texts filled in."""
        return tuple(map(self._filled, execution.messages))

    def _summary(self, ask: _Ask, tests: StatusCounts, executions: StatusCounts) -> Summary:
        numbers = {**ask(queries.SPEND).fetchone(), **ask(queries.MEANS).fetchone()}
        if not numbers.pop("asked") and self.info.mode == "rescored":
            numbers["cost_usd"] = 0.0  # no target was to be called
        return Summary(tests=tests, executions=executions, **numbers)

    def _tool_calls(self, execution: ExecutionView, *, all_attempts: bool) -> list[ToolCallView]:
        wanted = {
            "own": execution.source == execution.id,
            "attempt": execution.attempt,
            "source": execution.source,
            "source_attempt": execution.source_attempt,
            "all_attempts": all_attempts,
        }
        return [
            value_of(
                ToolCallView,
                row,
                arguments=read_arguments(row["arguments"]),
                response=read_json(row["response"]),
                problems=self._problems(row["problems"]),
            )
            for row in self._db.execute(queries.TOOL_CALLS, wanted)
        ]

    def _problems(self, column: str | None) -> tuple[str, ...]:
        found = json.loads(column) if column else []
        return tuple(self._text(problem["message"]["$ref"]) or "" for problem in found)

    def _filled(self, message: dict[str, Any]) -> dict[str, Any]:
        return {**message, "text": self._text(message["text"]["$ref"])}

    def _text(self, ref: str) -> str | None:
        row = self._db.execute("SELECT body FROM shown_texts WHERE ref = ?", (ref,)).fetchone()
        return row[0] if row else None

    def _suite(self, rows: Sequence[sqlite3.Row]) -> SuiteView:
        parts = tuple(row["id"] for row in rows)
        # What one of the shards could not load has not been run as a whole.
        row = next((row for row in rows if row["error_code"]), rows[0])
        tests = StatusCounts()
        for alike in self._over(queries.TEST_COUNTS, parts):
            tests += count_tests(
                counts_of(alike), alike["pass_rate_min"], alike["number"], scores_of(alike)
            )
        metrics = suite_metrics(self._db, *parts)
        skipped = max((row["skipped_tests"] or 0) - tests.total, 0)
        return value_of(
            SuiteView,
            row,
            id=parts[0],
            parts=parts,
            skipped_tests=skipped,
            tests=tests + StatusCounts(skipped=skipped),
            executions=metrics.executions,
            gates=() if row["error_code"] else evaluate_gates(self._gates(row["id"]), metrics),
        )

    def _parts(self, suite: str | None) -> Iterator[tuple[str, ...]]:
        """Yield the ids of each suite, or of that of which one is `suite`."""
        for rows in self._suite_rows.values():
            parts = tuple(row["id"] for row in rows)
            if suite is None or suite in parts:
                yield parts

    def _gates(self, suite: str) -> list[Gate]:
        query = "SELECT name, threshold, written FROM suite_gates WHERE suite = ? ORDER BY rowid"
        return [Gate(r[0], r[1], bool(r[2])) for r in self._db.execute(query, (suite,))]

    def over_runs(self, query: str) -> sqlite3.Cursor:
        """Ask the history about the runs that are read as one: `$ids` in the query."""
        return self._over(query, self.runs)

    def over_suites(self, query: str) -> Iterator[sqlite3.Row]:
        """Ask the history about the suites, one after the other: `$ids` are one in all its runs."""
        for parts in self._parts(None):
            yield from self._over(query, parts)

    def _over(self, query: str, ids: Sequence[str]) -> sqlite3.Cursor:
        return self._db.execute(*queries.among(query, ids))


def _totals(ask: _Ask, summary: Summary, missing: int, duration_ms: float | None) -> Totals:
    unpriced = [row[0] for row in ask(queries.UNPRICED)] if summary.unknown_costs else []
    reviewed = Reviewed(*ask(queries.REVIEWED).fetchone())
    return Totals(summary, missing, reviewed, unpriced, duration_ms)


def read_attempts(view: RunView, execution: ExecutionView) -> list[AttemptView]:
    """Return the attempts at an execution that ended; the last one is how it stands now.

    Those before it did not pass. Attempts that were cut off when the process ended are not told.
    """
    return [
        AttemptView(attempt, tuple(view.assertions(attempt)), tuple(view.tool_calls(attempt)))
        for attempt in view.attempts(execution)
    ]
