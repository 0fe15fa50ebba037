"""The JSON report: a run for programs to read, with a published schema (`report.schema.json`).

It is written execution by execution: what is in memory is one execution, whatever the size of the
run. Whatever texts the run holds, the output is one valid JSON document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from importlib.resources import files
from typing import Any, TextIO

from kindlm import __version__
from kindlm.history.groups import ShardRun
from kindlm.history.masking import Mask, mask_of, masked
from kindlm.history.repeat_statistics import (
    RepeatStatistics,
    repeat_statistics,
    verdicts_of,
)
from kindlm.history.rows import (
    AssertionView,
    AttemptView,
    ExecutionView,
    SuiteView,
    Summary,
    TestView,
)
from kindlm.history.run_view import RunView
from kindlm.history.statistics.intervals import wilson_interval
from kindlm.outcome import Status
from kindlm.reports.attacks import attacks_of
from kindlm.reports.facts import git_state, unsettled
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import printed_json

SCHEMA_VERSION = 1


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the report."""
    text = files("kindlm.reports").joinpath("report.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


class _JsonReport:
    name = "json"

    def write(self, view: RunView, out: TextIO, options: ReportOptions) -> None:
        """Write the report; it has no options."""
        del options
        out.write("{\n")
        out.writelines(
            f"  {printed_json(name)}: {printed_json(value)},\n" for name, value in _head(view)
        )
        out.write('  "tests": [')
        separator = "\n    "
        for test in view.tests():
            out.write(separator)
            out.writelines(_test_parts(view, test))
            separator = ",\n    "
        errors: list[dict[str, Any]] = [
            {
                "code": suite.error_code,
                "number": suite.error_number,
                "message": suite.error or "",
                "where": suite.path,
            }
            for suite in view.suites
            if suite.error_code is not None
        ]
        if (without := unsettled(view)) is not None:
            told = {"code": without.code, "number": None, "message": without.message, "where": None}
            errors.append(told)
        out.write(f'\n  ],\n  "errors": {printed_json(errors)}\n}}\n')


REPORT = _JsonReport()


def _head(view: RunView) -> Iterator[tuple[str, Any]]:
    yield "schemaVersion", SCHEMA_VERSION
    yield "kindlm", __version__
    yield "run", _run(view)
    yield "summary", _summary(view)
    yield (
        "gates",
        {
            # What gates say of a part of the executions is not yet that they pass.
            "passed": view.complete
            and all(gate.passed for suite in view.suites for gate in suite.gates),
            "results": [gate for suite in view.suites for gate in _gates(view, suite)],
        },
    )


def _run(view: RunView) -> dict[str, Any]:
    info, group = view.info, view.group
    return {
        "id": info.id,
        "label": info.label,
        "project": info.project,
        "suites": [
            {
                "name": suite.name,
                "status": "incomplete" if view.missing_of(suite) else suite.status,
                "error": suite.error,
                "configHash": suite.config_hash,
            }
            for suite in view.suites
        ],
        "status": view.status,
        "statusThen": _word(info.passed),
        "mode": info.mode,
        "sourceRun": info.source_run,
        "startedAt": info.started_at,
        "finishedAt": info.finished_at,
        "durationMs": info.duration_ms,
        "git": None if info.git_commit is None else git_state(info),
        "ci": info.ci,
        "headHash": info.head,
        "shard": None if view.shard is None else asdict(view.shard),
        "group": None
        if group is None
        else {
            "name": group.name,
            "count": group.count,
            "shards": [_shard_run(shard) for shard in group.shards],
            "missing": group.missing,
            "replaced": [_shard_run(shard) for shard in group.replaced],
        },
    }


def _shard_run(shard: ShardRun) -> dict[str, Any]:
    return {
        "index": shard.index,
        "run": shard.run,
        "state": shard.state,
        "headHash": shard.head,
    }


def _summary(view: RunView) -> dict[str, Any]:
    summary: Summary = view.summary
    executions = summary.executions
    attacks = attacks_of(view)
    return {
        "tests": {"total": summary.tests.total, **summary.tests.by_status},
        "executions": {"total": executions.total, **executions.by_status},
        "passRate": executions.pass_rate,
        "passRateInterval": wilson_interval(executions.passed, executions.tested),
        "judgeAvg": summary.judge_average,
        "driftMax": summary.drift_maximum,
        "costUsd": summary.cost_usd,
        "judgeCostUsd": summary.judge_cost_usd,
        "costThenUsd": summary.cost_then_usd,
        "judgeCostThenUsd": summary.judge_cost_then_usd,
        "calls": summary.calls,
        "callsFromHistory": summary.calls_from_history,
        "tokens": {"input": summary.input_tokens, "output": summary.output_tokens},
        "latencyAvgMs": summary.latency_average_ms,
        "reviews": view.reviewed()._asdict(),
        "attacks": None if attacks is None else attacks.as_json(),
    }


def _gates(view: RunView, suite: SuiteView) -> Iterator[dict[str, Any]]:
    for gate in suite.gates:
        then = view.gates_then.get((suite.id, gate.name))
        yield {
            "suite": suite.name,
            "name": gate.name,
            "threshold": gate.threshold,
            "actual": gate.actual,
            "passed": gate.passed,
            "passedThen": then.passed if then else None,
            "message": gate.message,
        }


def _word(passed: bool | None) -> Status | None:
    if passed is None:
        return None
    return Status.PASSED if passed else Status.FAILED


def _test_parts(view: RunView, test: TestView) -> Iterator[str]:
    """Yield the text of a test in pieces, one for each execution."""
    verdicts = verdicts_of(view.db, test)
    head = {
        "suite": test.suite,
        "name": test.name,
        "target": test.target,
        "status": test.status,
        "flaky": test.flaky,
        "passRate": test.counts.pass_rate,
        "tags": test.tags,
        "file": test.file,
        "line": test.line,
        "brokenLimits": test.broken_limits,
        "repeats": _repeats(repeat_statistics(view.db, test)),
        "verdicts": None
        if verdicts is None
        else {
            "n": verdicts.n,
            "evalview": verdicts.evalview,
            "kindlm": verdicts.kindlm,
            "differ": verdicts.differ,
        },
    }
    yield f'{printed_json(head)[:-1]}, "executions": ['
    separator = "\n      "
    for execution in view.executions(test):
        yield separator + printed_json(_execution(view, execution))
        separator = ",\n      "
    yield "]}"


def _repeats(found: RepeatStatistics | None) -> dict[str, Any] | None:
    """Return what the repeats of a test show, None for a test with fewer than two."""
    if found is None:
        return None
    scores = found.score
    return {
        "n": found.n,
        "passed": found.passed,
        "confidence": found.confidence,
        "passRateInterval": found.interval,
        "passAtK": found.pass_at,
        "passHatK": found.pass_hat,
        "weightedScore": scores
        and {
            "n": scores.n,
            "mean": scores.mean,
            "stdDev": scores.std_dev,
            "interval": scores.interval,
        },
    }


def _execution(view: RunView, execution: ExecutionView) -> dict[str, Any]:
    attempts = view.attempts(execution)
    mask = mask_of(attempts)
    return {
        "id": execution.id,
        "repeat": execution.repeat,
        # One that a stopped run never finished counts as skipped, everywhere.
        "status": execution.status or Status.SKIPPED,
        **_found(attempts[-1], mask),
        "turns": execution.answers,
        "latencyMs": execution.latency_ms,
        "costUsd": execution.cost_usd,
        "costThenUsd": execution.cost_then_usd,
        "source": None if execution.source == execution.id else execution.source,
        "tokens": {"input": execution.input_tokens, "output": execution.output_tokens},
        "finishReason": execution.finish_reason,
        "warnings": [mask.text(warning) for warning in execution.warnings],
        "retriedAttempts": [
            {
                "attempt": attempt.number,
                "status": attempt.execution.status,
                **_found(attempt, mask),
                "latencyMs": attempt.execution.latency_ms,
                "costUsd": attempt.execution.cost_usd,
            }
            for attempt in attempts[:-1]
        ],
        "reviews": [
            {
                "verdict": _word(review.passed),
                "note": review.note,
                "by": review.by,
                "at": review.at,
            }
            for review in view.reviews(execution)
        ],
    }


def _found(attempt: AttemptView, mask: Mask) -> dict[str, Any]:
    """Return what came of an attempt at an execution."""
    execution = attempt.execution
    return {
        "error": None
        if execution.error_code is None
        else {
            "code": execution.error_code,
            "number": execution.error_number,
            "message": mask.text(execution.error or ""),
        },
        "output": mask.text(execution.output),
        "toolCalls": [
            {
                "name": call.tool,
                "arguments": mask.value(call.arguments),
                "response": mask.value(call.response),
            }
            for call in attempt.tool_calls
        ],
        "assertions": [_assertion(masked(found, mask)) for found in attempt.assertions],
    }


def _assertion(assertion: AssertionView) -> dict[str, Any]:
    return {
        "kind": assertion.kind,
        "label": assertion.label,
        "outcome": assertion.outcome,
        "score": assertion.score,
        "threshold": assertion.threshold,
        "expected": assertion.expected,
        "actual": assertion.actual,
        "failureCode": assertion.failure_code,
        "message": assertion.message or None,
        "evidence": list(map(asdict, assertion.evidence)),
        "reasoning": assertion.reasoning,
        "durationMs": assertion.duration_ms,
        "advisory": assertion.advisory,
    }
