"""One attempt of an execution from start to finish: converse, check, record.

Every execution ends with `execution.finished`. An error of a provider or a crash of kindlm makes it
errored, and does not affect the rest of the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import field
from functools import partial
from operator import attrgetter
from typing import Any

from kindlm.dataclass import dataclass, replace
from kindlm.engine import FieldLog, name_execution
from kindlm.engine.agent_talk import AgentTalk
from kindlm.engine.calls import Calls, definition_of
from kindlm.engine.resources import LiveRun
from kindlm.engine.simulation import SimulatedTools, Tools, ToolServers
from kindlm.engine.stage import ScriptedTrial
from kindlm.engine.talk import HeldTalk, ModelTalk, Talk, agent_of, first_messages
from kindlm.errors import ErrorCode, KindlmError, broken, error_text
from kindlm.events.execution_events import AssertionEvaluated, ExecutionFinished, ExecutionStarted
from kindlm.guard import guard
from kindlm.outcome import NOTHING_CHECKED, CheckResult, Outcome, Status, execution_status
from kindlm.plan import Execution
from kindlm.ports import CheckContext, HeldConversation, Recorder
from kindlm.suite import Script
from kindlm.transcript import Message, lacks_a_secret, total_of

_log = FieldLog(__name__)

_REDACTION_WARNING = (
    "kindlm removed a secret from this record: checks that read it are inconclusive, and"
    " a judge sees [redacted] in its place."
)

_UNMET = (Outcome.FAILED, Outcome.INCONCLUSIVE)


@dataclass(frozen=True, slots=True)
class Finished:
    """How an execution ended, for the progress display.

    `cost_usd` is the known cost of all its calls, including those to judges.
    """

    execution: Execution
    status: Status
    error: KindlmError | None = None
    failed: tuple[CheckResult, ...] = ()
    latency_ms: float = 0.0
    cost_usd: float = 0.0
    retried: bool = False


def _started(
    execution: Execution, attempt: int, messages: Sequence[Message] = (), **known: Any
) -> ExecutionStarted:
    """Return the event that begins an attempt; `known` are the other fields of a conversation."""
    return ExecutionStarted(
        suite=execution.suite.ordinal,
        test=execution.case.name,
        target=execution.target,
        repeat=execution.repeat,
        attempt=attempt,
        tags=list(dict.fromkeys((*execution.suite.suite.tags, *execution.case.tags))),
        messages=messages,
        **known,
    )


def _ended(status: Status, error: KindlmError | None, **facts: Any) -> ExecutionFinished:
    """Return the event that ends an attempt; `facts` are the fields besides its result."""
    if error is not None:
        facts["error_code"], facts["error_number"] = error.code.name, error.code.value
        facts |= {"error": error.message, "hint": error.hint, "trace": error.trace or None}
    return ExecutionFinished(status=status, **facts)


def end_unrun(
    execution: Execution,
    run: Recorder,
    attempt: int,
    status: Status = Status.SKIPPED,
    *,
    error: KindlmError | None = None,
    reason: str | None = None,
) -> Finished:
    """Record the end of an execution that does not run.

    `reason` says why it is skipped, if the test itself gives no reason.
    """
    recorder = run.about(execution.subject(attempt))
    recorder.record(_started(execution, attempt))
    warnings = [reason] if reason else []
    recorder.record(_ended(status, error, latency_ms=0.0, warnings=warnings))
    return Finished(execution, status, error)


async def run_execution(
    execution: Execution,
    run: LiveRun,
    *,
    attempt: int = 1,
    may_rerun: Callable[[], bool] = lambda: False,
) -> Finished | None:
    """Run one execution and record its end. Return None if it was cut off.

    If an earlier run supplies the conversations and has none for this execution, the execution is
    skipped. `may_rerun` says whether the execution may run again if it fails. In that case it has
    not ended, and the result has `retried` set.
    """
    ports, case = run.ports, execution.case
    try:
        held = None if ports.transcripts is None else ports.transcripts(execution)
        answers = None if ports.answers is None else ports.answers(execution)
    except Exception as crash:  # noqa: BLE001 - the boundary: recorded, and the run goes on
        error = _crashed(crash)
        return end_unrun(execution, ports.recorder, attempt, Status.ERRORED, error=error)
    if isinstance(held, str):
        return end_unrun(execution, ports.recorder, attempt, reason=held)
    calls = Calls(run, execution, attempt, answers, last=0 if held is None else held.calls)
    name_execution(calls.subject, case.name, execution.target)
    run.in_flight[execution.id] = execution, calls.now
    try:
        with guard.running(case.name, calls.timeout_ms / 1000):
            finished = await _Attempt(calls, held).run(may_rerun)
    finally:
        del run.in_flight[execution.id]
    if finished is None:
        _log.info("The execution was cut off")
        return None
    latency_ms = round(finished.latency_ms, 3)
    if finished.error is None:
        _log.info("The execution ended", status=finished.status, latency_ms=latency_ms)
    else:
        _log.error("The execution errored", code=finished.error.code.name, latency_ms=latency_ms)
    return finished


@dataclass(eq=False, repr=False)
class _Attempt:
    """One attempt at an execution.

    `_results` are those of its checks so far, `_unmet` those that keep it from passing. `_score` is
    that of a script.
    """

    _calls: Calls
    _held: HeldConversation | None
    _results: list[CheckResult] = field(default_factory=list)
    _unmet: list[CheckResult] = field(default_factory=list)
    _score: float | None = None

    def __post_init__(self) -> None:
        self._execution, self._ports = self._calls.execution, self._calls.run.ports
        self._case = self._execution.case
        self._messages = first_messages(self._case)
        self._talk = Talk(self._calls.conversation)

    async def run(self, may_rerun: Callable[[], bool]) -> Finished | None:
        """Converse, check, and record the end of the attempt. Return None if it was cut off."""
        calls, messages = self._calls, self._messages
        known: dict[str, Any] = {"tools": list(map(definition_of, self._case.tools)) or None}
        if self._held is not None:
            messages, known = self._held.messages, {"source": self._held.source}
        calls.conversation.record(_started(self._execution, calls.attempt, messages, **known))
        try:
            error = await self._converse_and_check()
        except asyncio.CancelledError:
            if calls.permit.takes_back():
                return None
            raise
        if calls.permit.has_refused:
            # The agent answered or failed without a model call that kindlm refused.
            return None
        status = Status.ERRORED
        if error is None:
            status = execution_status(list(map(attrgetter("outcome"), self._unmet)))
        retried = status in (Status.FAILED, Status.ERRORED) and may_rerun()
        calls.recorder.record(_ended(status, error, **self._facts(status), retried=retried))
        return Finished(
            self._execution,
            status,
            error,
            tuple(self._unmet),
            self._talk.conversation.transcript.total.latency_ms,
            calls.spent_usd,
            retried,
        )

    async def _converse_and_check(self) -> KindlmError | None:
        """Do the work within its time; return the error that makes the execution errored."""
        script = self._case.script
        error: KindlmError | None = None
        try:
            async with self._calls.deadline.timeout:
                servers = ToolServers(self._execution.suite.suite, self._ports.agents)
                async with aclosing(servers), self._make_talk(servers) as self._talk:
                    if self._talk.error is None and script is not None:
                        error = await self._play(script)
                    elif self._talk.error is None:
                        await self._talk.converse()
                error = self._talk.error or error
                # If tool calls used up all turns, there still is a conversation to check.
                if script is None and (error is None or error.code is ErrorCode.ENGINE_MAX_TURNS):
                    await self._check()
                return error
        except TimeoutError:
            message = f"The execution took longer than {self._calls.timeout_ms} ms."
            hint = (
                "Raise defaults.executionTimeoutMs (`timeout` of a scenario), or find what was slow"
            )
            hint += ": kindlm show"
            return KindlmError(ErrorCode.PROVIDER_TIMEOUT, message, hint)
        except Exception as crash:  # noqa: BLE001 - the boundary: recorded, and the run goes on
            return _crashed(crash)

    def _make_talk(self, servers: ToolServers) -> Talk:
        """Return the conversation: a recorded one, or one with a model, an agent or a command."""
        calls, case, agent = self._calls, self._case, agent_of(self._execution)
        if self._held is not None:
            return HeldTalk(self._held, agent)
        if case.script is not None and agent is None:
            return Talk()  # The script of a model test only asks questions.
        if agent is not None and case.fault is not None:
            return Talk(calls.conversation, case.fault)
        tools = Tools(self._simulated(servers), calls.conversation.record, self._ports.clock)
        live: dict[str, Any] = {"calls": calls, "tools": tools, "messages": self._messages}
        if agent is None:
            return ModelTalk(calls.conversation, **live)
        return AgentTalk(calls.conversation, **live, called=agent)

    def _simulated(self, servers: ToolServers) -> SimulatedTools:
        """Return the simulated tools of the case; in a replay, server tools are recorded ones."""
        tools, answers, results = self._case.tools, self._calls.answers, None
        if answers is not None and any(tool.server for tool in tools):
            results = answers.tool_results()
        if results is None:
            return SimulatedTools(tools, self._ports.aside, servers.call)
        recorded = [
            replace(tool, recorded=tuple(results.get(tool.name, ()))) if tool.server else tool
            for tool in tools
        ]
        return SimulatedTools(recorded, self._ports.aside)

    async def _play(self, script: Script) -> KindlmError | None:
        """Run the script, which converses and checks. Return the error that ended it, if any."""
        trial = ScriptedTrial(self._talk, self._calls, self._ports.checker, self._ports.clock)
        try:
            error = await trial.play(script)
        finally:
            self._unmet = [each for each in trial.results if each.outcome in _UNMET]
            self._score = trial.score
        if not self._calls.deadline.leaves(0):
            # A script that blocks the event loop also blocks the timeout.
            raise TimeoutError
        return error

    async def _check(self) -> None:
        """Evaluate all expectations. Results from before a crash or a timeout are kept."""
        clock, transcript = self._ports.clock, self._talk.conversation.transcript
        for index, expectation in enumerate(self._case.expectations):
            context = CheckContext(
                partial(self._calls.ask, index),
                partial(self._calls.embed, index, self._execution.target),
                earlier=tuple(self._results),
            )
            if expectation.kind == "drift":
                context = replace(context, baseline=self._ports.baselines(self._execution))
            started = clock.monotonic()
            checked = self._ports.checker.evaluate(expectation, transcript, context)
            result = checked if isinstance(checked, CheckResult) else await checked
            duration_ms = (clock.monotonic() - started) * 1000
            event = AssertionEvaluated.of(result, index, expectation, duration_ms=duration_ms)
            self._calls.recorder.record(event)
            if result.warning:
                self._talk.warnings[result.warning] = None
            self._results.append(result)
            if not expectation.advisory and result.outcome in _UNMET:
                self._unmet.append(result)

    def _facts(self, status: Status) -> dict[str, Any]:
        """Return what the event that ends the attempt says about the conversation."""
        transcript = self._talk.conversation.transcript
        steps, total = transcript.steps, transcript.total
        cost_usd, cost_then_usd = total.cost.usd, None
        warnings = list(self._talk.warnings)
        if status is Status.PASSED and not self._case.expectations and self._case.script is None:
            warnings.append(NOTHING_CHECKED)
        if self._held is not None or self._calls.answers is not None:
            recorded = [step for step in steps if step.recorded]
            # An earlier run has paid for a recorded answer: it costs nothing now.
            paid = [step for step in steps if not step.recorded]
            cost_usd = total_of(paid).cost.usd if paid or not steps else 0.0
            cost_then_usd = total_of(recorded).cost.usd
            if any(map(lacks_a_secret, recorded)):
                warnings = list(dict.fromkeys((*warnings, _REDACTION_WARNING)))
        return {
            "output": transcript.text if steps else None,
            "answers": len(steps),
            "latency_ms": round(total.latency_ms, 3),
            "input_tokens": total.usage.input_tokens,
            "output_tokens": total.usage.output_tokens,
            "cost_usd": cost_usd,
            "cost_source": total.cost.source,
            "cost_then_usd": cost_then_usd,
            "finish_reason": steps[-1].finish_reason if steps else None,
            "warnings": warnings,
            "score": self._score,
        }


def _crashed(crash: Exception) -> KindlmError:
    return broken(
        f"kindlm itself failed: {error_text(crash)}",
        "This is a bug. Run again with --verbose and report the traceback.",
        crash=crash,
    )
