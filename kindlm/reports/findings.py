"""What went wrong in a test, told once however many of its repeats it happened in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kindlm.history.masking import Mask, mask_of, masked
from kindlm.history.rows import AssertionView, AttemptView, ExecutionView, TestView
from kindlm.history.run_view import RunView
from kindlm.outcome import Status


@dataclass(slots=True)
class FailedAssertion:
    """An assertion that was not met, or not decided, in the same way in `executions`.

    `tools` are those that the first of them called, in order.
    """

    assertion: AssertionView
    tools: tuple[str, ...]
    executions: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FailedExecution:
    """An error that ended `executions`; the first of them stands for all."""

    first: ExecutionView
    message: str
    executions: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Findings:
    """All that went wrong in the executions of one test, and what these were warned of."""

    assertions: list[FailedAssertion]
    errors: list[FailedExecution]
    warnings: list[str]


def findings_of(view: RunView, test: TestView) -> Findings:
    """Return what went wrong in a test; texts are masked, not yet made safe to print."""
    return _findings(
        (attempts[-1], mask_of(attempts))
        for execution in view.executions(test)
        if execution.status in (Status.FAILED, Status.ERRORED)
        for attempts in [view.attempts(execution)]
    )


def retried_findings_of(view: RunView, test: TestView) -> Findings:
    """Return what went wrong in attempts at a test after which executions were run again.

    An execution stands there once for each such attempt.
    """
    return _findings(
        (attempt, mask_of(attempts))
        for execution in view.executions(test)
        if execution.attempt > 1
        for attempts in [view.attempts(execution)]
        for attempt in attempts[:-1]
    )


def _findings(attempts: Iterable[tuple[AttemptView, Mask]]) -> Findings:
    assertions: dict[tuple[str | None, ...], FailedAssertion] = {}
    errors: dict[tuple[str | None, ...], FailedExecution] = {}
    warnings: dict[str, None] = {}
    for attempt, mask in attempts:
        execution = attempt.execution
        warnings |= dict.fromkeys(mask.text(warning) for warning in execution.warnings)
        if execution.error_code is not None:
            message = mask.text(execution.error or "")
            error = errors.setdefault(
                (execution.error_code, message), FailedExecution(execution, message)
            )
            error.executions.append(execution.id)
        tools = tuple(call.tool for call in attempt.tool_calls)
        for assertion in attempt.assertions:
            if not assertion.is_wrong:
                continue
            key = (assertion.kind, assertion.label, assertion.failure_code, assertion.message)
            if key not in assertions:
                assertions[key] = FailedAssertion(masked(assertion, mask), tools)
            assertions[key].executions.append(execution.id)
    return Findings(list(assertions.values()), list(errors.values()), list(warnings))
