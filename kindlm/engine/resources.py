"""The inputs of the engine, the state that executions share, and how to steer a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import KW_ONLY, field
from typing import Generic, TypeVar

from kindlm.dataclass import dataclass
from kindlm.engine.pace import Callee, Pace, Turn
from kindlm.engine.stop import Budget, Clock, Stop
from kindlm.errors import Err, Ok, Result, SourceLocation, broken, error_text
from kindlm.events.execution_events import AgentSent, ProviderPaced, ProviderRequested
from kindlm.plan import Earlier, Execution, Plan
from kindlm.ports import (
    AgentFactory,
    AnswerSource,
    Aside,
    Checker,
    Embedder,
    ModelClient,
    Observer,
    Recorder,
    TranscriptSource,
)
from kindlm.pricing import prices_of
from kindlm.suite import AgentTarget, ProviderSettings, Suite
from kindlm.transcript import Usage

K = TypeVar("K")
V = TypeVar("V")

_LONG_PAUSE_S = 30.0
"""A pause so long looks like a run that hangs."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The services that the engine gets from outside; `ports` has their protocols.

    `clients` makes the client of a provider, or says why it can't, such as for a missing key.
    `embedders` finds the embedder for a target of a suite. `baselines` finds the final text of a
    test in the active baseline: None without one, a 5xx error if it is unusable. With
    `transcripts`, the recorded conversations of an earlier run are checked again. With `answers`,
    targets give the recorded answers of earlier runs. `calls_targets` is False if another run has
    all answers, so that no target may be called. `observers` observe agents.
    """

    clients: Callable[[ProviderSettings], Result[ModelClient]]
    agents: AgentFactory
    checker: Checker
    aside: Aside
    baselines: Callable[[Execution], Result[str | None]]
    embedders: Callable[[Suite, str], Result[Embedder]]
    recorder: Recorder
    clock: Clock
    transcripts: TranscriptSource | None = None
    answers: AnswerSource | None = None
    calls_targets: bool = True
    observers: tuple[Observer, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run; None is no limit. `max_rpm` is calls per minute to each callee."""

    max_cost_usd: float | None = None
    max_time_s: float | None = None
    max_rpm: float | None = None


@dataclass(eq=False)
class OneForEach(Generic[K, V]):
    """Values made once for each key. Keys are compared: settings with mappings have no hash."""

    _make: Callable[[K], V]
    made: list[tuple[K, V]] = field(default_factory=list)

    def get(self, key: K) -> V:
        """Return the value for a key; make it the first time."""
        for known, value in self.made:
            if known is key or known == key:
                return value
        value = self._make(key)
        self.made.append((key, value))
        return value


@dataclass(slots=True)
class OpenCall:
    """The current call of a running execution, for display only.

    `since` is when the execution started, by the monotonic clock. `request` is the current call,
    None between calls. `http_status` is that of the last failed try, and the next try starts at
    `retry_at`.
    """

    since: float
    request: ProviderRequested | AgentSent | None = None
    pace: Pace | None = None
    http_status: int | None = None
    retry_at: float = 0.0


@dataclass(eq=False, repr=False)  # what it leads to has secrets
class LiveRun:
    """A run in progress: the resources that its executions share, and their common limits.

    `in_flight` holds the running executions by id, each with its current call, and `reserved` the
    turns for their first calls. `earlier` is what earlier sessions of the run did. `unpriced` is
    called for each model without a known price, whose calls count against no cost limit. `held_up`
    is called for each provider or agent that asks for a long pause, with the seconds.
    `checked_late` is called for a check that a scenario made after its end.
    """

    plan: Plan
    ports: Ports
    stop: Stop
    _: KW_ONLY
    limits: Limits = Limits()
    earlier: Earlier = Earlier()
    unpriced: Callable[[str], None] = lambda _: None
    held_up: Callable[[str, float], None] = lambda _name, _seconds: None
    checked_late: Callable[[SourceLocation], None] = lambda _: None

    def __post_init__(self) -> None:
        plan, ports, limits = self.plan, self.ports, self.limits
        self.max_rpm = limits.max_rpm
        costs = {
            planned.ordinal: gate.threshold
            for planned in plan.suites
            for gate in planned.suite.gates
            if gate.name == "costMaxUsd"
        }
        self.in_flight: dict[str, tuple[Execution, OpenCall]] = {}
        self.reserved: dict[str, Turn] = {}
        spent_usd = dict(self.earlier.spent_usd)
        self.budget = Budget(self.stop, costs, limits.max_cost_usd, spent_usd, self.unpriced)
        self.paces = OneForEach(self._make_pace)
        self.pricing = {each.ordinal: prices_of(each.suite) for each in plan.suites}
        self.clients = OneForEach(self._make_client)
        suites = {planned.ordinal: planned.suite for planned in plan.suites}
        self.embedders = OneForEach[tuple[int, str], Result[Embedder]](
            lambda key: ports.embedders(suites[key[0]], key[1])
        )

    def set_max_rpm(self, max_rpm: float) -> None:
        """Set the calls per minute to each callee, also for callees that are first called later."""
        self.max_rpm = max_rpm
        for _, pace in self.paces.made:
            pace.set_max_rpm(max_rpm)

    def warm_up(self) -> None:
        """Make the shared clients before the first execution starts.

        Loading an SDK blocks for up to a second, which would count as latency of the calls in
        flight.
        """
        if not self.ports.calls_targets:
            return
        for planned in self.plan.suites:
            suite = planned.suite
            runs = (case for case in planned.cases if case.selected and not case.case.skip)
            used = {target for case in runs for target in case.targets}
            for model in filter(None, (*used, suite.judge_model)):
                target = suite.models.get(model)
                if target is None:
                    continue  # an agent: it has a connection of its own for each conversation
                self.clients.get(suite.providers[target.provider])
                pricing = self.pricing[planned.ordinal]
                priced = pricing.cost(target.provider, target.model, Usage(0, 0))
                if priced.usd is None:
                    self.budget.report_unpriced(planned.ordinal, target.model)

    def _make_client(self, settings: ProviderSettings) -> Result[ModelClient]:
        """Return the client of a provider, or the reason why there is none.

        It is made when first needed: building an SDK client is slow (it loads certificates), and
        only a provider that is called needs its key.
        """
        try:
            return self.ports.clients(settings)
        except Exception as crash:  # noqa: BLE001 - each execution that needs it reports the error
            what = f"The provider {settings.name!r} could not be set up: {error_text(crash)}"
            hint = "Check its settings, and the variables SSL_CERT_FILE, SSL_CERT_DIR, HTTP_PROXY, "
            hint += "HTTPS_PROXY and ALL_PROXY, in any case; --verbose shows the traceback."
            return Err(broken(what, hint, crash=crash))

    async def aclose(self) -> None:
        """Close all clients, even if closing one fails; raise its error."""
        async with AsyncExitStack() as stack:
            for _, made in (*self.clients.made, *self.embedders.made):
                if isinstance(made, Ok):
                    stack.push_async_callback(made.value.aclose)

    def _make_pace(self, callee: Callee) -> Pace:
        name = callee.id if isinstance(callee, AgentTarget) else callee.name

        def changed(paced: ProviderPaced) -> None:
            self.ports.recorder.record(paced)
            if paced.pause_s >= _LONG_PAUSE_S:
                self.held_up(name, paced.pause_s)

        most = max((planned.suite.concurrency for planned in self.plan.suites), default=1)
        return Pace(name, self.ports.clock, changed, max_rpm=self.max_rpm, most=most)


@dataclass(eq=False)
class Steering:
    """Lets other threads end a run or change its pace, any number of times.

    A request made before the run starts takes effect at its start. After the end, it has no effect.
    """

    _loop: asyncio.AbstractEventLoop
    _stop: Stop
    _max_rpm: float | None = None
    _run: LiveRun | None = None

    def stop(self, reason: str, *, at_once: bool = False) -> None:
        """Let nothing new start; with `at_once`, executions in flight get their grace period."""
        self._call(self._stop.request if at_once else self._stop.wind_down, reason)

    def set_max_rpm(self, max_rpm: float) -> None:
        """Set how many calls a minute, above 0, each provider and agent gets from now on."""
        self._call(self._set_max_rpm, max_rpm)

    def started(self, run: LiveRun) -> None:
        """Register a run, or a part of one, whose executions are about to start."""
        self._run = run
        if self._max_rpm is not None:
            run.set_max_rpm(self._max_rpm)

    def _set_max_rpm(self, max_rpm: float) -> None:
        self._max_rpm = max_rpm
        if self._run is not None:
            self._run.set_max_rpm(max_rpm)

    def _call(self, change: Callable[[V], None], value: V) -> None:
        with suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(change, value)
