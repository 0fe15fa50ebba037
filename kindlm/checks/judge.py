"""The check that asks a model: how well does a transcript meet a criterion?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kindlm.checks.json_text import parse_json
from kindlm.checks.judge_prompts import judge_question, new_token
from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.outcome import CheckResult, FailureCode
from kindlm.ports import CheckContext
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import shown

__all__ = ["Judgement", "judge", "parse_judgement"]

_TRIES = 2


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge answered: a score in [0, 1] and why."""

    score: float
    reasoning: str


@check("judge")
async def judge(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> list[CheckResult]:
    """The judge's score is at least `minScore`; the judge never learns of it.

    Params: `criteria`; `minScore`; `model`, the id of the judging model; `rubric`. An answer that
    failed or was no judgement is asked for once more; after that nobody knows.
    """
    threshold: float = expectation.params["minScore"]
    verdict = await _ask(expectation, transcript, context)
    for _ in range(_TRIES - 1):
        if isinstance(verdict, Ok):
            break
        verdict = await _ask(expectation, transcript, context)
    if isinstance(verdict, Err):
        code, message = FailureCode.JUDGE_EVAL_ERROR, verdict.error.message
        return [undecided(expectation, code, message, threshold=threshold)]
    score, reasoning = verdict.value.score, verdict.value.reasoning
    if score >= threshold:
        return [passed(expectation, score=score, threshold=threshold, reasoning=reasoning)]
    message = (
        f"The judge scored {score:g}, expected at least {threshold:g}: {shown(reasoning, 600)}"
    )
    return [
        failed(
            expectation,
            FailureCode.JUDGE_BELOW_THRESHOLD,
            message,
            expected=threshold,
            actual=score,
            score=score,
            threshold=threshold,
            reasoning=reasoning,
        )
    ]


def parse_judgement(text: str) -> Judgement:
    """Read a judge's answer: one JSON object, a code fence around it allowed, and nothing else.

    Raises:
        ValueError: it is no judgement; says why. A score is taken as it is or not at all: no
            strings, no booleans, nothing outside [0, 1].
    """
    answer = parse_json(text, unique_keys=True).value
    problem = _problem(answer)
    if problem is not None:
        raise ValueError(problem)
    return Judgement(float(answer["score"]), answer["reasoning"])


def _problem(answer: Any) -> str | None:
    """Return why a JSON value is no judgement."""
    if not isinstance(answer, dict):
        return "it is no JSON object"
    score = answer.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float):
        return "its score is no number"
    if not 0 <= score <= 1:
        return "its score is not from 0 to 1"
    if not isinstance(answer.get("reasoning"), str):
        return "its reasoning is no text"
    return None


async def _ask(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> Result[Judgement]:
    question = judge_question(
        transcript,
        criteria=expectation.params["criteria"],
        rubric=expectation.params.get("rubric"),
        model=expectation.params.get("model"),
        token=new_token(),
    )
    reply = await context.ask(question)
    if isinstance(reply, Err):
        message = f"The judge could not be asked: {reply.error.message}"
        return Err(KindlmError(ErrorCode.JUDGE_EVAL_ERROR, message))
    text = reply.value.text
    try:
        return Ok(parse_judgement(text))
    except ValueError as error:
        message = f"The judge gave no judgement: {error}. It answered {shown(text)}."
        return Err(KindlmError(ErrorCode.JUDGE_EVAL_ERROR, message))
