"""Checks of what a conversation took: time, money, tokens, and any number that was reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from kindlm.checks.calls import how_to_report
from kindlm.checks.registry import Reads, check
from kindlm.checks.results import failed, passed, undecided
from kindlm.money import exceeds
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import Step, Transcript
from kindlm.wording import count, excerpt, shown

__all__ = ["KNOWN_METRICS", "cost", "latency", "metric", "token_usage"]

# What arithmetic alone adds must not decide: |0.3 - 0.1| is more than 0.2, and sums of prices such
# as 0.1 + 0.2 are off by some 1e-17.
_DECIMALS = 12


@check("latency", reads=Reads.NUMBERS_AND_NAMES)
def latency(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """The target's answers took at most `maxMs` milliseconds together.

    Waits between retries and the delays of simulated tools do not count. Without any answer
    nothing was measured.
    """
    limit: float = expectation.params["maxMs"]
    if not transcript.steps:
        message = "The latency is not known: the target gave no answer."
        code = FailureCode.ASSERTION_EVAL_ERROR
        return undecided(expectation, code, message, threshold=limit)
    took = round(transcript.latency_ms, 3)
    if took <= limit:
        return passed(expectation, threshold=limit, actual=took)
    message = f"Expected at most {limit:,.10g} ms, it took {took:,.10g} ms."
    code = FailureCode.LATENCY_EXCEEDED
    return failed(expectation, code, message, expected=limit, actual=took, threshold=limit)


@check("cost", reads=Reads.NUMBERS_AND_NAMES)
def cost(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """The target's answers cost at most `maxUsd` US dollars together; judges do not count.

    A cost that is not known is never taken for 0: nobody knows then, unless what is known exceeds
    the limit already.
    """
    limit: float = expectation.params["maxUsd"]
    known = [step.cost.usd for step in transcript.steps if step.cost.usd is not None]
    usd, is_whole = sum(known), transcript.cost.usd is not None
    if not is_whole and not exceeds(usd, limit):
        code = FailureCode.ASSERTION_EVAL_ERROR
        return undecided(expectation, code, _why_unknown(transcript), threshold=limit)
    spent = round(usd, _DECIMALS)
    if not exceeds(usd, limit):
        return passed(expectation, threshold=limit, actual=spent)
    was = "it was" if is_whole else "it was at least"
    message = f"Expected a cost of at most ${limit:.10g}, {was} ${spent:.10g}."
    code = FailureCode.BUDGET_EXCEEDED
    return failed(expectation, code, message, expected=limit, actual=spent, threshold=limit)


@check("token_usage", reads=Reads.NUMBERS_AND_NAMES)
def token_usage(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """The target's answers took at most `maxTokens` tokens together, in and out.

    Tokens that were not reported are never taken for none: nobody knows then.
    """
    limit: int = expectation.params["maxTokens"]
    usage = transcript.usage
    if usage.input_tokens is None or usage.output_tokens is None:
        message = "The tokens are not known: the target did not report all of them."
        code = FailureCode.ASSERTION_EVAL_ERROR
        return undecided(expectation, code, message, threshold=limit)
    used = usage.input_tokens + usage.output_tokens
    if used <= limit:
        return passed(expectation, threshold=limit, actual=used)
    message = f"Expected at most {limit:,} tokens, it took {used:,}."
    code = FailureCode.TOKENS_EXCEEDED
    return failed(expectation, code, message, expected=limit, actual=used, threshold=limit)


def _why_unknown(transcript: Transcript) -> str:
    step = next((step for step in transcript.steps if step.cost.usd is None), None)
    if step is None:
        return "The cost is not known: the target gave no answer."
    who = f'"{excerpt(step.model)}"' if step.model else "the target"
    counts = (step.usage.input_tokens, step.usage.output_tokens)
    told = [known for known in counts if known]
    if told and None in counts:
        return (
            f"The cost is not known: {who} reported {count(told[0], 'token')}, and not how many it "
            "read and how many it wrote."
        )
    if None in counts:
        return f"The cost is not known: {who} did not report its tokens."
    return (
        f"The cost is not known: {who} has no price. Add it to `prices` in kindlm.yaml, or to "
        "`model` in .evalview/config.yaml."
    )


Metric: TypeAlias = Callable[[Transcript], float | None]


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
    answered = bool(transcript.steps)
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
def metric(expectation: Expectation, transcript: Transcript) -> CheckResult:
    """The metric `metric` is `value`, give or take `tolerance`.

    It is one of `KNOWN_METRICS`, or a number that the agent told of its last answer that it told
    one of by this name. What nobody reported is not known.
    """
    name: str = expectation.params["metric"]
    value, tolerance = expectation.params["value"], expectation.params["tolerance"]
    known = KNOWN_METRICS.get(name)
    actual = _reported(name, transcript) if known is None else known(transcript)
    if actual is None:
        message = _unknown(name, transcript, is_known=known is not None)
        return undecided(expectation, FailureCode.ASSERTION_EVAL_ERROR, message)
    if round(abs(actual - value), _DECIMALS) <= tolerance:
        return passed(expectation, actual=actual)
    return failed(
        expectation,
        FailureCode.METRIC_OUT_OF_RANGE,
        f"Expected {name} to be {value:,.10g} ± {tolerance:,.10g}, it was {actual:,.10g}.",
        expected={"value": value, "tolerance": tolerance},
        actual=actual,
    )


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
