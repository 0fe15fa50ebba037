"""Checks of what a conversation took: time, money and tokens."""

from __future__ import annotations

from kindlm.checks.registry import Reads, check
from kindlm.checks.results import failed, passed, undecided
from kindlm.money import exceeds
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import count, excerpt

__all__ = ["cost", "latency", "token_usage"]

# Sums of prices such as 0.1 + 0.2 are off by some 1e-17: nobody pays in trillionths of a dollar.
_DECIMALS = 12


@check("latency", reads=Reads.NUMBERS_AND_NAMES)
def latency(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The target's answers took at most `maxMs` milliseconds together.

    Waits between retries and the delays of simulated tools do not count. Without any answer
    nothing was measured.
    """
    limit: float = expectation.params["maxMs"]
    if next(transcript.steps, None) is None:
        message = "The latency is not known: the target gave no answer."
        code = FailureCode.ASSERTION_EVAL_ERROR
        return [undecided(expectation, code, message, threshold=limit)]
    took = round(transcript.latency_ms, 3)
    if took <= limit:
        return [passed(expectation, threshold=limit, actual=took)]
    message = f"Expected at most {limit:,.10g} ms, it took {took:,.10g} ms."
    code = FailureCode.LATENCY_EXCEEDED
    return [failed(expectation, code, message, expected=limit, actual=took, threshold=limit)]


@check("cost", reads=Reads.NUMBERS_AND_NAMES)
def cost(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The target's answers cost at most `maxUsd` US dollars together; judges do not count.

    A cost that is not known is never taken for 0: nobody knows then, unless what is known exceeds
    the limit already.
    """
    limit: float = expectation.params["maxUsd"]
    known = [step.cost.usd for step in transcript.steps if step.cost.usd is not None]
    usd, is_whole = sum(known), transcript.cost.usd is not None
    if not is_whole and not exceeds(usd, limit):
        code = FailureCode.ASSERTION_EVAL_ERROR
        return [undecided(expectation, code, _why_unknown(transcript), threshold=limit)]
    spent = round(usd, _DECIMALS)
    if not exceeds(usd, limit):
        return [passed(expectation, threshold=limit, actual=spent)]
    was = "it was" if is_whole else "it was at least"
    message = f"Expected a cost of at most ${limit:.10g}, {was} ${spent:.10g}."
    code = FailureCode.BUDGET_EXCEEDED
    return [failed(expectation, code, message, expected=limit, actual=spent, threshold=limit)]


@check("token_usage", reads=Reads.NUMBERS_AND_NAMES)
def token_usage(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The target's answers took at most `maxTokens` tokens together, in and out.

    Tokens that were not reported are never taken for none: nobody knows then.
    """
    limit: int = expectation.params["maxTokens"]
    usage = transcript.usage
    if usage.input_tokens is None or usage.output_tokens is None:
        message = "The tokens are not known: the target did not report all of them."
        code = FailureCode.ASSERTION_EVAL_ERROR
        return [undecided(expectation, code, message, threshold=limit)]
    used = usage.input_tokens + usage.output_tokens
    if used <= limit:
        return [passed(expectation, threshold=limit, actual=used)]
    message = f"Expected at most {limit:,} tokens, it took {used:,}."
    code = FailureCode.TOKENS_EXCEEDED
    return [failed(expectation, code, message, expected=limit, actual=used, threshold=limit)]


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
