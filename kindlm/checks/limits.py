"""Checks of the time, cost, tokens and length of answers, and of any reported number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

from pydantic import Field

from kindlm.checks.base import Check, CheckSection, Key, Place, failed, passed, undecided
from kindlm.checks.call_matching import why_unknown
from kindlm.dataclass import dataclass
from kindlm.money import exceeds
from kindlm.outcome import CheckResult, Demands
from kindlm.ports import CheckContext
from kindlm.section import Positive
from kindlm.transcript import Transcript
from kindlm.values import plain_number
from kindlm.wording import excerpt, shown

CODES = {
    "LATENCY_EXCEEDED": "The answers took longer than allowed.",
    "BUDGET_EXCEEDED": "The conversation cost more than allowed.",
    "TOKENS_EXCEEDED": "The conversation took more tokens than allowed.",
    "MAX_LENGTH_EXCEEDED": "The output is longer than allowed.",
    "METRIC_OUT_OF_RANGE": "A metric is outside its tolerance.",
}

# Arithmetic errors must not decide: |0.3 - 0.1| is more than 0.2, and 0.1 + 0.2 more than 0.3.
_DECIMALS = 12


class Latency(CheckSection):
    """Limit of the time for answers."""

    main = "maxMs"
    key = Key("latency", order=70)
    reads_text = False
    demands = Demands.LIMIT
    only_numbers = True

    max_ms: Positive = Field(examples=[5000])
    """Maximum milliseconds for all answers of a conversation together. Waits between retries and
    `delayMs` of simulated tools do not count."""

    @property
    def label(self) -> str:
        return f"≤ {plain_number(self.max_ms)} ms"

    def never_fails(self, timeout_ms: float) -> Iterator[tuple[Place, str]]:
        if self.max_ms >= timeout_ms:
            yield ("maxMs",), beyond(timeout_ms)

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        took, code = _latency(transcript), "LATENCY_EXCEEDED"
        return limited(took, self.max_ms, code, "{:,.10g} ms", NO_LATENCY)


class LatencyMs(Latency):
    """Maximum milliseconds for all answers of a conversation together, as `latency.maxMs`."""

    key = Key("latencyMs", order=71, examples=[5000])


def beyond(timeout_ms: float) -> str:
    """Return the reason why no execution takes longer."""
    return f"an execution ends after {plain_number(timeout_ms)} ms (defaults.executionTimeoutMs)"


class Cost(CheckSection):
    """Limit of the cost of a conversation."""

    main = "maxUsd"
    key = Key("cost", "Limit of the cost.", order=80)
    reads_text = False
    demands = Demands.LIMIT
    only_numbers = True

    max_usd: Annotated[float, Field(ge=0)] = Field(examples=[0.02])
    """Maximum US dollars, without judges. An unknown cost does not count as 0."""

    @property
    def label(self) -> str:
        return f"≤ ${plain_number(self.max_usd)}"

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        """Return whether the target's answers cost at most `max_usd`; all costs must be known."""
        usd, why = transcript.total.cost.usd, why_cost_unknown(transcript)
        spent = None if usd is None else round(usd, _DECIMALS)
        return limited(spent, self.max_usd, "BUDGET_EXCEEDED", "${:.10g}", why)


class CostUsd(Cost):
    """Maximum US dollars for a conversation, as `cost.maxUsd`."""

    key = Key("costUsd", order=81, examples=[0.02])


@dataclass(frozen=True, slots=True)
class MaxLength(Check):
    """The output has at most `max` characters (code points)."""

    kind = "max_length"
    demands = Demands.TASK
    only_numbers = True

    max: int

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        length, code = len(transcript.text), "MAX_LENGTH_EXCEEDED"
        if length <= self.max:
            return passed(threshold=self.max)  # the text itself has its length
        return limited(length, self.max, code, "{:,} characters", "")


@dataclass(frozen=True, slots=True)
class TokenUsage(Check):
    """All answers together took at most `max_tokens` tokens, input and output."""

    kind = "token_usage"
    reads_text = False
    demands = Demands.LIMIT

    max_tokens: float

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        used, code = transcript.total.usage.total, "TOKENS_EXCEEDED"
        why = "The tokens are not known: the target did not report all of them."
        return limited(used, self.max_tokens, code, "{:,} tokens", why)


NO_LATENCY = "The latency is not known: the target gave no answer."


def limited(actual: float | None, limit: float, code: str, unit: str, why: str) -> CheckResult:
    """Return whether a number is at most `limit`; if it is unknown, `why` is the reason."""
    if actual is None:
        return undecided(why, threshold=limit)
    if not exceeds(actual, limit):
        return passed(threshold=limit, actual=actual)
    message = f"Expected at most {unit.format(limit)}; it was {unit.format(actual)}."
    return failed(code, message, expected=limit, actual=actual, threshold=limit)


def why_cost_unknown(transcript: Transcript) -> str:
    """Return why the cost is unknown, with the remedy."""
    step = next((step for step in transcript.steps if step.cost.usd is None), None)
    if step is None:
        return "The cost is not known: the target gave no answer."
    who = f'"{excerpt(step.model)}"' if step.model else "the target"
    if None in (step.usage.input_tokens, step.usage.output_tokens):
        return f"The cost is not known: {who} did not report the tokens it read and wrote."
    where = "`prices` in kindlm.yaml, or to `model` in .evalview/config.yaml"
    return f"The cost is not known: {who} has no price. Add it to {where}."


def _latency(transcript: Transcript) -> float | None:
    return round(transcript.total.latency_ms, 3) if transcript.steps else None


def _total(name: str, place: str, transcript: Transcript) -> float | None:
    """Return a sum over all answers, each measured at a `place` of the step or reported."""
    measured = map(attrgetter(place), transcript.steps)
    parts: list[Any] = [
        step.reported.get(name) if known is None else known
        for step, known in zip(transcript.steps, measured, strict=True)
    ]
    return sum(parts) if parts and None not in parts else None


def _tool_calls(transcript: Transcript) -> float | None:
    return len(transcript.tool_uses) if why_unknown(transcript) is None else None


KNOWN_METRICS: Mapping[str, Callable[[Transcript], float | None]] = {
    "latency": _latency,
    "cost": partial(_total, "cost", "cost.usd"),
    "tokens": partial(_total, "tokens", "usage.total"),
    "input_tokens": partial(_total, "input_tokens", "usage.input_tokens"),
    "output_tokens": partial(_total, "output_tokens", "usage.output_tokens"),
    "tool_calls": _tool_calls,
    # EvalView calls a tool call a step.
    "steps": _tool_calls,
}
"""The metrics of every execution: totals over all answers, None if one of them is unknown."""


@dataclass(frozen=True, slots=True)
class Metric(Check):
    """The metric `metric` is `value` ± `tolerance`.

    It is one of `KNOWN_METRICS`, or the last number that the agent reported by this name. The check
    is undecided if it is unknown.
    """

    kind = "metric"
    reads_text = False
    demands = Demands.LIMIT

    metric: str
    value: float
    tolerance: float

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        name, value, tolerance = self.metric, self.value, self.tolerance
        if (known := KNOWN_METRICS.get(name)) is None:
            reported = [step.reported[name] for step in transcript.steps if name in step.reported]
            actual = reported[-1] if reported else None
            why = f"The agent reported no metric {shown(name)}. These are always known:"
            why += f" {', '.join(KNOWN_METRICS)}."
        else:
            actual = known(transcript)
            why = f"The metric {shown(name)} is not known: the target did not report it."
            why = (why_unknown(transcript) if known is _tool_calls else None) or why
        if actual is None:
            return undecided(why)
        if round(abs(actual - value), _DECIMALS) <= tolerance:
            return passed(actual=actual)
        message = f"Expected {name} to be {value:,.10g} ± {tolerance:,.10g}; it was {actual:,.10g}."
        expected = {"value": value, "tolerance": tolerance}
        return failed("METRIC_OUT_OF_RANGE", message, expected=expected, actual=actual)
