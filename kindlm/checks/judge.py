"""The check that asks a model: how well does a transcript meet a criterion?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kindlm.checks.echoes import is_echo, readings_of
from kindlm.checks.judge_answers import Judgement, parse_judgement
from kindlm.checks.judge_prompts import judge_question, new_token
from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.model_answers import why_unread
from kindlm.outcome import CheckResult, FailureCode
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import bounded, sentence, shown

__all__ = ["judge"]

_TRIES = 2
_DECIMALS = 12


@check("judge")
async def judge(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> list[CheckResult]:
    """The judge's score is at least `minScore`; the judge never learns of it.

    Params: `criteria`; `minScore`; `model`, the id of the judging model; `rubric`; `passes`, how
    many times it is asked; `scale`, the highest score that it may give where that is not 1:
    `minScore` and what is recorded are shares of it. The score is the median of the passes, the
    mean of the middle two where their number is even. A pass that failed or gave no judgement is
    asked for once more, and is lost after that. The other passes decide only as long as they are
    more than half of all.
    """
    number: int = expectation.params.get("passes") or 1
    given = await context.aside(partial(readings_of, transcript))
    passes = [await _pass(expectation, transcript, context, given) for _ in range(number)]
    judgements = [one.value for one in passes if isinstance(one, Ok)]
    if 2 * len(judgements) <= number:
        return [_lost(expectation, passes)]
    return [_scored(expectation, passes, judgements)]


async def _pass(
    expectation: Expectation, transcript: Transcript, context: CheckContext, given: Sequence[str]
) -> Result[Judgement]:
    for _ in range(_TRIES - 1):
        verdict = await _ask(expectation, transcript, context, given)
        if isinstance(verdict, Ok):
            return verdict
    return await _ask(expectation, transcript, context, given)


async def _ask(
    expectation: Expectation, transcript: Transcript, context: CheckContext, given: Sequence[str]
) -> Result[Judgement]:
    """Ask once; an answer is none of its own if it stands in what was `given`."""
    scale = expectation.params.get("scale")
    question = partial(
        judge_question,
        transcript,
        criteria=expectation.params["criteria"],
        rubric=expectation.params.get("rubric"),
        model=expectation.params.get("model"),
        token=new_token(),
        scale=scale,
    )
    reply = await context.ask(await context.aside(question))
    if isinstance(reply, Err):
        return _no_judgement(f"The judge could not be asked: {reply.error.message}")
    text = reply.value.text
    try:
        judgement = parse_judgement(text, highest=scale or 1)
    except ValueError as error:
        why = why_unread(error, reply.value.finish_reason)
        return _no_judgement(f"The judge gave no judgement: {why}. It answered {shown(text)}.")
    if is_echo("score", judgement.score, judgement.reasoning, given):
        return _no_judgement(
            "The judge gave no judgement of its own: it repeated one that stands in the "
            f"transcript. It answered {shown(text)}."
        )
    return Ok(replace(judgement, score=judgement.score / (scale or 1)))


def _no_judgement(message: str) -> Err:
    return Err(KindlmError(ErrorCode.JUDGE_EVAL_ERROR, message))


def _scored(
    expectation: Expectation, passes: Sequence[Result[Judgement]], judgements: Sequence[Judgement]
) -> CheckResult:
    threshold: float = expectation.params["minScore"]
    score = _median([judgement.score for judgement in judgements])
    closest = min(judgements, key=lambda judgement: abs(judgement.score - score))
    several = len(passes) > 1
    reasoning = _told(passes) if several else closest.reasoning
    actual = {"score": score, "passes": _listed(passes)} if several else None
    if score >= threshold:
        return passed(
            expectation, score=score, threshold=threshold, actual=actual, reasoning=reasoning
        )
    scale = expectation.params.get("scale")
    whole = "" if scale is None else f" of {scale:g}"
    scored = f"scored {score * (scale or 1):.10g}{whole}" + (
        f", the median of {_scores(judgements)}" if several else ""
    )
    message = (
        f"The judge {scored}, expected at least {threshold * (scale or 1):.10g}: "
        f"{shown(closest.reasoning, 600)}"
    )
    return failed(
        expectation,
        FailureCode.JUDGE_BELOW_THRESHOLD,
        message,
        expected=threshold,
        actual=actual or score,
        score=score,
        threshold=threshold,
        reasoning=reasoning,
    )


def _lost(expectation: Expectation, passes: Sequence[Result[Judgement]]) -> CheckResult:
    errors = [one.error.message for one in passes if isinstance(one, Err)]
    several = len(passes) > 1
    message = errors[0]
    if several:
        message = f"{len(errors)} of {len(passes)} passes of the judge gave no score. {message}"
    return undecided(
        expectation,
        FailureCode.JUDGE_EVAL_ERROR,
        message,
        threshold=expectation.params["minScore"],
        actual={"passes": _listed(passes)} if several else None,
    )


def _median(scores: Sequence[float]) -> float:
    median = statistics.median(scores)
    return median if median in scores else round(median, _DECIMALS)


def _scores(judgements: Sequence[Judgement]) -> str:
    return ", ".join(f"{judgement.score:g}" for judgement in judgements)


def _listed(passes: Sequence[Result[Judgement]]) -> list[dict[str, Any]]:
    return [
        {"score": one.value.score, "reasoning": bounded(one.value.reasoning)}
        if isinstance(one, Ok)
        else {"score": None, "error": sentence(one.error.message)}
        for one in passes
    ]


def _told(passes: Sequence[Result[Judgement]]) -> str:
    """Return what each pass said, one after the other."""
    return "\n".join(
        f"Pass {number}: {one.value.score:g}. {one.value.reasoning}"
        if isinstance(one, Ok)
        else f"Pass {number}: no score. {one.error.message}"
        for number, one in enumerate(passes, start=1)
    )
