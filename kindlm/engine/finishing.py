"""How an execution ended: what is recorded of that, and told to whoever shows the run."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass

from kindlm.engine.conversation import Conversation
from kindlm.engine.file_words import said_in_words_of
from kindlm.engine.recording import error_text, execution_facts, subject
from kindlm.errors import ErrorCode, KindlmError
from kindlm.events import ExecutionFinished, ExecutionStarted
from kindlm.outcome import CheckResult, Status
from kindlm.plan import Execution
from kindlm.ports import Recorder
from kindlm.suite import Case, Suite
from kindlm.transcript import Step, calls_lack_a_secret, cost_of, text_lacks_a_secret
from kindlm_store import Text

__all__ = [
    "Finished",
    "crashed",
    "end_lost",
    "finished_event",
    "skip_execution",
    "too_slow",
]

_TAKEN_OUT = (
    "A secret was taken out of what was recorded here: checks that look at that are undecided, and"
    " a judge sees [redacted] in its place."
)


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
    retried: bool = False


async def skip_execution(
    execution: Execution,
    run: Recorder,
    *,
    attempt: int = 1,
    reason: str | None = None,
    status: Status = Status.SKIPPED,
) -> Finished:
    """Record that an execution was skipped: because its test says so, or for a `reason`.

    One that was to be run again stays as it was: that is its `status`.
    """
    recorder = run.about(subject(execution, attempt))
    recorder.record(ExecutionStarted(**execution_facts(execution), attempt=attempt, messages=[]))
    warnings = [] if reason is None else [reason]
    recorder.record(ExecutionFinished(status=status, warnings=warnings))
    await recorder.durable()
    return Finished(execution, status)


async def end_lost(
    execution: Execution, run: Recorder, attempt: int | None, error: KindlmError
) -> Finished:
    """Record the end of an execution that took its process with it.

    `attempt` is the one that was recorded as started by then, if any.
    """
    recorder = run.about(subject(execution, attempt or 1))
    if attempt is None:
        recorder.record(ExecutionStarted(**execution_facts(execution), attempt=1, messages=[]))
    recorder.record(
        ExecutionFinished(
            status=Status.ERRORED,
            error_code=error.code.name,
            error_number=error.code.value,
            error=error_text(error),
            hint=error.hint,
        )
    )
    await recorder.durable()
    return Finished(execution, Status.ERRORED, error)


def finished_event(
    suite: Suite,
    conversation: Conversation,
    status: Status,
    error: KindlmError | None,
    *,
    is_held: bool,
    score: float | None,
    retried: bool,
) -> ExecutionFinished:
    """Return how an execution ended; `is_held` if its conversation is one of an earlier run."""
    transcript = conversation.transcript
    steps = list(transcript.steps)
    # What was paid for in an earlier run costs nothing now.
    taken = [step for step in steps if is_held or step.recorded]
    paid = [step for step in steps if not (is_held or step.recorded)]
    usage, cost = transcript.usage, transcript.cost
    return ExecutionFinished(
        status=status,
        error_code=error.code.name if error else None,
        error_number=error.code.value if error else None,
        error=error_text(error) if error else None,
        hint=error.hint if error else None,
        trace=Text(error.trace) if error and error.trace else None,
        output=Text(transcript.text) if steps else None,
        answers=len(steps),
        latency_ms=round(transcript.latency_ms, 3),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=cost_of(paid).usd if paid or not steps else 0.0,
        cost_source=cost.source,
        cost_then_usd=cost_of(taken).usd,
        finish_reason=steps[-1].finish_reason if steps else None,
        warnings=_warnings(suite, conversation.warnings, steps),
        score=score,
        retried=retried,
    )


def _warnings(suite: Suite, told: Sequence[str], steps: Sequence[Step]) -> list[str]:
    """Return what a user has to know of a conversation, in the words of the file."""
    warnings = [said_in_words_of(suite, warning) for warning in told]
    if not any(map(_is_taken_out, steps)):
        return warnings
    return list(dict.fromkeys((*warnings, _TAKEN_OUT)))


def _is_taken_out(step: Step) -> bool:
    return text_lacks_a_secret(step) or calls_lack_a_secret(step)


def crashed(crash: Exception) -> KindlmError:
    """Return the error of an execution in which kindlm itself failed."""
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"kindlm itself failed: {type(crash).__name__}: {crash}",
        "This is a bug. Run again with --verbose and report the traceback.",
        trace="".join(traceback.format_exception(crash)),
    )


def too_slow(timeout_ms: int, case: Case) -> KindlmError:
    """Return the error of an execution that was cut off when its time was over."""
    limit = "defaults.executionTimeoutMs"
    if case.script is not None:
        limit = "`timeout` of the scenario, or eval.default_timeout"
    return KindlmError(
        ErrorCode.PROVIDER_TIMEOUT,
        f"The execution took longer than {timeout_ms} ms.",
        f"Raise {limit}, or look at which call was slow: kindlm show",
    )
