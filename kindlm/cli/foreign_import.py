"""Imports results of other programs as a run of mode `imported`.

The run starts at the date of its file. Importing a file again, as the same suite, returns the same
run.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import NamedTuple

from kindlm import __version__
from kindlm.checks.base import codes
from kindlm.config import load_suite
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events.codec import Payload, new_event
from kindlm.events.execution_events import (
    AgentReplied,
    AgentSent,
    AgentToolUse,
    AssertionEvaluated,
    ExecutionFinished,
    ExecutionStarted,
)
from kindlm.events.run import PlannedTest, RunFinished, RunSealed, RunStarted, SuiteStarted
from kindlm.formats.foreign_results import ForeignExecution, ForeignResults, read_foreign
from kindlm.history.verdict import StatusCounts, test_status
from kindlm.outcome import CheckResult, Demands, Outcome, Status
from kindlm.recording.history_file import new_journal, new_run_id
from kindlm.recording.project import project_name
from kindlm.transcript import CostSource, Message, Role
from kindlm_store import Append, EventLog, HeadOf, utc_now

_SUITE = "evalview"
_TARGET = "agent"

_IMPORTED = """
SELECT substr(stream, 5) FROM event_log
 WHERE type = 'run.started' AND json_extract(data, '$.imported_from') = :source
   AND (:suite IS NULL OR EXISTS (
     SELECT 1 FROM suites s WHERE s.run = substr(stream, 5) AND s.name = :suite))
 ORDER BY at, id LIMIT 1
"""

# Project, suite and target of the last test with a name.
_KNOWN_TEST = """
SELECT s.project, s.name, p.target
  FROM planned_tests p JOIN suites s ON s.id = p.suite
 WHERE p.test = :test AND (:suite IS NULL OR s.name = :suite)
 ORDER BY s.started_at DESC, p.ordinal LIMIT 1
"""


class ForeignFile(NamedTuple):
    """The results in a file of another program, and a digest that identifies the file."""

    results: ForeignResults
    digest: str


def read_results(file: Path) -> Result[ForeignFile] | None:
    """Return the results in a file of another program; None if the format is unknown.

    Raises:
        OSError: The file cannot be read.
    """
    raw = file.read_bytes()
    try:
        value = json.loads(raw, parse_constant=lambda _: None)  # such as NaN
    except (ValueError, RecursionError) as error:
        if file.suffix != ".json":
            return None
        what = f"{file} is not a JSON report of a run, and no baseline of another program"
        hint = "Save it again with the program that wrote it."
        return Err(KindlmError(ErrorCode.BASELINE_CORRUPT, f"{what}: {error}.", hint))
    results = read_foreign(value)
    if isinstance(results, Ok):
        return Ok(ForeignFile(results.value, sha256(raw).hexdigest()[:16]))
    return results


def import_results(
    log: EventLog, file: ForeignFile, root: Path, suite: str | None
) -> tuple[str, int, int]:
    """Record the results of a file as a run; return it with the numbers of new and known events.

    If the file was imported already, as that suite, it is that run. The suite is `suite`, else that
    in the file, else the last one in the history with such a test, else that of kindlm.yaml if it
    has one.
    """
    source = f"{file.results.format}:{file.digest}"
    with closing(log.reader()) as db:
        known = db.execute(_IMPORTED, {"source": source, "suite": suite}).fetchone()
        if known is not None:
            head = log.head(f"run/{known[0]}")
            return known[0], 0, head.version if head else 0
        place = _place(db, file.results, root, suite)
    run = new_run_id()
    stream = f"run/{run}"
    at = file.results.at or utc_now()
    payloads = _payloads(file.results, place, source, file.digest)
    events = [new_event(payload, subject=subject, at=at) for subject, payload in payloads]
    sealed = RunSealed(run=run, head=HeadOf(stream))
    log.submit(
        Append(stream, events, expected_version=0, seal=True),
        Append(new_journal(), (new_event(sealed),)),
    ).result()
    return run, len(events), 0


def _place(
    db: sqlite3.Connection, results: ForeignResults, root: Path, suite: str | None
) -> tuple[str, str, str]:
    """Return the project and the suite of imported tests, and the target of tests without one."""
    named = suite or results.suite
    for test in results.tests:
        known = db.execute(_KNOWN_TEST, {"test": test.name, "suite": named}).fetchone()
        if known:
            return known["project"], known["name"], known["target"]
    project = project_name(root)
    # The first run of this suite will have the project of its file.
    configured = load_suite(root / "kindlm.yaml", root=root, project=lambda: project).suite
    if configured is not None:
        cases = {case.name: case for case in configured.cases}
        found = [cases[test.name] for test in results.tests if test.name in cases]
        if configured.name == named or (named is None and found):
            targets = (target for case in found for target in case.targets)
            return configured.project, configured.name, next(targets, _TARGET)
    return project, named or _SUITE, _TARGET


def _payloads(
    results: ForeignResults, place: tuple[str, str, str], source: str, digest: str
) -> Iterator[tuple[str | None, Payload]]:
    tests, (project, suite, usual) = results.tests, place
    started = RunStarted(
        project=project,
        mode="imported",
        planned=sum(len(test.executions) for test in tests),
        versions={"kindlm": __version__},
        imported_from=source,
    )
    yield None, started
    suite_started = SuiteStarted(
        suite=suite,
        ordinal=0,
        project=project,
        front_end=results.format,
        path=suite,
        config_hash=digest[:12],
        config="{}",
        gates=[],
        tests=[
            PlannedTest(name=test.name, target=test.target or usual, repeat=len(test.executions))
            for test in tests
        ],
    )
    yield None, suite_started
    number = count(1)
    for test in tests:
        target = test.target or usual
        # With an unknown answer, the sum of the known costs would be too low.
        priced = all(execution.output is not None for execution in test.executions)
        for repeat, execution in enumerate(test.executions, start=1):
            subject = f"{next(number)}.1"
            for payload in _execution(execution, test.name, target, repeat, priced=priced):
                yield subject, payload
    yield None, _finished([test.executions for test in tests])


def _execution(
    execution: ForeignExecution, test: str, target: str, repeat: int, *, priced: bool
) -> Iterator[Payload]:
    query = execution.query
    messages = [] if query is None else [Message(Role.USER, query)]
    source = CostSource.UNKNOWN if execution.cost_usd is None else CostSource.REPORTED
    yield ExecutionStarted(
        suite=0, test=test, target=target, repeat=repeat, attempt=1, messages=messages
    )
    if execution.output is not None:
        yield AgentSent(agent=target, adapter="imported", call=1, after=0)
        yield AgentReplied(
            call=1,
            text=execution.output,
            model=execution.model,
            input_tokens=execution.input_tokens,
            output_tokens=execution.output_tokens,
            latency_ms=execution.latency_ms or 0.0,
            cost_usd=execution.cost_usd if priced else None,
            cost_source=source if priced else CostSource.UNKNOWN,
            tool_calls=[AgentToolUse(index=at, use=use) for at, use in enumerate(execution.calls)],
        )
    yield from _assertions(execution)
    yield ExecutionFinished(
        status=_status(execution),
        output=execution.output,
        answers=1,
        latency_ms=execution.latency_ms,
        input_tokens=execution.input_tokens,
        output_tokens=execution.output_tokens,
        cost_usd=execution.cost_usd,
        cost_source=source,
    )


def _assertions(execution: ForeignExecution) -> Iterator[AssertionEvaluated]:
    index = count()
    for code in execution.failures:
        yield AssertionEvaluated(
            index=next(index),
            result=CheckResult(
                "imported",
                code,
                Outcome.FAILED,
                failure_code=code if code in codes() else None,
                message="The imported file has no further details.",
            ),
        )
    if execution.score is not None:
        yield AssertionEvaluated(
            index=next(index),
            result=CheckResult(
                "score",
                "weighted score",
                Outcome.PASSED if execution.passed else Outcome.FAILED,
                score=execution.score,
                threshold=execution.threshold,
            ),
            demands=None if execution.passed else Demands.TASK,
        )


def _finished(tests: Sequence[Sequence[ForeignExecution]]) -> RunFinished:
    counts = [Counter(_status(execution).value for execution in test) for test in tests]
    statuses = Counter(test_status(StatusCounts(**each), 1.0).value for each in counts)
    executions = sum(counts, Counter[str]())
    passed = statuses["passed"] > 0 and not statuses["failed"]
    return RunFinished(
        passed=passed,
        exit_code=0 if passed else 1,
        gates=[],
        tests={status.value: statuses[status.value] for status in Status},
        executions={status.value: executions[status.value] for status in Status},
        duration_ms=0.0,
    )


def _status(execution: ForeignExecution) -> Status:
    if execution.passed is None:
        return Status.SKIPPED
    return Status.PASSED if execution.passed else Status.FAILED
