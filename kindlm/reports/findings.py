"""What went wrong in a test, told once however many of its repeats it happened in."""

from __future__ import annotations

from dataclasses import dataclass, field

from kindlm.history.masking import mask_of, masked
from kindlm.history.rows import AssertionView, ExecutionView, TestView
from kindlm.history.run_view import RunView
from kindlm.outcome import Status

__all__ = ["FailedAssertion", "FailedExecution", "Findings", "findings_of"]


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
    assertions: dict[tuple[str | None, ...], FailedAssertion] = {}
    errors: dict[tuple[str | None, ...], FailedExecution] = {}
    warnings: dict[str, None] = {}
    for execution in view.executions(test):
        if execution.status not in (Status.FAILED, Status.ERRORED):
            continue
        evaluated, tool_calls = view.assertions(execution), view.tool_calls(execution)
        mask = mask_of(execution, evaluated, tool_calls)
        warnings |= dict.fromkeys(mask.text(warning) for warning in execution.warnings)
        if execution.error_code is not None:
            message = mask.text(execution.error or "")
            error = errors.setdefault(
                (execution.error_code, message), FailedExecution(execution, message)
            )
            error.executions.append(execution.id)
        tools = tuple(call.tool for call in tool_calls)
        for assertion in evaluated:
            if not assertion.is_wrong:
                continue
            key = (assertion.kind, assertion.label, assertion.failure_code, assertion.message)
            if key not in assertions:
                assertions[key] = FailedAssertion(masked(assertion, mask), tools)
            assertions[key].executions.append(execution.id)
    return Findings(list(assertions.values()), list(errors.values()), list(warnings))
