"""The check of a number that describes an execution: it is near the one that is expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from kindlm.checks.call_wording import how_to_report
from kindlm.checks.registry import Reads, check
from kindlm.checks.results import failed, passed, undecided
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import Step, Transcript
from kindlm.wording import shown

__all__ = ["KNOWN_METRICS", "metric"]

Metric: TypeAlias = Callable[[Transcript], float | None]

# What arithmetic alone adds must not decide: |0.3 - 0.1| is more than 0.2.
_DECIMALS = 12


def _tokens(step: Step) -> float | None:
    usage = step.usage
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return usage.input_tokens + usage.output_tokens


def _total(name: str, of_step: Callable[[Step], float | None]) -> Metric:
    """Return the sum over all answers, each as it is known or as the agent told it by this name."""

    def total(transcript: Transcript) -> float | None:
        parts = []
        for step in transcript.steps:
            known = of_step(step)
            part = step.reported.get(name) if known is None else known
            if part is None:
                return None
            parts.append(part)
        return sum(parts) if parts else None

    return total


def _latency(transcript: Transcript) -> float | None:
    answered = next(transcript.steps, None) is not None
    return round(transcript.latency_ms, 3) if answered else None


def _tool_calls(transcript: Transcript) -> float | None:
    return len(transcript.tool_uses) if transcript.shows_tools else None


KNOWN_METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "latency": _latency,
        "cost": _total("cost", lambda step: step.cost.usd),
        "tokens": _total("tokens", _tokens),
        "input_tokens": _total("input_tokens", lambda step: step.usage.input_tokens),
        "output_tokens": _total("output_tokens", lambda step: step.usage.output_tokens),
        "tool_calls": _tool_calls,
        # What EvalView calls a step is a call of a tool.
        "steps": _tool_calls,
    }
)
"""What is known of any execution: latency in milliseconds, cost in US dollars, and counts.

Each is of all answers together, and unknown as soon as one of them is.
"""


@check("metric", reads=Reads.NUMBERS_AND_NAMES)
def metric(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The metric `metric` is `value`, give or take `tolerance`.

    It is one of `KNOWN_METRICS`, or a number that the agent told of its last answer that it told
    one of by this name. What nobody reported is not known.
    """
    name: str = expectation.params["metric"]
    value, tolerance = expectation.params["value"], expectation.params["tolerance"]
    known = KNOWN_METRICS.get(name)
    actual = _reported(name, transcript) if known is None else known(transcript)
    if actual is None:
        code = FailureCode.ASSERTION_EVAL_ERROR
        return [
            undecided(expectation, code, _unknown(name, transcript, is_known=known is not None))
        ]
    if round(abs(actual - value), _DECIMALS) <= tolerance:
        return [passed(expectation, actual=actual)]
    message = f"Expected {name} to be {value:,.10g} ± {tolerance:,.10g}, it was {actual:,.10g}."
    return [
        failed(
            expectation,
            FailureCode.METRIC_OUT_OF_RANGE,
            message,
            expected={"value": value, "tolerance": tolerance},
            actual=actual,
        )
    ]


def _reported(name: str, transcript: Transcript) -> float | None:
    told = [step.reported[name] for step in transcript.steps if name in step.reported]
    return told[-1] if told else None


def _unknown(name: str, transcript: Transcript, *, is_known: bool) -> str:
    if KNOWN_METRICS.get(name) is _tool_calls:
        return f"The metric {shown(name)} is not known. {how_to_report(transcript)}."
    if is_known:
        return f"The metric {shown(name)} is not known: the target did not report it."
    names = ", ".join(KNOWN_METRICS)
    return f"Nobody reported a metric {shown(name)}. Those that are always there: {names}."
