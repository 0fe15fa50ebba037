"""The report `json`: a run for programs, with a published schema (`report.schema.json`).

It is written test by test: memory does not grow with the size of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from importlib.resources import files
from typing import Any, TextIO

from kindlm import __version__
from kindlm.history.groups import Group
from kindlm.history.masking import as_shown
from kindlm.history.rows import AssertionView, AttemptView, ExecutionView, TestView
from kindlm.history.run_view import RunView
from kindlm.history.runs import Run
from kindlm.history.statistics import wilson_interval
from kindlm.history.trends import repeat_statistics, verdicts_of
from kindlm.outcome import Status
from kindlm.reports.facts import attacks_of, git_state, lacking_of, unsettled
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import json_in_pieces
from kindlm.spelling import fields_of

SCHEMA_VERSION = 1

_WORDS = {True: Status.PASSED, False: Status.FAILED, None: None}


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the report."""
    text = files("kindlm.reports").joinpath("report.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def write_report(view: RunView, out: TextIO, options: ReportOptions) -> None:
    """Write the report; it has no options."""
    del options
    # A gate that passes on a part of the executions may still fail on all of them.
    passed = view.complete and all(gate.passed for suite in view.suites for gate in suite.gates)
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
    if (no_verdict := unsettled(view)) is not None:
        errors.append({**no_verdict._asdict(), "number": None, "where": None})
    head = {
        "schemaVersion": SCHEMA_VERSION,
        "kindlm": __version__,
        "run": _run(view),
        "summary": _summary(view),
        "gates": {"passed": passed, "results": list(_gates(view))},
    }
    tests = (_test(view, test) for test in view.tests())
    out.writelines(json_in_pieces(head, "tests", tests, errors=errors))


def _run(view: RunView) -> dict[str, Any]:
    info, group = view.info, view.group
    return {
        **fields_of(info, "id label project"),
        "suites": [
            {
                "name": suite.name,
                "status": "incomplete"
                if suite.error_code is None and lacking_of(view, suite)
                else suite.status,
                **fields_of(suite, "error configHash"),
            }
            for suite in view.suites
        ],
        "status": view.status,
        "statusThen": _WORDS[info.passed],
        **fields_of(info, "mode sourceRun startedAt finishedAt durationMs"),
        "git": None if info.git_commit is None else git_state(info),
        "ci": info.ci,
        "headHash": info.head,
        "shard": info.shard and _shard(info.shard, view.shard_of),
        "group": group
        and {
            "name": group.name,
            "count": group.count,
            "shards": list(map(_shard_run, group.shards)),
            "missing": group.missing,
            "replaced": list(map(_shard_run, group.replaced)),
        },
    }


def _shard(shard: str, group: Group | None) -> dict[str, Any]:
    index, count = map(int, shard.split("/"))
    return {
        "index": index,
        "count": count,
        "group": group and group.name,
        "missing": group.missing if group else (),
        "unfinished": [each.index for each in group.unfinished] if group else (),
    }


def _shard_run(shard: Run) -> dict[str, Any]:
    return {"index": shard.index, "run": shard.id, "state": shard.state, "headHash": shard.head}


def _summary(view: RunView) -> dict[str, Any]:
    summary, attacks = view.summary, attacks_of(view)
    executions = summary.executions
    return {
        "tests": {"total": summary.tests.total, **summary.tests.by_status},
        "executions": {"total": executions.total, **executions.by_status},
        "passRate": executions.pass_rate,
        "passRateInterval": wilson_interval(executions.passed, executions.tested),
        "judgeAvg": summary.judge_average,
        "driftMax": summary.drift_maximum,
        "costUsd": summary.paid.agents_usd,
        "judgeCostUsd": summary.paid.judges_usd,
        "costThenUsd": summary.paid_then.agents_usd,
        "judgeCostThenUsd": summary.paid_then.judges_usd,
        "unknownCosts": summary.paid.unknown,
        "unknownCostsThen": summary.paid_then.unknown,
        **fields_of(summary, "calls callsFromHistory"),
        "tokens": {"input": summary.input_tokens, "output": summary.output_tokens},
        "latencyAvgMs": summary.latency_average_ms,
        "reviews": view.reviewed()._asdict(),
        "attacks": attacks and attacks.as_json(),
    }


def _gates(view: RunView) -> Iterator[dict[str, Any]]:
    for suite in view.suites:
        for gate in suite.gates:
            then = view.gates_then.get((suite.id, gate.name))
            yield {
                "suite": suite.name,
                **fields_of(gate, "name threshold actual passed"),
                "passedThen": then and then.passed,
                "message": gate.message,
            }


def _test(view: RunView, test: TestView) -> dict[str, Any]:
    verdicts, repeats = verdicts_of(view.db, test), repeat_statistics(view.db, test)
    return {
        **fields_of(test, "suite name target status flaky"),
        "passRate": test.counts.pass_rate,
        **fields_of(test, "tags file line brokenLimits"),
        "repeats": repeats
        and {
            **fields_of(repeats, "n passed confidence"),
            "passRateInterval": repeats.interval,
            "passAtK": repeats.pass_at,
            "passHatK": repeats.pass_hat,
            "weightedScore": repeats.score and fields_of(repeats.score, "n mean stdDev interval"),
        },
        "verdicts": verdicts and fields_of(verdicts, "n evalview kindlm differ"),
        "executions": [_execution(view, execution) for execution in view.executions(test)],
    }


def _execution(view: RunView, execution: ExecutionView) -> dict[str, Any]:
    (*earlier, last), _ = as_shown(view.attempts(execution))
    return {
        **fields_of(execution, "id repeat"),
        # An unfinished execution of a stopped run counts as skipped.
        "status": execution.status or Status.SKIPPED,
        **_result(last),
        "turns": execution.answers,
        **fields_of(execution, "latencyMs costUsd costThenUsd"),
        "source": None if execution.source == execution.id else execution.source,
        "tokens": {"input": execution.input_tokens, "output": execution.output_tokens},
        "finishReason": execution.finish_reason,
        "warnings": last.execution.warnings,
        "retriedAttempts": [
            {
                "attempt": attempt.number,
                "status": attempt.execution.status,
                **_result(attempt),
                **fields_of(attempt.execution, "latencyMs costUsd"),
            }
            for attempt in earlier
        ],
        "reviews": [
            {"verdict": _WORDS[review.passed], **fields_of(review, "note by at")}
            for review in view.reviews(execution)
        ],
    }


def _result(attempt: AttemptView) -> dict[str, Any]:
    execution = attempt.execution
    return {
        "error": execution.error_code
        and {
            "code": execution.error_code,
            "number": execution.error_number,
            "message": execution.error or "",
        },
        "output": execution.output,
        "toolCalls": [
            {"name": call.tool, **fields_of(call, "arguments response")}
            for call in attempt.tool_calls
        ],
        "assertions": list(map(_assertion, attempt.assertions)),
    }


def _assertion(assertion: AssertionView) -> dict[str, Any]:
    return {
        **fields_of(assertion, "kind label outcome score threshold expected actual failureCode"),
        "message": assertion.message or None,
        "evidence": list(map(asdict, assertion.evidence)),
        **fields_of(assertion, "reasoning durationMs advisory"),
    }
