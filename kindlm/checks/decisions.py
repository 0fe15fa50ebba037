"""The checks of scenarios that a judge decides by yes or no: tone, guardrails, facts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kindlm.checks.echoes import is_copy, readings_of
from kindlm.checks.judge_answers import bool_member, text_member
from kindlm.checks.judge_asking import ask_judge
from kindlm.checks.judge_prompts import facts_question, guardrail_question, sentiment_question
from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.errors import Err
from kindlm.model_answers import object_in
from kindlm.outcome import CheckResult, FailureCode
from kindlm.ports import CheckContext, Question
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import shown

__all__ = ["factuality", "guardrail", "sentiment"]


@check("sentiment")
async def sentiment(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> list[CheckResult]:
    """The last answer has the tone `tone`, as a judge reads it."""
    tone: str = expectation.params["tone"]
    return await _decided(
        expectation,
        transcript,
        context,
        lambda token: sentiment_question(transcript, tone, token=token),
        "conveyed",
        FailureCode.SENTIMENT_MISSED,
        f"Expected an answer that is {shown(tone)}",
    )


@check("guardrail")
async def guardrail(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> list[CheckResult]:
    """The last answer keeps to one rule: it does what `must` says, or not what `mustNot` says."""
    params = expectation.params
    must, must_not = params.get("must"), params.get("mustNot", "")
    rule: str = must_not if must is None else must
    return await _decided(
        expectation,
        transcript,
        context,
        lambda token: guardrail_question(
            transcript, "must not" if must is None else "must", rule, token=token
        ),
        "kept",
        FailureCode.GUARDRAIL_BROKEN,
        f"The answer {'must not' if must is None else 'must'}: {shown(rule)}",
    )


@check("factuality")
async def factuality(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> list[CheckResult]:
    """Nothing in the last answer contradicts `groundTruth`, or `context` beside it."""
    params = expectation.params
    truth: str = params["groundTruth"]
    return await _decided(
        expectation,
        transcript,
        context,
        lambda token: facts_question(transcript, truth, params.get("context"), token=token),
        "factual",
        FailureCode.FACTS_WRONG,
        f"The answer does not agree with what is true: {shown(truth)}",
    )


async def _decided(
    expectation: Expectation,
    transcript: Transcript,
    context: CheckContext,
    question: Callable[[str], Question],
    decision: str,
    code: FailureCode,
    message: str,
) -> list[CheckResult]:
    """Return the result of asking; `decision` is the member of the answer that is to be true."""
    given = await context.aside(partial(readings_of, transcript))

    def read(text: str) -> tuple[bool, str]:
        answer = object_in(text)
        is_so, reasoning = bool_member(answer, decision), text_member(answer, "reasoning")
        text_member(answer, "quote")
        if is_copy({decision: is_so, "reasoning": reasoning}, given):
            raise ValueError("it repeated a decision that stands in what it was to judge")
        return is_so, reasoning

    answer = await ask_judge(context, question, read)
    if isinstance(answer, Err):
        return [undecided(expectation, FailureCode.JUDGE_EVAL_ERROR, answer.error.message)]
    is_so, reasoning = answer.value
    if is_so:
        return [passed(expectation, reasoning=reasoning)]
    why = f"{message}. The judge: {shown(reasoning, 600)}."
    return [failed(expectation, code, why, reasoning=reasoning)]
