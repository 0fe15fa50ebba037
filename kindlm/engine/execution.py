"""One execution from start to finish: converse, check, record.

Whatever goes wrong inside, the execution ends with an `execution.finished`: an error of a provider
or a crash of our own makes it errored and leaves the rest of the run alone.
"""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass
from typing import Any

from kindlm.engine.calls import Caller
from kindlm.engine.clients import Clients
from kindlm.engine.conversation import Conversation, ToolRecorder, converse, first_messages
from kindlm.engine.recording import assertion_event, error_text, message_data, tools_text
from kindlm.errors import ErrorCode, KindlmError
from kindlm.events import ExecutionFinished, ExecutionStarted
from kindlm.outcome import CheckResult, Outcome, Status, execution_status
from kindlm.plan import Execution
from kindlm.ports import (
    CheckContext,
    Checker,
    Clock,
    Pricing,
    Recorder,
    SimulatorFactory,
)
from kindlm.transcript import Transcript
from kindlm_store import Text

__all__ = ["Doers", "Finished", "run_execution", "skip_execution", "subject"]


@dataclass(frozen=True, slots=True)
class Doers:
    """The implementations of the ports that an execution works with."""

    clients: Clients
    pricing: Pricing
    simulators: SimulatorFactory
    checker: Checker
    recorder: Recorder
    clock: Clock


@dataclass(frozen=True, slots=True)
class Finished:
    """How an execution ended, for the progress that is shown while a run goes on."""

    execution: Execution
    status: Status
    error: KindlmError | None = None
    failed: tuple[CheckResult, ...] = ()
    latency_ms: float = 0.0


async def run_execution(execution: Execution, doers: Doers, *, attempt: int = 1) -> Finished:
    """Run one execution; when this returns, its end is on disk."""
    recorder = doers.recorder.about(subject(execution, attempt))
    recorder.record(_start(execution, attempt))
    conversation = Conversation(Transcript(execution.case.prompt.system))
    results: list[CheckResult] = []
    error: KindlmError | None = None
    try:
        caller = Caller(execution.suite.suite, doers.clients, doers.pricing, recorder, doers.clock)
        conversation = await _converse(execution, caller, doers, recorder)
        error = conversation.error
        if conversation.is_checkable:
            await _check(execution, conversation.transcript, caller, doers, recorder, results)
    except Exception as crash:  # noqa: BLE001 - the boundary: recorded, and the run goes on
        error = _crash(crash)
    status = Status.ERRORED if error else execution_status([r.outcome for r in results])
    recorder.record(_finish(conversation, status, error))
    await recorder.durable()
    failed = tuple(r for r in results if r.outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE))
    return Finished(execution, status, error, failed, conversation.transcript.latency_ms)


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
    execution: Execution, caller: Caller, doers: Doers, recorder: Recorder
) -> Conversation:
    suite = execution.suite.suite
    try:
        async with asyncio.timeout(suite.execution_timeout_ms / 1000):
            return await converse(
                execution.case,
                suite.models[execution.target],
                doers.simulators(execution.case.tools),
                caller,
                ToolRecorder(recorder),
                timeout_s=suite.timeout_ms / 1000,
            )
    except TimeoutError:
        return Conversation(
            Transcript(execution.case.prompt.system), _deadline(suite.execution_timeout_ms)
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
    context = CheckContext(ask=caller.ask)
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
