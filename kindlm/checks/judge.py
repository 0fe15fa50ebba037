"""The check that asks a model: how well does a transcript meet a criterion?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from kindlm.checks.echoes import texts_of
from kindlm.checks.judge_prompts import (
    JUDGEMENT,
    conversation,
    default_rubric,
    scaled_judgement,
)
from kindlm.checks.judging import Judge, Judgement, judgement
from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.errors import Ok, Result
from kindlm.outcome import CheckResult, FailureCode
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import bounded, sentence, shown

__all__ = ["judge"]

_DECIMALS = 12


@check("judge")
async def judge(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> CheckResult:
    """The judge's score is at least `minScore`; the judge never learns of it.

    Params: `criteria`; `minScore`; `model`, the id of the judging model; `rubric`; `passes`, how
    many times it is asked; `scale`, the highest score that it may give where that is not 1:
    `minScore` and what is recorded are shares of it. The score is the median of the passes, the
    mean of the middle two where their number is even. A pass that failed or gave no judgement is
    asked for once more, and is lost after that. The other passes decide only as long as they are
    more than half of all.
    """
    params = expectation.params
    number: int = params.get("passes") or 1
    scale, rubric = params.get("scale"), params.get("rubric")
    asked = Judge(context, texts_of(transcript))

    def data() -> dict[str, Any]:
        return {
            "criteria": params["criteria"],
            "rubric": default_rubric(scale) if rubric is None else rubric,
            "transcript": conversation(transcript),
        }

    passes = [
        await asked.ask(
            JUDGEMENT if scale is None else scaled_judgement(scale),
            data,
            judgement(highest=scale or 1),
            params.get("model"),
        )
        for _ in range(number)
    ]
    judgements = [
        Judgement(one.value.score / (scale or 1), one.value.reasoning)
        for one in passes
        if isinstance(one, Ok)
    ]
    threshold: float = params["minScore"]
    several = number > 1
    told = [_told(one, scale or 1) for one in passes]
    listed: dict[str, Any] | None
    listed = {"passes": [recorded for recorded, _ in told]} if several else None
    if 2 * len(judgements) <= number:
        lost = [one.error.message for one in passes if not isinstance(one, Ok)]
        message = lost[0]
        if several:
            message = f"{len(lost)} of {number} passes of the judge gave no score. {message}"
        code = FailureCode.JUDGE_EVAL_ERROR
        return undecided(expectation, code, message, threshold=threshold, actual=listed)
    score = _median([one.score for one in judgements])
    closest = min(judgements, key=lambda one: abs(one.score - score))
    reasoning = closest.reasoning
    if listed is not None:
        listed = {"score": score} | listed
        reasoning = "\n".join(f"Pass {n}: {text}" for n, (_, text) in enumerate(told, start=1))
    if score >= threshold:
        return passed(
            expectation, score=score, threshold=threshold, actual=listed, reasoning=reasoning
        )
    scored = f"scored {score * (scale or 1):.10g}" + ("" if scale is None else f" of {scale:g}")
    if several:
        scored += f", the median of {', '.join(f'{one.score:g}' for one in judgements)}"
    return failed(
        expectation,
        FailureCode.JUDGE_BELOW_THRESHOLD,
        f"The judge {scored}, expected at least {threshold * (scale or 1):.10g}: "
        f"{shown(closest.reasoning, 600)}",
        expected=threshold,
        actual=listed or score,
        score=score,
        threshold=threshold,
        reasoning=reasoning,
    )


def _told(one: Result[Judgement], scale: float) -> tuple[dict[str, Any], str]:
    """Return a pass as it is recorded, and as it is shown."""
    if not isinstance(one, Ok):
        message = one.error.message
        return {"score": None, "error": sentence(message)}, f"no score. {message}"
    score, reasoning = one.value.score / scale, one.value.reasoning
    return {"score": score, "reasoning": bounded(reasoning)}, f"{score:g}. {reasoning}"


def _median(scores: Sequence[float]) -> float:
    median = statistics.median(scores)
    return median if median in scores else round(median, _DECIMALS)
