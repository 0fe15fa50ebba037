"""The events that frame a run: what was asked for, what each suite is, how it all ended."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from kindlm.config.load import suite_identity
from kindlm.errors import Ok
from kindlm.events import (
    GateVerdict,
    GitState,
    PlannedTest,
    RunFinished,
    RunResumed,
    RunSealed,
    RunStarted,
    SuiteSkipped,
    SuiteStarted,
    new_event,
)
from kindlm.history.run_view import RunView
from kindlm.history.verdict import StatusCounts
from kindlm.plan import Plan, PlannedSuite
from kindlm.ports import BaselineLookup
from kindlm.recording.journal import new_journal
from kindlm.recording.request import Resuming, RunRequest, SkippedSuite
from kindlm.suite import Case, Suite
from kindlm_store import Append, EventLog, HeadOf

__all__ = [
    "finish_run",
    "run_finished",
    "run_resumed",
    "run_started",
    "suite_skipped",
    "suite_started",
]


_USUAL_CONFIDENCE = 0.95


def run_started(
    plan: Plan, request: RunRequest, *, git: GitState | None, ci: str | None
) -> RunStarted:
    """Return the first event of a run."""
    suites = [planned.suite for planned in plan.suites]
    source = request.derived or request.settling
    return RunStarted(
        project=suites[0].project if suites else request.root.name,
        mode=_mode(request),
        source_run=source.run if source else None,
        # What is settled is planned round by round.
        planned=0 if request.settling else len(plan),
        label=request.label,
        group=request.group,
        shard=request.options.shard,
        git=git,
        ci=ci,
        versions=_versions(),
        options=request.options,
    )


def _mode(
    request: RunRequest,
) -> Literal["live", "rescored", "replayed", "settled", "generation"]:
    if request.settling is not None:
        return "settled"
    if request.generating:
        return "generation"
    return request.derived.mode if request.derived else "live"


def run_resumed(planned: int, resuming: Resuming) -> RunResumed:
    """Return the first event of a later session of a run."""
    return RunResumed(
        by=f"{socket.gethostname()}:{os.getpid()}",
        planned=planned,
        changed=resuming.changed,
    )


def suite_started(planned: PlannedSuite, baselines: BaselineLookup, root: Path) -> SuiteStarted:
    """Return the event of a suite that runs, in a project whose folder is `root`."""
    suite = planned.suite
    baseline = baselines.run(suite.project, suite.name)
    return SuiteStarted(
        suite=suite.name,
        ordinal=planned.ordinal,
        project=suite.project,
        front_end=suite.front_end,
        path=suite.path,
        config_hash=suite.config_hash,
        config=suite.config_text,
        gates=suite.gates,
        baseline_run=baseline.value if isinstance(baseline, Ok) else None,
        tags=suite.tags,
        tests=list(_planned_tests(planned, root)),
        unread=suite.unread,
    )


def suite_skipped(skipped: SkippedSuite, ordinal: int) -> SuiteSkipped:
    """Return the event of a suite that can not run."""
    error = skipped.error
    return SuiteSkipped(
        suite=skipped.name,
        ordinal=ordinal,
        path=skipped.path,
        tests=skipped.tests,
        error_code=error.code.name,
        error_number=error.code.value,
        message=error.message,
        hint=error.hint or None,
        line=error.where.line if error.where else None,
        column=error.where.column if error.where else None,
    )


def run_finished(view: RunView, duration_ms: float) -> RunFinished:
    """Return the event that completes a run, with the verdict as it is told now."""
    passed = view.fulfilled
    return RunFinished(
        passed=passed,
        exit_code=0 if passed else 1,
        gates=[
            GateVerdict(
                suite=suite.id,
                name=gate.name,
                threshold=gate.threshold,
                actual=gate.actual,
                passed=gate.passed,
                written=gate.written,
                message=gate.message,
            )
            for suite in view.suites
            for gate in suite.gates
        ],
        tests=_by_status(view.summary.tests),
        executions=_by_status(view.summary.executions),
        duration_ms=round(duration_ms, 3),
    )


def _planned_tests(planned: PlannedSuite, root: Path) -> Iterator[PlannedTest]:
    for entry in planned.cases:
        case = entry.case
        for target in case.targets:
            yield PlannedTest(
                name=case.name,
                target=target,
                tags=case.tags,
                selected=entry.selected and target in entry.targets,
                skip=case.skip,
                repeat=entry.repeat,
                pass_rate=case.pass_rate,
                line=case.where.line if case.where else None,
                file=_file_of(case, planned.suite, root),
                score_limits=case.score_limits,
                confidence=case.confidence if case.confidence != _USUAL_CONFIDENCE else None,
            )


def _file_of(case: Case, suite: Suite, root: Path) -> str | None:
    """Return the file of a case as paths of suites are written, if it is not that of its suite."""
    if case.where is None:
        return None
    file = suite_identity(Path(case.where.file), root)
    return None if file == suite.path else file


def _by_status(counts: StatusCounts) -> dict[str, int]:
    return {
        "passed": counts.passed,
        "failed": counts.failed,
        "errored": counts.errored,
        "skipped": counts.untested,
    }


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("kindlm", "openai", "anthropic"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


async def finish_run(run: str, log: EventLog, duration_ms: float) -> None:
    """Compute the verdict from the read models, record it, and seal the run.

    Not if the tables can not be trusted, also when they are computed anew: a verdict from tables
    that miss what happened would be sealed for good.
    """
    if log.projection_errors():
        await asyncio.to_thread(log.rebuild)
    if log.projection_errors():
        return
    with closing(log.reader()) as reader:
        finished = run_finished(RunView(reader, run), duration_ms)
    stream = f"run/{run}"
    await log.submit(
        Append(stream, (new_event(finished),), seal=True),
        Append(new_journal(), (new_event(RunSealed(run=run, head=HeadOf(stream))),)),
    )
