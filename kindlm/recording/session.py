"""One recorded run: open the log, start what is served, run the plan, report the verdict."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kindlm.bounds import MAX_RETRY_AFTER_S
from kindlm.checks import CheckRunner
from kindlm.config.diagnostics import Diagnostic
from kindlm.dataclass import dataclass, replace
from kindlm.engine.resources import LiveRun, Ports
from kindlm.engine.runner import run_plan
from kindlm.engine.stop import Clock, Stop
from kindlm.errors import Err, ErrorCode, KindlmError, Result, SourceLocation, broken
from kindlm.events.run import DealtTest, RunAborted, RunExtended, RunInterrupted
from kindlm.history.baselines import RecordedBaselines
from kindlm.plan import Earlier, Plan, numbered, undealt
from kindlm.ports import AgentFactory, Embedder
from kindlm.providers.provider_registry import make_client
from kindlm.recording.recorder import RunRecorder
from kindlm.recording.request import Driven, RunRequest, Settling, Watcher
from kindlm.recording.resumption import Unfinished, lost_suite, read_earlier, read_unfinished
from kindlm.recording.serving import Served, Serving, unsandboxed
from kindlm.recording.session_events import finish_run, run_resumed, session_started
from kindlm.recording.suite_secrets import suite_secrets
from kindlm.suite import ProviderSettings, Suite
from kindlm.wording import count, shown, shown_path
from kindlm_store import EventLog, Redactor, stream_lock

if TYPE_CHECKING:
    from kindlm.gateway.observer import Gateway
    from kindlm.telemetry.otlp_observer import OtlpObserver


async def run_session(
    request: RunRequest, run: str, log: EventLog, watcher: Watcher, stop: Stop
) -> None:
    """Run the request, or what is left of it, and record it as the run `run`.

    The stream is sealed if the plan was completed and the verdict could be computed; otherwise the
    run stays open. A run whose tests are dealt to several processes also stays open: see
    `end_dealt`.

    Raises `LockHeldError` if another process records the run, `SealedError` if the run was finished
    meanwhile, and `StoreError`.
    """
    started = time.monotonic()
    stream = f"run/{run}"
    with stream_lock(request.database, stream), closing(RunRecorder(log, stream)) as recorder:
        with closing(log.reader()) as reader:
            is_resumed = request.changed is not None
            before = read_unfinished(reader, run) if is_resumed else None
            session = _Session(request, run, log, watcher, stop, recorder, reader, before)
            complete = await session.run_all()
        if not complete:
            ended = RunAborted if stop.aborted else RunInterrupted
            recorder.record(ended(reason=stop.reason or "stopped"))
            await recorder.durable()
            return
        await recorder.durable()
        await log.flush()
        if request.driven is not None and request.driven.dealt:
            return
        took_ms = (time.monotonic() - started) * 1000
        await finish_run(run, log, took_ms)


@dataclass(frozen=True, slots=True)
class _Session:
    """One session of a run; `before` is what earlier sessions recorded."""

    request: RunRequest
    run: str
    log: EventLog
    watcher: Watcher
    stop: Stop
    recorder: RunRecorder
    reader: sqlite3.Connection
    before: Unfinished | None

    async def run_all(self) -> bool:
        """Start the programs of the suites and run the plan; return whether all of it is done."""
        request, derived = self.request, self.request.derived
        self.recorder.hide_personal_data(request.placed)
        if derived is None:
            for warning in unsandboxed(request.suites, request.environ):
                self._show(warning)
        known = taped = self.before or request.settling
        if derived is not None and derived.mode == "replayed":
            taped = read_unfinished(self.reader, derived.run)
        async with (
            self._observers() as observers,
            Serving(
                request,
                self.run,
                self.stop,
                self.reader,
                self._show,
                observers.variables_for,
                taped.cassettes if taped else {},
            ).suites() as served,
            _agents_of(request) as agents,
        ):
            if observers.gateway is not None:
                suites = [planned.suite for planned in served.plan.suites]
                observers.gateway.forward_to(_providers_of(suites))
            baselines = RecordedBaselines(self.reader, known.baselines if known else None)
            await self._begin(served, baselines)
            if self.stop.reason is not None:
                return False
            ports = self._ports(baselines, agents, observers)
            if request.driven is not None:
                complete = await self._run_driven(request.driven, served, ports)
            elif request.settling is not None:
                complete = await self._run_rounds(request.settling, served.plan, ports)
            else:
                complete = await self._run_once(served.work, ports)
        complete = complete and not served.ended
        if complete and self.stop.aborted and self.stop.winding_down.is_set():
            message = f"A limit was reached near the end of the run: {self.stop.reason}."
            hint = "With a lower --concurrency, fewer calls are in flight when it is reached."
            self._warn("limits", ErrorCode.CONFIG_VALIDATION_ERROR, message, hint)
        return complete

    async def _begin(self, served: Served, baselines: RecordedBaselines) -> None:
        """Record the start of the session; stop it if it cannot go on from there."""
        request, before = self.request, self.before
        lost = None if before is None else lost_suite(served, request, before)
        if request.driven is not None and request.driven.dealt:
            # It is not known yet which tests this process will get.
            served = replace(served, plan=undealt(served.plan), work=undealt(served.work))
        if before is not None and lost is not None:
            # The suites stay as recorded.
            self.recorder.record(run_resumed(before.planned, request))
        else:
            for event in session_started(served, request, baselines):
                self.recorder.record(event)
        # A run that was finished meanwhile takes no events, and calls no model.
        await self.recorder.durable()
        if lost is not None:
            self._show(lost.error)
            self.stop.abort(f"suite {lost.name!r} cannot continue: {lost.error.message}")

    async def _run_once(self, plan: Plan, ports: Ports) -> bool:
        """Run a plan that is known from the start; return whether all of it is done."""
        earlier = self.before.earlier if self.before else Earlier()
        if earlier.unknown_costs and self.request.limits.max_cost_usd is not None:
            calls = count(earlier.unknown_costs, "earlier call")
            message = f"The cost limit leaves out {calls} of unknown cost."
            hint = "To keep all calls within the limit, run the tests again: kindlm test"
            self._warn("limits", ErrorCode.CONFIG_VALIDATION_ERROR, message, hint)
        derived = self.request.derived
        if derived is not None and derived.never:
            never = {each.id for each in plan if (each.test, each.repeat) in derived.never}
            earlier = replace(earlier, finished=earlier.finished | never)
        self.watcher.planned(plan, earlier.finished)
        complete = await self._run(plan, ports, earlier)
        why = None if derived is None else derived.why_incomplete
        if complete and why is not None:
            self.stop.abort(why)
        return complete and why is None

    async def _run_driven(self, driven: Driven, served: Served, ports: Ports) -> bool:
        """Run each part when the caller asks for it; return whether that was all of the plan."""
        lost = {suite.path: suite.error for suite in served.skipped.values()}
        came = 0

        async def parts() -> AsyncIterator[Plan]:
            nonlocal came
            async for part in driven.parts(served.work, lost):
                # The executions of tests that are dealt are numbered in order of arrival.
                plan = numbered(part.suites, came) if driven.dealt else part
                came += len(plan)
                if driven.dealt:
                    tests = [
                        DealtTest(suite=suite.ordinal, name=entry.case.name, target=target)
                        for suite in plan.suites
                        for entry in suite.cases
                        for target in entry.targets
                    ]
                    self.recorder.record(RunExtended(planned=came, tests=tests))
                yield plan

        self.watcher.planned(served.work, frozenset())
        complete = await self._run(served.work, ports, Earlier(), parts())
        if driven.dealt or not complete or came < len(served.work):
            return complete and driven.dealt
        if (objection := driven.objection()) is not None:
            self.stop.wind_down(objection)
        return objection is None

    async def _run_rounds(self, settling: Settling, whole: Plan, ports: Ports) -> bool:
        planned = 0
        while (plan := await settling.next_round(self.reader, whole, self.stop)) is not None:
            planned += len(plan)
            self.recorder.record(RunExtended(planned=planned))
            earlier = read_earlier(self.reader, self.run)
            self.watcher.planned(plan, earlier.finished)
            if not await self._run(plan, ports, earlier):
                return False
            # The tables must be current to plan the next round.
            await self.recorder.durable()
            await self.log.flush()
        return not self.stop.requested.is_set()  # a signal may come between two rounds

    async def _run(
        self, plan: Plan, ports: Ports, earlier: Earlier, parts: AsyncIterator[Plan] | None = None
    ) -> bool:
        """Run a plan, except executions that ended earlier; return whether all of it is done."""
        run = LiveRun(
            plan,
            ports,
            self.stop,
            limits=self.request.limits,
            earlier=earlier,
            unpriced=self._unpriced,
            held_up=self._held_up,
            checked_late=cache(self._checked_late),  # once for each line
        )
        self.watcher.started(run)
        shown = self.recorder.shown
        return await run_plan(run, lambda ended: self.watcher.finished(shown(ended)), parts)

    def _held_up(self, callee: str, seconds: float) -> None:
        """Report a pause of a provider; a pause that is too long leaves the run incomplete."""
        message = f"{shown(callee)} takes no calls for {seconds:,.0f} s"
        if seconds > MAX_RETRY_AFTER_S:
            self.stop.leave_undone(message)
        what = f"{message}; kindlm sends nothing there until then."
        hint = (
            "Calls to other providers continue. Later, kindlm test --resume runs what was skipped,"
            " and --failed what failed."
        )
        self._warn("providers", ErrorCode.PROVIDER_RATE_LIMIT, what, hint)

    def _unpriced(self, model: str) -> None:
        self._warn(
            "prices",
            ErrorCode.CONFIG_VALIDATION_ERROR,
            f"The cost limit cannot be enforced unless calls report their cost: the price of "
            f"{shown(model)} is not known, or a call did not report its tokens.",
            "Add the price to `prices` in kindlm.yaml, in dollars for a million tokens, 0 if it"
            " costs nothing; for cases of EvalView to `model` in .evalview/config.yaml. In"
            " scenarios, let the agent report its `cost`.",
        )

    def _checked_late(self, where: SourceLocation) -> None:
        place = SourceLocation(shown_path(Path(where.file)), where.line)
        message = f"The check in {place} ran after its scenario had ended: it is not recorded."
        hint = "Await the task in the scenario, or check in the scenario itself."
        self._warn("checks", ErrorCode.ASSERTION_EVAL_ERROR, message, hint)

    @asynccontextmanager
    async def _observers(self) -> AsyncIterator[_Observers]:
        """Yield what observes the agents that run now; nothing is started for other agents."""
        request, derived = self.request, self.request.derived
        agents = [agent for suite in request.suites for agent in suite.all_agents()]
        if derived is not None:
            # In a replay, only agents whose models the gateway answers run.
            agents = [agent for agent in agents if agent.gateway and derived.mode == "replayed"]
        gateway = traces = None
        async with AsyncExitStack() as stack:
            if any(agent.gateway for agent in agents):
                from kindlm.gateway.observer import Gateway

                warn = partial(self._warn, "gateway", ErrorCode.ASSERTION_EVAL_ERROR)
                providers = _providers_of(request.suites)
                replays = derived is not None
                made = Gateway(self.run, request.environ, providers, warn, replays=replays)
                gateway = await stack.enter_async_context(made)
            if any(agent.telemetry for agent in agents):
                from kindlm.telemetry.otlp_observer import observing_otlp

                traces = await stack.enter_async_context(observing_otlp(self.run, request.environ))
            yield _Observers(gateway, traces)
            for message, hint in traces.notes() if traces is not None else ():
                self._warn("telemetry", ErrorCode.ASSERTION_EVAL_ERROR, message, hint)

    def _warn(self, place: str, code: ErrorCode, message: str, hint: str) -> None:
        error = KindlmError(code, message, hint)
        self._show(Diagnostic(error, "warning", place))

    def _show(self, problem: KindlmError | Diagnostic) -> None:
        self.watcher.show_problem(self.recorder.shown_problem(problem))

    def _ports(
        self, baselines: RecordedBaselines, agents: AgentFactory, observers: _Observers
    ) -> Ports:
        request, checker = self.request, CheckRunner()

        def embedders(suite: Suite, target: str) -> Result[Embedder]:
            from kindlm.recording.recorded_sources import embedder

            return embedder(request.derived, request.environ, suite, target)

        transcripts = answers = None
        if request.derived is not None or request.options.cache:
            from kindlm.recording.recorded_sources import recorded_sources

            transcripts, answers = recorded_sources(request, self.run, self.reader)
        return Ports(
            clients=partial(make_client, environ=request.environ),
            agents=agents,
            baselines=baselines.text,
            embedders=embedders,
            checker=checker,
            # The checker's thread: patterns and schemas in parallel would share a time limit.
            aside=checker.aside,
            recorder=self.recorder,
            clock=Clock(),
            transcripts=transcripts,
            answers=answers,
            calls_targets=request.derived is None,
            # Of two `traceparent` headers, the last one counts.
            observers=tuple(filter(None, (observers.gateway, observers.traces))),
        )


class _Observers(NamedTuple):
    """What observes the agents of a run, None without agents that need it."""

    gateway: Gateway | None
    traces: OtlpObserver | None

    def variables_for(self, suite: Suite) -> dict[str, str]:
        """Return the variables for programs that serve agents of a suite."""
        agents, found = suite.all_agents(), dict[str, str]()
        if self.gateway is not None and any(agent.gateway for agent in agents):
            found |= self.gateway.variables()
        if self.traces is not None and any(agent.telemetry for agent in agents):
            found |= self.traces.exporting()
        return found


def _providers_of(suites: Iterable[Suite]) -> list[ProviderSettings]:
    return [provider for suite in suites for provider in suite.providers.values()]


@asynccontextmanager
async def _agents_of(request: RunRequest) -> AsyncIterator[AgentFactory]:
    """Yield the factory of agents; their processes and connections end with the session."""
    if not any(
        suite.front_end != "kindlm"
        or suite.all_agents()
        or any(case.command is not None for case in suite.cases)
        for suite in request.suites
    ):
        yield lambda target, _: Err(broken(f"{target} is an agent of a suite without agents"))
        return
    from kindlm.agents import make_agent
    from kindlm.agents.python_processes import PythonProcesses
    from kindlm.agents.served import kept_connections

    environ, root = request.environ, request.root
    redact = Redactor(suite_secrets(environ, request.suites))
    async with PythonProcesses(environ, root, redact) as processes, kept_connections():
        yield partial(make_agent, environ=environ, root=root, processes=processes)
