"""`RunView`: a run, or a group of shards, as reports read it: in pieces, to need little memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from kindlm.errors import KindlmError, Ok
from kindlm.history import queries, rows
from kindlm.history.groups import Group, as_one_run, read_group
from kindlm.history.masking import shown_note
from kindlm.history.queries import value_of
from kindlm.history.run_names import RunNames
from kindlm.history.runs import Run, RunFilter, runner_of, runs
from kindlm.history.verdict import Figures, StatusCounts, evaluate_gate, figures_of, test_status
from kindlm.outcome import Gate, GateResult
from kindlm.projections import ERASED
from kindlm.strict_json import read_arguments, read_json


class RunView:
    """Reads a run from the tables, or a group of shards as one run.

    `db` is a read-only connection. `id` is the id of the run, or the name of the group.
    """

    def __init__(self, db: sqlite3.Connection, run: str | Group) -> None:
        self.db = db
        self.group = None if isinstance(run, str) else run
        self.id = run if isinstance(run, str) else run.name
        self.runs = (run,) if isinstance(run, str) else run.runs

    @property
    def is_recorded(self) -> bool:
        """Whether the run is in the history."""
        return self.group is not None or any(runs(self.db, RunFilter(ids=self.runs)))

    @cached_property
    def info(self) -> Run:
        """The run as lists show it; raise `LookupError` if it is not in the history."""
        if self.group is not None:
            return as_one_run(self.group)
        for found in runs(self.db, RunFilter(ids=self.runs)):
            return found
        raise LookupError(self.id)

    @cached_property
    def suites(self) -> tuple[rows.SuiteView, ...]:
        """All suites of the run, in order, with their gates evaluated by today's rules."""
        return tuple(self._suite(row, shards) for row, shards in self.suite_rows)

    @cached_property
    def suite_rows(self) -> list[tuple[sqlite3.Row, list[sqlite3.Row]]]:
        """Each suite: the row that counts, of a shard that failed to load it; and all its rows."""
        found = []
        for _, shards in groupby(self.ask(queries.SUITES), key=itemgetter("ordinal")):
            parts = list(shards)
            found.append((next((part for part in parts if part["error_code"]), parts[0]), parts))
        return found

    @cached_property
    def summary(self) -> Figures:
        """The figures of the run."""
        return figures_of(self.ask, sum((each.tests for each in self.suites), StatusCounts()))

    def reviewed(self, suite: rows.SuiteView | None = None) -> rows.Reviewed:
        """Return how many executions of the run or of one suite people reviewed."""
        return rows.Reviewed(*self.ask(queries.REVIEWED, suite).fetchone())

    @cached_property
    def shard_of(self) -> Group | None:
        """The group that the run is a shard of; None for a whole run, or without a name."""
        return read_group(self.db, self.info)

    @cached_property
    def missing(self) -> int:
        """The number of planned executions that have not ended, as in a stopped run."""
        of_ended = "SELECT count(*) FROM executions WHERE run IN $ids AND status IS NOT NULL"
        ended: int = self.ask(of_ended).fetchone()[0]
        return self.info.planned - ended

    def missing_of(self, suite: rows.SuiteView) -> int:
        """Return how many planned executions of a suite have not ended."""
        if not self.missing:
            return 0
        of_planned = "SELECT total(repeat) FROM planned_tests WHERE suite IN $ids AND selected"
        planned = int(self.ask(of_planned, suite).fetchone()[0])
        ended = suite.executions.total - suite.executions.pending
        return max(0, planned - ended)

    @property
    def complete(self) -> bool:
        """Whether every planned execution has ended, also those of shards that are not here."""
        return self.missing == 0 and (self.group is None or self.group.complete)

    def is_whole(self, suite: str | None = None, project: str | None = None) -> bool:
        """Whether no result of the run, or of one suite, is missing; for a group, always of all."""
        if suite is None or self.group is not None:
            return self.info.ended == "finished" and self.complete
        named = (each for each in self.suites if each.name == suite)
        return not any(self.missing_of(each) for each in named if project in (None, each.project))

    @property
    def passed(self) -> bool:
        """Whether the run finished and passes by today's rules."""
        return self.info.ended == "finished" and self.fulfilled

    @property
    def fulfilled(self) -> bool:
        """The verdict by today's rules: every suite passes, and something was tested."""
        had_nothing = self.info.shard is not None and self.info.planned == 0
        tested = had_nothing or any(suite.executions.tested for suite in self.suites)
        return self.complete and tested and all(suite.passed for suite in self.suites)

    @cached_property
    def gates_then(self) -> dict[tuple[str, str], GateResult]:
        """The gate results when the run ended, by the suite's id and name; {} for a group."""
        if self.group is not None:
            return {}
        found = self.ask("SELECT *, false AS warning FROM gates WHERE run IN $ids").fetchall()
        return {(row["suite"], row["name"]): value_of(GateResult, row) for row in found}

    @property
    def status(self) -> str:
        """The verdict of a finished run, passed or failed; otherwise its state."""
        if self.info.ended == "finished":
            return "passed" if self.passed else "failed"
        return self.info.state

    @property
    def runner(self) -> str | None:
        """The program that chose the tests, such as pytest; None for kindlm."""
        return runner_of(self.db, self.runs[0])

    @cached_property
    def before(self) -> RunView | KindlmError | None:
        """What `kindlm diff` compares this run with, or why its baseline cannot be."""
        if self.group is not None:
            return None
        names = RunNames(self.db, self.id)
        found = names.find(None)
        if isinstance(found, Ok):
            return RunView(self.db, found.value)
        return found.error if names.has_baseline else None

    def warnings_of_passed(self, suite: rows.SuiteView | None = None) -> list[tuple[str, int]]:
        """Return the warnings of executions that passed, and how many of them had each."""
        return [tuple(row) for row in self.ask(queries.WARNED, suite)]

    def targets(self, suite: rows.SuiteView) -> list[str]:
        """Return the targets of a suite, selected or not, in the order of its file."""
        of_targets = "SELECT target FROM planned_tests WHERE suite IN $ids GROUP BY target"
        return [row[0] for row in self.ask(f"{of_targets} ORDER BY min(ordinal)", suite)]

    def most_targets(self) -> int:
        """Return the largest number of targets that the tests of a suite ran on."""
        query = "SELECT count(DISTINCT target) FROM tests WHERE suite IN $ids"
        return max((row[0] for row in self.over_suites(query)), default=0)

    def tests(self, suite: str | None = None) -> Iterator[rows.TestView]:
        """Yield the selected tests of the run, or of one suite (by id), in the order of files."""
        query = "SELECT * FROM tests WHERE suite IN $ids ORDER BY ordinal"
        return map(rows.test_of, self.over_suites(query, suite))

    def executions(self, test: rows.TestView) -> Iterator[rows.ExecutionView]:
        """Yield the executions of a test, repeat by repeat."""
        key = (test.suite_id, test.name, test.target)
        of_test = " WHERE e.suite = ? AND e.test = ? AND e.target = ? ORDER BY e.repeat"
        found = self.db.execute(queries.EXECUTIONS + of_test, key)
        return (value_of(rows.ExecutionView, row) for row in found)

    def execution(self, wanted: str) -> rows.ExecutionView | None:
        """Return one execution by its id, or by its number in the run; None if there is none."""
        in_run = wanted.rpartition("-")[0] in self.runs
        identity = wanted if in_run else f"{self.id}-{wanted}"
        row = self.db.execute(f"{queries.EXECUTIONS} WHERE e.id = ?", (identity,)).fetchone()
        return None if row is None else value_of(rows.ExecutionView, row)

    def repeats(self, *test: str) -> list[sqlite3.Row]:
        """Return the repeats of a test: rows of `id`, `repeat` and `status`.

        `test` is the id of its suite, its name and its target.
        """
        query = """
SELECT id, repeat, status FROM executions
 WHERE suite = ? AND test = ? AND target = ? ORDER BY repeat LIMIT 1000
"""
        return self.db.execute(query, test).fetchall()

    def repeats_named(self, name: str) -> list[sqlite3.Row]:
        """Return the repeats of all tests with a name, as `repeats` does."""
        tests = (test for test in self.tests() if test.name == name)
        return [row for it in tests for row in self.repeats(it.suite_id, it.name, it.target)]

    def attempts(self, execution: rows.ExecutionView) -> list[rows.AttemptView]:
        """Return the attempts at an execution that ended; the last one is its current state."""
        found = [execution]
        if execution.attempt > 1:
            query = f"{queries.RETRIED_ATTEMPTS} WHERE e.id = ? ORDER BY r.attempt"
            earlier = self.db.execute(query, (execution.id,))
            found[:0] = (value_of(rows.ExecutionView, row) for row in earlier)
        return [
            rows.AttemptView(each, tuple(self.assertions(each)), tuple(self.tool_calls(each)))
            for each in found
        ]

    def assertions(self, execution: rows.ExecutionView) -> list[rows.AssertionView]:
        """Return the assertions of an execution in its attempt."""
        found = self.db.execute(queries.ASSERTIONS, (execution.id, execution.attempt))
        return list(map(rows.assertion_of, found))

    def reviews(self, execution: rows.ExecutionView) -> list[rows.ReviewView]:
        """Return the latest review by each person, in order of time, with masked notes."""
        found = []
        for row in self.db.execute(queries.REVIEWS, (execution.id,)).fetchall():
            note = row["note"] and shown_note(row["note"], self.attempts(execution))
            found.append(value_of(rows.ReviewView, row, note=note))
        return found

    def tool_calls(
        self, execution: rows.ExecutionView, *, all_attempts: bool = False
    ) -> list[rows.ToolCallView]:
        """Return the tool calls of an execution in its attempt, or in all attempts."""
        found = []
        for row in self.db.execute(queries.TOOL_CALLS, (execution.id,)):
            if all_attempts or row["attempt"] == execution.attempt:
                refs = (each["message"]["$ref"] for each in json.loads(row["problems"] or "[]"))
                read = {
                    "arguments": read_arguments(row["arguments"]),
                    "problems": tuple(self._text(ref) or "" for ref in refs),
                }
                found.append(value_of(rows.ToolCallView, row, **read))
        return found

    def calls(self, execution: rows.ExecutionView) -> list[rows.CallView]:
        """Return all calls of an execution to models and agents: every attempt, retries, judges."""
        found = []
        for row in self.db.execute(queries.CALLS, (execution.id,)):
            messages = tuple(map(self._filled, json.loads(row["messages"])))
            found.append(value_of(rows.CallView, row, messages=messages))
        return found

    def spans(self, execution: rows.ExecutionView) -> list[rows.SpanView]:
        """Return the spans that the agent exported, of every attempt, in the order of the tree."""
        return [
            value_of(rows.SpanView, row, name=row["name"] or ERASED)
            for row in self.db.execute(queries.SPANS, (execution.id,))
        ]

    def first_messages(self, execution: rows.ExecutionView) -> tuple[dict[str, Any], ...]:
        """Return the messages that the conversation began with, with their texts."""
        return tuple(map(self._filled, execution.messages))

    def tools(self, execution: rows.ExecutionView) -> Any:
        """Return the recorded tool definitions; None without any, a string if erased."""
        # A rescored execution has the tools of the conversation that it checks.
        query = "SELECT tools_ref FROM executions WHERE id = ?"
        row = self.db.execute(query, (execution.source,)).fetchone()
        return read_json(self._text(row[0])) if row and row[0] else None

    def _filled(self, message: dict[str, Any]) -> dict[str, Any]:
        return {**message, "text": self._text(message["text"]["$ref"])}

    def _text(self, ref: str) -> str | None:
        row = self.db.execute("SELECT body FROM shown_texts WHERE ref = ?", (ref,)).fetchone()
        return row[0] if row else None

    def _suite(self, row: sqlite3.Row, shards: Sequence[sqlite3.Row]) -> rows.SuiteView:
        parts = tuple(part["id"] for part in shards)
        tests = StatusCounts()
        for alike in self._of_suite(queries.TEST_COUNTS, parts):
            counts = rows.counts_of(alike)
            status = "pending"
            if counts.total != counts.pending:
                scores = rows.scores_of(alike)
                status = test_status(counts, alike["pass_rate_min"], scores).value
            tests += StatusCounts(**{status: alike["number"]})
        namesakes = sum(other["name"] == row["name"] for other, _ in self.suite_rows)
        skipped = max((row["skipped_tests"] or 0) - tests.total, 0)
        tests += StatusCounts(skipped=skipped)
        figures = figures_of(lambda query: self._of_suite(query, parts), tests)
        gates = (
            Gate(gate["name"], float(gate["threshold"]), gate["written"])
            for gate in json.loads(row["gates"] or "[]")
            if not row["error_code"]
        )
        return value_of(
            rows.SuiteView,
            row,
            id=parts[0],
            parts=parts,
            full_name=f"{row['name']} ({row['path']})" if namesakes > 1 else row["name"],
            skipped_tests=skipped,
            figures=figures,
            tests=tests,
            executions=figures.executions,
            gates=tuple(evaluate_gate(gate, figures) for gate in gates),
        )

    def ask(self, query: str, suite: rows.SuiteView | None = None) -> sqlite3.Cursor:
        """Run a query with `$ids` about the run, or about one suite."""
        if suite is not None:
            return self._of_suite(query, suite.parts)
        return self.db.execute(*queries.among(query, self.runs))

    def _of_suite(self, query: str, parts: Sequence[str]) -> sqlite3.Cursor:
        # Queries about the executions of runs become queries about those of suites.
        of_suites = query.replace("run IN $ids", "suite IN $ids")
        return self.db.execute(*queries.among(of_suites, parts))

    def over_suites(self, query: str, suite: str | None = None) -> Iterator[sqlite3.Row]:
        """Run a query about each suite, or about the suite with a part of this id."""
        suites = ([part["id"] for part in parts] for _, parts in self.suite_rows)
        return chain.from_iterable(
            self._of_suite(query, parts) for parts in suites if suite is None or suite in parts
        )
