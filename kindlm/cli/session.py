"""One recorded run: open the log, start what is served, run the plan, tell the verdict.

Here the rooms are wired together: the engine is handed the providers, the simulator, the checks
and the recorder, and the verdict is computed from the read models that the recorder filled.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from kindlm.agents.registry import make_agent
from kindlm.checks import CheckRunner
from kindlm.cli.cassettes import with_recorded_answers
from kindlm.cli.git import ci_service, git_state
from kindlm.cli.journal import new_journal
from kindlm.cli.recorder import RunRecorder
from kindlm.cli.run_events import (
    SkippedSuite,
    run_finished,
    run_started,
    suite_skipped,
    suite_started,
)
from kindlm.cli.secrets import suite_secrets
from kindlm.config import Diagnostic, bind_services, bind_suite
from kindlm.engine.clock import SystemClock
from kindlm.engine.runner import Observer, Ports, run_plan
from kindlm.engine.services import start_services
from kindlm.engine.stop import Stop
from kindlm.errors import Err, ErrorCode, KindlmError, Result
from kindlm.events import RunInterrupted, RunOptions, RunSealed, new_event
from kindlm.history.baselines import RecordedBaselines
from kindlm.history.run_view import RunView
from kindlm.plan import Plan, Selection, make_plan
from kindlm.ports import BaselineLookup, ModelClient
from kindlm.projections import PROJECTIONS
from kindlm.providers.embedders import find_embedder
from kindlm.providers.pricing import PriceTable
from kindlm.providers.registry import make_client
from kindlm.simulation import SimulatedTools
from kindlm.suite import ProviderSettings, Suite
from kindlm.wording import shown
from kindlm_store import Append, EventLog, HeadOf, Redactor, StreamLock

__all__ = ["RunRequest", "new_run_id", "open_log", "run_secrets", "run_session"]

T = TypeVar("T")

Tell: TypeAlias = Callable[[KindlmError | Diagnostic], None]
"""Shows an error or a warning while a run goes on."""

_ID_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
_ID_LENGTH = 8


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What is to be run. `environ` is the environment that providers and services see."""

    suites: Sequence[Suite]
    skipped: Sequence[SkippedSuite]
    selection: Selection
    root: Path
    database: Path
    environ: Mapping[str, str]
    options: RunOptions
    label: str | None = None


def new_run_id() -> str:
    """Return a short random id; without letters and digits that are taken for one another."""
    return "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))


def run_secrets(request: RunRequest) -> set[str]:
    """Return what must not be written down of a run, nor shown."""
    return suite_secrets(request.environ, request.suites)


def open_log(database: Path, secret: set[str]) -> EventLog:
    """Open the log with the redactor at its door; raise `OpenError` if that can't be done."""
    return EventLog.open(database, projections=PROJECTIONS, redact=Redactor(secret))


async def run_session(
    request: RunRequest,
    run: str,
    log: EventLog,
    observer: Observer,
    stop: Stop,
    tell: Tell,
) -> None:
    """Run everything that was requested and record it as the run `run`.

    `tell` is told what the user has to know meanwhile: cassettes that hold nothing, and served
    programs that end by themselves.

    The stream is sealed if the plan was completed and the verdict could be computed; otherwise
    the run stays open. Raises `StoreError` if events can't be written.
    """
    started = time.monotonic()
    stream = f"run/{run}"
    with StreamLock(request.database, stream), closing(RunRecorder(log, stream)) as recorder:
        with closing(log.reader()) as reader:
            async with _served(request, stop, reader, tell) as (suites, skipped):
                plan = make_plan(suites, request.selection)
                recorder.hide_personal_data(plan.suites, lambda slow: tell(_too_slow(slow)))
                baselines = RecordedBaselines(reader)
                _record_start(plan, skipped, request, baselines, recorder)
                ports = _ports(request, baselines, recorder)
                complete = stop.reason is None and await run_plan(
                    plan, ports, lambda finished: observer(recorder.shown(finished)), stop
                )
        if not complete:
            recorder.record(RunInterrupted(reason=stop.reason or "stopped"))
            await recorder.durable()
            return
        await recorder.durable()
        await log.aflush()
        if await _read_models_are_sound(log):
            await _finish(run, log, (time.monotonic() - started) * 1000)


def _too_slow(pattern: str) -> Diagnostic:
    error = KindlmError(
        ErrorCode.ASSERTION_EVAL_ERROR,
        f"The pattern {shown(pattern)} for personal data takes too long.",
        "Texts that it cannot search at once are not recorded: write it without nested repetition.",
    )
    return Diagnostic(error, "warning", "record.redactPii", None)


@asynccontextmanager
async def _served(
    request: RunRequest,
    stop: Stop,
    reader: sqlite3.Connection,
    tell: Tell,
) -> AsyncIterator[tuple[list[Suite], list[SkippedSuite]]]:
    """Start what the suites serve and yield those that are ready, and those that are not.

    When a stop is requested meanwhile, the suites are yielded as they are: nothing of them runs.
    """
    skipped = list(request.skipped)
    ready: list[Suite] = []
    async with AsyncExitStack() as stack:
        for suite in request.suites:
            served = await _unless_stopped(_serve(suite, request, reader, stack, tell), stop)
            if served is None:
                ready.append(suite)
            elif isinstance(served, Err):
                tests = sum(len(case.targets) for case in suite.cases)
                skipped.append(SkippedSuite(suite.name, suite.path, tests, served.error))
            else:
                ready.append(served.value)
        yield ready, skipped


async def _unless_stopped(work: Coroutine[Any, Any, T], stop: Stop) -> T | None:
    """Return what the work returns, None if a stop is requested before."""
    task = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.requested())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return None if not task.done() else task.result()
    finally:
        task.cancel()
        stopping.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)


async def _serve(
    suite: Suite,
    request: RunRequest,
    reader: sqlite3.Connection,
    stack: AsyncExitStack,
    tell: Tell,
) -> Result[Suite]:
    """Fill in what is known only now: recorded answers, the environment, the ports of services."""
    (planned,) = make_plan([suite], request.selection).suites
    recorded = with_recorded_answers(planned, reader)
    if isinstance(recorded, Err):
        return recorded
    for warning in recorded.value.warnings:
        tell(warning)
    suite = recorded.value.suite
    services = bind_services(suite, environ=request.environ)
    if isinstance(services, Err):
        return services
    starting = start_services(services.value, request.environ, tell)
    ports = await stack.enter_async_context(starting)
    if isinstance(ports, Err):
        return ports
    selected = {case.case.name: case.targets for case in planned.cases if case.selected}
    return bind_suite(suite, environ=request.environ, ports=ports.value, selected=selected)


def _ports(request: RunRequest, baselines: BaselineLookup, recorder: RunRecorder) -> Ports:
    def clients(settings: ProviderSettings) -> Result[ModelClient]:
        return make_client(settings, environ=request.environ)

    # One for all patterns and schemas of the user: side by side they would share a time limit.
    thread = ThreadPoolExecutor(1, thread_name_prefix="kindlm-checks")
    return Ports(
        clients=clients,
        pricing=PriceTable,
        simulators=partial(SimulatedTools, thread=thread),
        agents=partial(make_agent, environ=request.environ, root=request.root),
        baselines=baselines,
        embedders=partial(find_embedder, environ=request.environ),
        checker=CheckRunner(thread=thread),
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
    recorder.record(
        run_started(
            plan,
            request.options,
            project=request.root.name,
            label=request.label,
            git=git_state(request.root),
            ci=ci_service(request.environ),
        )
    )
    for planned in plan.suites:
        recorder.record(suite_started(planned, baselines))
    for ordinal, suite in enumerate(skipped, start=len(plan.suites)):
        recorder.record(suite_skipped(suite, ordinal))


async def _read_models_are_sound(log: EventLog) -> bool:
    """Tell whether the tables can be trusted; one that lost its fold is computed anew first.

    A verdict from tables that miss what happened would be sealed for good.
    """
    if log.projection_errors():
        await asyncio.to_thread(log.rebuild)
    return not log.projection_errors()


async def _finish(run: str, log: EventLog, duration_ms: float) -> None:
    """Compute the verdict from the read models, record it, and seal the run."""
    with closing(log.reader()) as reader:
        finished = run_finished(RunView(reader, run), duration_ms)
    stream = f"run/{run}"
    await log.submit(
        Append(stream, (new_event(finished),), seal=True),
        Append(new_journal(), (new_event(RunSealed(run=run, head=HeadOf(stream))),)),
    )
