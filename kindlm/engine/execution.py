"""One execution from start to finish: converse, check, record.

Whatever goes wrong inside, the execution ends with an `execution.finished`: an error of a provider
or a crash of our own makes it errored and leaves the rest of the run alone.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from kindlm.engine.agent_conversation import AgentConversation
from kindlm.engine.calls import CallCounter, Caller
from kindlm.engine.clients import Clients
from kindlm.engine.conversation import (
    Conversation,
    ModelConversation,
    ToolRecorder,
    first_messages,
)
from kindlm.engine.log import FieldLog, about_execution
from kindlm.engine.recording import assertion_event, error_text, message_data, tools_text
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.events import ExecutionFinished, ExecutionStarted
from kindlm.outcome import CheckResult, Outcome, Status, execution_status
from kindlm.plan import Execution
from kindlm.ports import (
    AgentFactory,
    BaselineLookup,
    CheckContext,
    Checker,
    Clock,
    EmbedderFactory,
    Embedding,
    Pricing,
    Recorder,
    SimulatorFactory,
)
from kindlm.suite import AgentTarget
from kindlm.transcript import Transcript
from kindlm_store import Text

__all__ = ["Doers", "Finished", "run_execution", "skip_execution", "subject"]


_log = FieldLog(__name__)


@dataclass(frozen=True, slots=True)
class Doers:
    """The implementations of the ports that an execution works with."""

    clients: Clients
    pricing: Pricing
    simulators: SimulatorFactory
    agents: AgentFactory
    checker: Checker
    baselines: BaselineLookup
    embedders: EmbedderFactory
    recorder: Recorder
    clock: Clock


@dataclass(frozen=True, slots=True)
class Finished:
    """How an execution ended, for the progress that is shown while a run goes on.

    `cost_usd` is what all its calls cost, judges too, as far as that is known.
    """

    execution: Execution
    status: Status
    error: KindlmError | None = None
    failed: tuple[CheckResult, ...] = ()
    latency_ms: float = 0.0
    cost_usd: float = 0.0


async def run_execution(execution: Execution, doers: Doers, *, attempt: int = 1) -> Finished:
    """Run one execution; when this returns, its end is on disk."""
    with about_execution(subject(execution, attempt), execution.case.name, execution.target):
        finished = await _run(execution, doers, attempt)
        _log_end(finished)
    return finished


async def _run(execution: Execution, doers: Doers, attempt: int) -> Finished:
    recorder = doers.recorder.about(subject(execution, attempt))
    recorder.record(_start(execution, attempt))
    conversation = Conversation(Transcript(execution.case.prompt.system))
    results: list[CheckResult] = []
    error: KindlmError | None = None
    counter = CallCounter()
    try:
        caller = Caller(
            execution.suite.suite, doers.clients, doers.pricing, recorder, doers.clock, counter
        )
        conversation = await _converse(execution, caller, doers, recorder, counter)
        error = conversation.error
        if conversation.is_checkable:
            await _check(execution, conversation.transcript, caller, doers, recorder, results)
    except Exception as crash:  # noqa: BLE001 - the boundary: recorded, and the run goes on
        error = _crash(crash)
    status = Status.ERRORED if error else execution_status([r.outcome for r in results])
    recorder.record(_finish(conversation, status, error))
    await recorder.durable()
    failed = tuple(r for r in results if r.outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE))
    latency_ms = conversation.transcript.latency_ms
    return Finished(execution, status, error, failed, latency_ms, counter.spent_usd)


def _log_end(finished: Finished) -> None:
    latency_ms = round(finished.latency_ms, 3)
    if finished.error is None:
        _log.info("The execution ended", status=finished.status, latency_ms=latency_ms)
    else:
        _log.error("The execution errored", code=finished.error.code.name, latency_ms=latency_ms)


async def skip_execution(execution: Execution, run: Recorder) -> Finished:
    """Record that an execution was skipped because its test says so."""
    recorder = run.about(subject(execution, 1))
    recorder.record(ExecutionStarted(**_identity(execution), attempt=1, messages=[]))
    recorder.record(ExecutionFinished(status=Status.SKIPPED))
    await recorder.durable()
    return Finished(execution, Status.SKIPPED)


def subject(execution: Execution, attempt: int) -> str:
    """Return what the events of one attempt of an execution are about, such as `17.1`."""
    return f"{execution.id}.{attempt}"


async def _converse(
    execution: Execution, caller: Caller, doers: Doers, recorder: Recorder, counter: CallCounter
) -> Conversation:
    talk = _conversation(execution, caller, doers, recorder, counter)
    if isinstance(talk, Err):
        return Conversation(Transcript(execution.case.prompt.system), talk.error)
    timeout_ms = execution.suite.suite.execution_timeout_ms
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await talk.value.hold()
    except TimeoutError:
        return replace(talk.value.state, error=_deadline(timeout_ms))
    return talk.value.state


def _conversation(
    execution: Execution, caller: Caller, doers: Doers, recorder: Recorder, counter: CallCounter
) -> Result[ModelConversation | AgentConversation]:
    """Return the conversation that fits the target: a model, a live agent, or a command."""
    suite, case = execution.suite.suite, execution.case
    model = suite.models.get(execution.target)
    if case.command is None and model is not None:
        simulator = doers.simulators(case.tools)
        tools = ToolRecorder(simulator, recorder, doers.clock)
        return Ok(ModelConversation(case, model, simulator, caller, tools, suite.timeout_ms / 1000))
    target = case.command or suite.agents[execution.target]
    agent = doers.agents(target)
    if isinstance(agent, Err):
        return agent
    return Ok(
        AgentConversation(
            case,
            suite,
            agent.value,
            name=execution.target,
            adapter=target.adapter if isinstance(target, AgentTarget) else "command",
            conversation=uuid4().hex,
            recorder=recorder,
            clock=doers.clock,
            counter=counter,
        )
    )


async def _check(
    execution: Execution,
    transcript: Transcript,
    caller: Caller,
    doers: Doers,
    recorder: Recorder,
    results: list[CheckResult],
) -> None:
    """Evaluate all expectations; `results` has those that came before a crash, too."""
    context = _context(execution, caller, doers)
    for expectation in execution.case.expectations:
        started = doers.clock.monotonic()
        found = await doers.checker.evaluate(expectation, transcript, context)
        duration_ms = (doers.clock.monotonic() - started) * 1000 / max(len(found), 1)
        line = expectation.where.line if expectation.where else None
        for result in found:
            recorder.record(
                assertion_event(result, len(results), duration_ms=duration_ms, line=line)
            )
            results.append(result)


def _context(execution: Execution, caller: Caller, doers: Doers) -> CheckContext:
    """Return what checks may use; the baseline is looked up only where drift is checked."""
    if not any(expectation.kind == "drift" for expectation in execution.case.expectations):
        return CheckContext(ask=caller.ask)
    suite = execution.suite.suite

    async def embed(texts: Sequence[str]) -> Result[tuple[Embedding, str]]:
        embedder = doers.embedders(suite, execution.target)
        if isinstance(embedder, Err):
            return embedder
        found = await caller.embed(embedder.value, texts)
        name = f"{embedder.value.provider}/{embedder.value.model}"
        return found if isinstance(found, Err) else Ok((found.value, name))

    baseline = doers.baselines.run(suite.project, suite.name)
    if isinstance(baseline, Err):
        return CheckContext(caller.ask, embed, baseline_error=baseline.error)
    if baseline.value is None:
        return CheckContext(caller.ask, embed)
    text = doers.baselines.output(baseline.value, suite.name, execution.case.name, execution.target)
    return CheckContext(caller.ask, embed, baseline=text)


def _start(execution: Execution, attempt: int) -> ExecutionStarted:
    return ExecutionStarted(
        **_identity(execution),
        attempt=attempt,
        messages=[message_data(message) for message in first_messages(execution.case)],
        tools=tools_text(execution.case.tools),
    )


def _identity(execution: Execution) -> dict[str, Any]:
    suite = execution.suite.suite
    return {
        "suite": execution.suite.ordinal,
        "test": execution.case.name,
        "target": execution.target,
        "repeat": execution.repeat,
        "tags": list(dict.fromkeys((*suite.tags, *execution.case.tags))),
    }


def _finish(
    conversation: Conversation, status: Status, error: KindlmError | None
) -> ExecutionFinished:
    transcript = conversation.transcript
    steps = list(transcript.steps)
    usage, cost = transcript.usage, transcript.cost
    return ExecutionFinished(
        status=status,
        error_code=error.code.name if error else None,
        error_number=error.code.value if error else None,
        error=error_text(error) if error else None,
        hint=error.hint if error else None,
        trace=Text(error.trace) if error and error.trace else None,
        output=Text(transcript.text) if steps else None,
        turns=len(steps),
        latency_ms=round(transcript.latency_ms, 3),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=cost.usd,
        cost_source=cost.source,
        finish_reason=steps[-1].finish_reason if steps else None,
        warnings=list(conversation.warnings),
    )


def _crash(crash: Exception) -> KindlmError:
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"kindlm itself failed: {type(crash).__name__}: {crash}",
        "This is a bug. Run again with --verbose and report the traceback.",
        trace="".join(traceback.format_exception(crash)),
    )


def _deadline(timeout_ms: int) -> KindlmError:
    return KindlmError(
        ErrorCode.PROVIDER_TIMEOUT,
        f"The execution took longer than {timeout_ms} ms.",
        "Raise defaults.executionTimeoutMs, or look at which call was slow: kindlm show",
    )
