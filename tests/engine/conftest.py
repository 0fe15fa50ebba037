"""A real event log, and a provider that answers what a test put into its queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from evaluated import demand

from kindlm.checks import CheckRunner
from kindlm.engine.attempt import Finished, run_execution
from kindlm.engine.resources import Limits, LiveRun, Ports
from kindlm.engine.runner import run_plan
from kindlm.engine.stop import Stop
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.outcome import Gate
from kindlm.plan import Earlier, make_plan
from kindlm.ports import (
    AgentReply,
    AgentRequest,
    AnswerSource,
    Checker,
    Embedder,
    ModelReply,
    ModelRequest,
    Observer,
)
from kindlm.projections import PROJECTIONS
from kindlm.recording.recorder import RunRecorder
from kindlm.suite import (
    Case,
    Expectation,
    ModelTarget,
    Prompt,
    ProviderSettings,
    SimulatedTool,
    Suite,
    ToolAnswer,
)
from kindlm.transcript import FinishReason, ToolCall, Usage
from kindlm_store import EventLog, RecordedEvent


class HeldClock:
    """A clock that stands still unless it sleeps, and remembers how long it slept."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.sleeps_for_ever = False

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.sleeps_for_ever:
            await asyncio.Event().wait()
        self.now += seconds
        await asyncio.sleep(0)


class QueueClient:
    """A provider whose answers are queued; the last one stays. Remembers what it was asked."""

    def __init__(self) -> None:
        self.outcomes: list[ModelReply | KindlmError | Exception] = []
        self.judgement: ModelReply | None = None
        self.requests: list[ModelRequest] = []
        self.closed = False
        self.running = 0
        self.most_at_once = 0
        self.gate: asyncio.Event | None = None
        self.never_answers = False
        self.silent_after: int | None = None

    async def complete(self, request: ModelRequest) -> Result[ModelReply]:
        self.requests.append(request)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            if self.never_answers or len(self.requests) > (self.silent_after or 1_000_000):
                await asyncio.Event().wait()
            await (self.gate.wait() if self.gate else asyncio.sleep(0))
        finally:
            self.running -= 1
        if request.response_schema is not None and self.judgement is not None:
            return Ok(self.judgement)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return Err(outcome) if isinstance(outcome, KindlmError) else Ok(outcome)

    async def aclose(self) -> None:
        self.closed = True


class QueueAgent:
    """An agent whose answers are queued; remembers what it was asked, and whether it is open."""

    def __init__(self) -> None:
        self.outcomes: list[AgentReply | KindlmError | Exception] = []
        self.requests: list[AgentRequest] = []
        self.open = 0

    async def __aenter__(self) -> Self:
        self.open += 1
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.open -= 1

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        self.requests.append(request)
        await asyncio.sleep(0)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return Err(outcome) if isinstance(outcome, KindlmError) else Ok(outcome)


class Make:
    """Short constructors for what the engine works on."""

    @staticmethod
    def reply(text: str = "", *calls: ToolCall, **fields: Any) -> ModelReply:
        finish = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
        values: dict[str, Any] = {
            "raw": "{}",
            "latency_ms": 100.0,
            "usage": Usage(10, 5),
            "finish_reason": finish,
        }
        return ModelReply(text, tool_calls=calls, **{**values, **fields})

    @staticmethod
    def call(name: str = "lookup", call_id: str = "call_1", **arguments: Any) -> ToolCall:
        return ToolCall(call_id, name, arguments)

    @staticmethod
    def failure(code: ErrorCode, **details: Any) -> KindlmError:
        return KindlmError(code, f"it failed with {code.name}", "mend it", details=details)

    @staticmethod
    def case(name: str = "a test", **fields: Any) -> Case:
        values: dict[str, Any] = {"prompt": Prompt("Hello", system="Be kind"), "targets": ("m",)}
        return Case(name, **{**values, **fields})

    @staticmethod
    def contains(text: str) -> Expectation:
        return demand("contains", text, {"text": text})

    @staticmethod
    def tool(name: str = "lookup", *answers: tuple[Any, Any], **fields: Any) -> SimulatedTool:
        found = tuple(ToolAnswer(when, then) for when, then in answers)
        if "default" in fields:
            fields["has_default"] = True
        return SimulatedTool(name, answers=found, **fields)

    @staticmethod
    def suite(*cases: Case, **fields: Any) -> Suite:
        values: dict[str, Any] = {
            "name": "suite",
            "project": "project",
            "front_end": "kindlm",
            "path": "kindlm.yaml",
            "config_hash": "0" * 12,
            "config_text": "{}",
            "providers": {"p": ProviderSettings("p", "queue")},
            "models": {"m": ModelTarget("m", "p", "model-1")},
            "cases": cases or (Make.case(),),
            "gates": (Gate("passRateMin", 0.95, written=False),),
        }
        return Suite(**{**values, **fields})


class Bench:
    """Runs executions and plans against a real log and the queued provider."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.client = QueueClient()
        self.agent = QueueAgent()
        self.no_agent: KindlmError | None = None
        self.embedder: Embedder | None = None
        self.observers: tuple[Observer, ...] = ()
        self.answers: AnswerSource | None = None
        self.checker: Checker = CheckRunner()
        self.clock = HeldClock()
        self.finished: list[Finished] = []
        self.held_up: list[tuple[str, float]] = []

    def queue(self, *outcomes: ModelReply | KindlmError | Exception) -> None:
        self.client.outcomes = list(outcomes)

    def execute(self, case: Case, **suite: Any) -> Finished:
        plan = make_plan([Make.suite(case, **suite)])
        (execution,) = plan

        async def run() -> Finished | None:
            ports = self._ports(self.checker)
            finished = await run_execution(execution, LiveRun(plan, ports, Stop()))
            await ports.recorder.durable()
            return finished

        return asyncio.run(run())

    async def run(
        self,
        suites: Sequence[Suite],
        stop: Stop | None = None,
        *,
        limits: Limits = Limits(),  # noqa: B008 - a value
        earlier: Earlier = Earlier(),  # noqa: B008 - a value
    ) -> bool:
        run = LiveRun(
            make_plan(suites),
            self._ports(self.checker),
            stop or Stop(),
            limits=limits,
            earlier=earlier,
            held_up=lambda *told: self.held_up.append(told),
        )
        return await run_plan(run, self.finished.append)

    def warnings(self, event: RecordedEvent) -> list[str]:
        """Return the warnings of an event."""
        return [str(self.log.text(warning["$ref"])) for warning in event.data["warnings"]]

    def events(self, *types: str) -> list[RecordedEvent]:
        self.log.flush().result()
        return list(self.log.read(stream="run/r", types=types or None))

    def text(self, value: Any) -> str | None:
        return self.log.text(value["$ref"])

    def json(self, value: Any) -> Any:
        return json.loads(self.text(value) or "null")

    def _embedders(self, suite: Suite, target: str) -> Result[Embedder]:
        if self.embedder is None:
            return Err(Make.failure(ErrorCode.PROVIDER_NOT_FOUND))
        return Ok(self.embedder)

    def _ports(self, checker: Checker) -> Ports:
        return Ports(
            clients=lambda settings: Ok(self.client),
            agents=lambda target, variables: (
                Ok(self.agent) if self.no_agent is None else Err(self.no_agent)
            ),
            checker=checker,
            aside=CheckRunner().aside,
            baselines=lambda execution: Ok(None),
            embedders=self._embedders,
            recorder=RunRecorder(self.log, "run/r"),
            clock=self.clock,
            observers=self.observers,
            answers=self.answers,
        )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with EventLog.open(tmp_path / "history.db", projections=PROJECTIONS) as log:
        bench = Bench(log)
        bench.queue(Make.reply("Hello there"))
        yield bench
        assert not log.projection_errors()


@pytest.fixture
def make() -> type[Make]:
    return Make
