"""Makes the events at the beginning and the end of a session, and the verdict of its run."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from kindlm import __version__
from kindlm.config import suite_identity
from kindlm.errors import Ok
from kindlm.events.codec import Payload, new_event
from kindlm.events.run import (
    CassetteRun,
    GateVerdict,
    PlannedTest,
    RunFinished,
    RunInterrupted,
    RunResumed,
    RunSealed,
    RunStarted,
    SuiteSkipped,
    SuiteStarted,
)
from kindlm.history.baselines import RecordedBaselines
from kindlm.history.run_view import RunView
from kindlm.plan import PlannedSuite
from kindlm.recording.history_file import new_journal
from kindlm.recording.project import ci_service, git_state, project_name
from kindlm.recording.request import RunRequest
from kindlm_store import Append, EventLog, HeadOf, stream_lock

if TYPE_CHECKING:
    from kindlm.recording.serving import Served


_USUAL_CONFIDENCE = 0.95


def session_started(
    served: Served, request: RunRequest, baselines: RecordedBaselines
) -> Iterator[Payload]:
    """Yield the first events of a session: those of the run, then those of its suites.

    Suites that could not start in an earlier session may start now.
    """
    plan = served.work
    if request.changed is not None:
        yield run_resumed(len(plan), request)
    else:
        source = request.derived or request.settling
        versions = {"python": platform.python_version(), "kindlm": __version__}
        for package in ("openai", "anthropic"):
            with suppress(PackageNotFoundError):
                versions[package] = version(package)
        yield RunStarted(
            project=plan.suites[0].suite.project if plan.suites else project_name(request.root),
            mode=request.mode,
            source_run=source.run if source else None,
            # `kindlm settle` plans its repeats round by round.
            planned=0 if request.settling else len(plan),
            label=request.label,
            group=request.group,
            shard=request.options.shard,
            git=git_state(request.root),
            ci=ci_service(request.environ),
            versions=versions,
            options=request.options,
        )
    for planned in served.plan.suites:
        suite = planned.suite
        baseline = baselines.run(suite.project, suite.name)
        yield SuiteStarted(
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
            tests=list(planned_tests(planned, request.root)),
            unread=suite.unread,
            servers=suite.listed,
            cassettes=[CassetteRun(name=name, run=run) for name, run in suite.cassettes.items()],
        )
    for ordinal, skipped in sorted(served.skipped.items()):
        error = skipped.error
        yield SuiteSkipped(
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


def run_resumed(planned: int, request: RunRequest) -> RunResumed:
    """Return the first event of a later session of a run, with the number of its executions."""
    by = f"{socket.gethostname()}:{os.getpid()}"
    return RunResumed(by=by, planned=planned, changed=request.changed or ())


def planned_tests(planned: PlannedSuite, root: Path) -> Iterator[PlannedTest]:
    """Yield the tests of a suite, in a project whose folder is `root`, in their order."""
    identity = cache(lambda file: suite_identity(Path(file), root))
    for entry in planned.cases:
        case = entry.case
        file = identity(case.where.file) if case.where else planned.suite.path
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
                file=None if file == planned.suite.path else file,
                score_limits=case.score_limits,
                confidence=case.confidence if case.confidence != _USUAL_CONFIDENCE else None,
            )


async def finish_run(run: str, log: EventLog, duration_ms: float) -> None:
    """Compute the verdict from the tables, record it, and seal the run.

    If the tables are wrong even after a rebuild, the run stays open: a sealed verdict is final.
    """
    if log.projection_errors():
        await asyncio.to_thread(log.rebuild)
    if log.projection_errors():
        return

    with closing(log.reader()) as db:
        view = RunView(db, run)
        gates = ((suite.id, gate) for suite in view.suites for gate in suite.gates)
        finished = RunFinished(
            passed=view.fulfilled,
            exit_code=0 if view.fulfilled else 1,
            gates=[GateVerdict(suite=suite, result=gate) for suite, gate in gates],
            tests=view.summary.tests.by_status,
            executions=view.summary.executions.by_status,
            duration_ms=round(duration_ms, 3),
        )
    stream = f"run/{run}"
    await log.submit(
        Append(stream, (new_event(finished),), seal=True),
        Append(new_journal(), (new_event(RunSealed(run=run, head=HeadOf(stream))),)),
    )


async def end_dealt(run: str, log: EventLog, duration_ms: float, lacking: str | None) -> None:
    """End a run whose tests were dealt to several processes, after these have ended.

    `lacking` says why some tests did not run; only with None, the run gets a verdict and is sealed.
    Raises `LockHeldError` if a process still records the run.
    """
    stream = f"run/{run}"
    with stream_lock(log.path, stream):
        if lacking is None:
            await finish_run(run, log, duration_ms)
        else:
            await log.submit(Append(stream, (new_event(RunInterrupted(reason=lacking)),)))
