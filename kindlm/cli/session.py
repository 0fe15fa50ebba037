"""One recorded run: open the log, start what is served, run the plan, tell the verdict.

Here the rooms are wired together: the engine is handed the providers, the simulator, the checks
and the recorder, and the verdict is computed from the read models that the recorder filled.
"""

from __future__ import annotations

import platform
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kindlm.agents.registry import make_agent
from kindlm.checks import CheckRunner
from kindlm.cli.git import ci_service, git_state
from kindlm.cli.journal import new_journal
from kindlm.cli.recorder import RunRecorder
from kindlm.cli.secrets import secret_values
from kindlm.config import bind_services, bind_suite
from kindlm.engine.clock import SystemClock
from kindlm.engine.runner import Observer, Ports, Stop, run_plan
from kindlm.engine.services import start_services
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events import (
    GateData,
    GateVerdictData,
    PlannedTest,
    RunFinished,
    RunInterrupted,
    RunSealed,
    RunStarted,
    SuiteSkipped,
    SuiteStarted,
    new_event,
)
from kindlm.history.baselines import RecordedBaselines
from kindlm.history.run_view import RunView
from kindlm.history.verdict import StatusCounts
from kindlm.plan import Plan, PlannedSuite, Selection, make_plan
from kindlm.ports import BaselineLookup, ModelClient
from kindlm.projections import PROJECTIONS
from kindlm.providers.pricing import PriceTable
from kindlm.providers.registry import make_client
from kindlm.simulation import SimulatedTools
from kindlm.suite import ProviderSettings, Suite
from kindlm_store import Append, EventLog, HeadOf, Redactor, StreamLock, Text

__all__ = ["RunRequest", "SkippedSuite", "new_run_id", "open_log", "run_session"]

_ID_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
_ID_LENGTH = 8


@dataclass(frozen=True, slots=True)
class SkippedSuite:
    """A suite that could not be loaded or started, and why."""

    name: str
    path: str
    tests: int
    error: KindlmError


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What is to be run. `environ` is the environment that providers and services see."""

    suites: Sequence[Suite]
    skipped: Sequence[SkippedSuite]
    selection: Selection
    root: Path
    database: Path
    environ: Mapping[str, str]
    label: str | None = None


def new_run_id() -> str:
    """Return a short random id; without letters and digits that are taken for one another."""
    return "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))


def open_log(database: Path, suites: Sequence[Suite], environ: Mapping[str, str]) -> EventLog:
    """Open the log with the redactor at its door; raise `OpenError` if that can't be done."""
    key_variables = {
        settings.api_key_env
        for suite in suites
        for settings in suite.providers.values()
        if settings.api_key_env
    }
    redactor = Redactor(secret_values(environ, key_variables))
    return EventLog.open(database, projections=PROJECTIONS, redact=redactor)


async def run_session(
    request: RunRequest, run: str, log: EventLog, observer: Observer, stop: Stop
) -> None:
    """Run everything that was requested and record it as the run `run`.

    The stream is sealed if the plan was completed. Raises `StoreError` if events can't be written.
    """
    started = time.monotonic()
    recorder = RunRecorder(log, f"run/{run}")
    with StreamLock(request.database, f"run/{run}"):
        async with _served(request) as (suites, skipped):
            plan = make_plan(suites, request.selection)
            with closing(log.reader()) as reader:
                baselines = RecordedBaselines(reader)
                _record_start(plan, skipped, request, baselines, recorder)
                ports = _ports(request, baselines, recorder)
                complete = await run_plan(plan, ports, observer, stop)
        if complete:
            await log.aflush()
            await _finish(run, log, (time.monotonic() - started) * 1000)
        else:
            recorder.record(RunInterrupted(reason=stop.reason or "stopped"))
            await recorder.durable()


@asynccontextmanager
async def _served(
    request: RunRequest,
) -> AsyncIterator[tuple[list[Suite], list[SkippedSuite]]]:
    """Start what the suites serve and yield those that are ready, and those that are not."""
    skipped = list(request.skipped)
    ready: list[Suite] = []
    async with AsyncExitStack() as stack:
        for suite in request.suites:
            served = await _serve(suite, request, stack)
            if isinstance(served, Err):
                tests = sum(len(case.targets) for case in suite.cases)
                skipped.append(SkippedSuite(suite.name, suite.path, tests, served.error))
            else:
                ready.append(served.value)
        yield ready, skipped


async def _serve(suite: Suite, request: RunRequest, stack: AsyncExitStack) -> Result[Suite]:
    """Start the services of a suite, and put their ports and the environment into it."""
    services = bind_services(suite, environ=request.environ)
    if isinstance(services, Err):
        return services
    ports = await stack.enter_async_context(start_services(services.value, request.environ))
    if isinstance(ports, Err):
        return ports
    (planned,) = make_plan([suite], request.selection).suites
    selected = {case.case.name: case.targets for case in planned.cases if case.selected}
    return bind_suite(suite, environ=request.environ, ports=ports.value, selected=selected)


def _ports(request: RunRequest, baselines: BaselineLookup, recorder: RunRecorder) -> Ports:
    def clients(settings: ProviderSettings) -> Result[ModelClient]:
        return make_client(settings, environ=request.environ)

    return Ports(
        clients=clients,
        pricing=PriceTable,
        simulators=SimulatedTools,
        agents=partial(make_agent, environ=request.environ, root=request.root),
        baselines=baselines,
        embedders=_no_embedder,
        checker=CheckRunner(),
        recorder=recorder,
        clock=SystemClock(),
    )


def _record_start(
    plan: Plan,
    skipped: Sequence[SkippedSuite],
    request: RunRequest,
    baselines: BaselineLookup,
    recorder: RunRecorder,
) -> None:
    suites = [planned.suite for planned in plan.suites]
    recorder.record(
        RunStarted(
            project=suites[0].project if suites else request.root.name,
            planned=len(plan),
            label=request.label,
            git=git_state(request.root),
            ci=ci_service(request.environ),
            versions=_versions(),
        )
    )
    for planned in plan.suites:
        recorder.record(_suite_started(planned, baselines))
    for ordinal, suite in enumerate(skipped, start=len(plan.suites)):
        recorder.record(
            SuiteSkipped(
                suite=suite.name,
                ordinal=ordinal,
                path=suite.path,
                tests=suite.tests,
                error_code=suite.error.code.name,
                error_number=suite.error.code,
                message=Text(suite.error.message),
            )
        )


def _suite_started(planned: PlannedSuite, baselines: BaselineLookup) -> SuiteStarted:
    suite = planned.suite
    baseline = baselines.run(suite.project, suite.name)
    return SuiteStarted(
        suite=suite.name,
        ordinal=planned.ordinal,
        project=suite.project,
        front_end=suite.front_end,
        path=suite.path,
        config_hash=suite.config_hash,
        config=Text(suite.config_text),
        gates=[
            GateData(name=gate.name, threshold=gate.threshold, written=gate.written)
            for gate in suite.gates
        ],
        baseline_run=baseline.value if isinstance(baseline, Ok) else None,
        tags=list(suite.tags),
        tests=[
            PlannedTest(
                name=planned_case.case.name,
                target=target,
                tags=list(planned_case.case.tags),
                selected=planned_case.selected and target in planned_case.targets,
                skip=planned_case.case.skip,
                repeat=planned_case.repeat,
                pass_rate=planned_case.case.pass_rate,
                line=planned_case.case.where.line if planned_case.case.where else None,
            )
            for planned_case in planned.cases
            for target in planned_case.case.targets
        ],
    )


async def _finish(run: str, log: EventLog, duration_ms: float) -> None:
    """Compute the verdict from the read models, record it, and seal the run."""
    reader = log.reader()
    try:
        view = RunView(reader, run)
        finished = RunFinished(
            passed=view.passed,
            exit_code=0 if view.passed else 1,
            gates=[
                GateVerdictData(
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
    finally:
        reader.close()
    stream = f"run/{run}"
    sealed = RunSealed(run=run, head=HeadOf(stream))
    await log.submit(
        Append(stream, (new_event(finished),), seal=True),
        Append(new_journal(), (new_event(sealed),)),
    )


def _by_status(counts: StatusCounts) -> dict[str, int]:
    return {
        "passed": counts.passed,
        "failed": counts.failed,
        "errored": counts.errored,
        "skipped": counts.skipped,
    }


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("kindlm", "openai", "anthropic"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _no_embedder(suite: Suite, target: str) -> Err:
    return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, "Embeddings are not served yet."))
