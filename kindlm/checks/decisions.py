"""The checks that a judge decides by yes or no: tone, guardrails, facts, uncertainty."""

from __future__ import annotations

import re
from typing import Any

from kindlm.checks.echoes import texts_of
from kindlm.checks.judge_prompts import (
    FACTS,
    GUARDRAIL,
    SENTIMENT,
    UNCERTAINTY,
    Prompt,
    conversation,
    last_query,
    tool_call,
)
from kindlm.checks.judging import Judge, decision
from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.errors import Err
from kindlm.outcome import CheckResult, FailureCode
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import shown

__all__ = ["UNCERTAIN_PHRASES", "factuality", "guardrail", "sentiment", "uncertainty"]

UNCERTAIN_PHRASES = (
    *("don't know", "do not know", "not sure", "not certain", "uncertain", "unclear", "unsure"),
    *("can't confirm", "cannot confirm", "can't verify", "cannot verify", "couldn't find"),
    *("could not find", "unable to", "no information", "not enough information", "not available"),
    *("might", "may not", "possibly", "perhaps", "it depends", "approximately", "as far as i know"),
)
"""What acknowledges uncertainty where no judge is asked, as whole words whatever their case."""

_PHRASES = re.compile(
    r"\b(?:" + "|".join(map(re.escape, UNCERTAIN_PHRASES)) + r")\b", re.IGNORECASE
)


@check("sentiment")
async def sentiment(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> CheckResult:
    """The last answer has the tone `tone`, as a judge reads it."""
    tone: str = expectation.params["tone"]
    code, message = FailureCode.SENTIMENT_MISSED, f"Expected an answer that is {shown(tone)}"
    data = {"tone": tone}
    return await _decided(
        expectation, transcript, context, SENTIMENT, data, "conveyed", code, message
    )


@check("guardrail")
async def guardrail(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> CheckResult:
    """The last answer keeps to one rule: it does what `must` says, or not what `mustNot` says."""
    params = expectation.params
    must = params.get("must")
    kind = "must not" if must is None else "must"
    rule: str = params.get("mustNot", "") if must is None else must
    code, message = FailureCode.GUARDRAIL_BROKEN, f"The answer {kind}: {shown(rule)}"
    data = {"rule": rule, "kind": kind}
    return await _decided(expectation, transcript, context, GUARDRAIL, data, "kept", code, message)


@check("factuality")
async def factuality(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> CheckResult:
    """Nothing in the last answer contradicts `groundTruth`, or `context` beside it."""
    params = expectation.params
    truth: str = params["groundTruth"]
    message = f"The answer does not agree with what is true: {shown(truth)}"
    code, data = FailureCode.FACTS_WRONG, {"groundTruth": truth, "context": params.get("context")}
    return await _decided(expectation, transcript, context, FACTS, data, "factual", code, message)


async def _decided(
    expectation: Expectation,
    transcript: Transcript,
    context: CheckContext,
    prompt: Prompt,
    data: dict[str, Any],
    member: str,
    code: FailureCode,
    message: str,
) -> CheckResult:
    """Return the result of asking; `member` of the answer is to be true."""
    answer = await Judge(context, texts_of(transcript)).ask(
        prompt, lambda: data | {"transcript": conversation(transcript)}, decision(member)
    )
    if isinstance(answer, Err):
        return undecided(expectation, FailureCode.JUDGE_EVAL_ERROR, answer.error.message)
    is_so, reasoning = answer.value
    if is_so:
        return passed(expectation, reasoning=reasoning)
    why = f"{message}. The judge: {shown(reasoning, 600)}."
    return failed(expectation, code, why, reasoning=reasoning)


@check("uncertainty")
async def uncertainty(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> CheckResult:
    """The final text acknowledges that something is not known or not certain.

    With `judged`, a judge decides; without, whether the text has one of `UNCERTAIN_PHRASES`.
    """
    reasoning = None
    if expectation.params.get("judged"):
        answer = await Judge(context, texts_of(transcript)).ask(
            UNCERTAINTY,
            lambda: {
                "query": last_query(transcript),
                "toolCalls": [tool_call(use) for use in transcript.tool_uses],
                "answer": transcript.text,
            },
            decision("acknowledged"),
        )
        if isinstance(answer, Err):
            return undecided(expectation, FailureCode.JUDGE_EVAL_ERROR, answer.error.message)
        acknowledged, reasoning = answer.value
        if acknowledged:
            return passed(expectation, reasoning=reasoning)
    else:
        said = transcript.text.replace("\u2019", "'")
        found = await context.aside(lambda: _PHRASES.search(said))
        if found:
            return passed(expectation, message=f"The answer says {shown(found[0])}.")
    why = f" The judge: {shown(reasoning, 600)}." if reasoning else ""
    message = f"Expected the answer to acknowledge uncertainty, got {shown(transcript.text)}.{why}"
    return failed(expectation, FailureCode.UNCERTAINTY_MISSING, message, reasoning=reasoning)
