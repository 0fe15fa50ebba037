"""The check of a weighted score: tools, output and sequence in one number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from kindlm.checks.echoes import texts_of
from kindlm.checks.judge_prompts import QUALITY, tool_call
from kindlm.checks.judging import Judge, Judgement, judgement
from kindlm.checks.output_facts import accuracy_of, output_facts, progress_of
from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.checks.score_formulas import (
    OutputFacts,
    deterministic_quality,
    fallback_quality,
    judged_quality,
    mean_of_turns,
    overall_score,
    penalty,
)
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.outcome import CheckResult, FailureCode
from kindlm.ports import CheckContext
from kindlm.score_weights import Weights
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import bounded, shown

__all__ = ["weighted_score"]

_HIGHEST = 100
_HINTS = 5
"""How many of the texts that an output must contain the judge gets to know."""
_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a score is made of; `judged` is what a judge said, if one was asked."""

    accuracy: float
    quality: float
    progress: float
    weights: Weights
    facts: OutputFacts
    judged: Judgement | None = None

    @property
    def score(self) -> float:
        """The score, from 0 to 100."""
        return overall_score(self.accuracy, self.quality, self.progress, self.weights)


@check("weighted_score")
async def weighted_score(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> list[CheckResult]:
    """The weighted score is at least `minScore`, which is from 0 to 100 like the score itself.

    Params: `weights`, of `tool_accuracy`, `output_quality` and `sequence_correctness`; `tools` and
    `toolCategories`, names with their tools or None; `sequence` and `sequenceMode`; `query`,
    `contains`, `notContains`, `regexPatterns`, `jsonSchema`; `turns`, where the user says more than
    one thing, each with a `query` and what else is expected of its answer.

    With `judged`, a judge gives the quality of the output, of each turn by itself where there are
    `turns`. Where it can't be asked or understood, nobody knows. Without, the quality follows from
    the deterministic checks, and is 75 at most.
    """
    params = expectation.params
    facts = await context.aside(partial(output_facts, params, transcript.text))
    parts = _Parts(
        accuracy=accuracy_of(params, transcript),
        quality=deterministic_quality(facts),
        progress=progress_of(params, transcript),
        weights=Weights.of(params.get("weights")),
        facts=facts,
    )
    if not params.get("judged"):
        return [_result(expectation, parts)]
    judged = await _judged(params, transcript, context)
    if isinstance(judged, Err):
        fallback = replace(parts, quality=fallback_quality(facts))
        return [_unjudged(expectation, judged.error, fallback.score)]
    quality = judged_quality(judged.value.score, facts)
    return [_result(expectation, replace(parts, quality=quality, judged=judged.value))]


async def _judged(
    params: Mapping[str, Any], transcript: Transcript, context: CheckContext
) -> Result[Judgement]:
    """Return what the judge says of the output: of all turns together where there are several."""
    asked: Sequence[Mapping[str, Any]] = params.get("turns") or ()
    if not asked:
        return await _judge_turn(params, transcript, context)
    judgements: list[Judgement] = []
    for turn, wanted in zip(transcript.turns, asked, strict=False):
        judgement = await _judge_turn(wanted, replace(transcript, turns=(turn,)), context)
        if isinstance(judgement, Err):
            return judgement
        judgements.append(judgement.value)
    if not judgements:
        return await _judge_turn(params, transcript, context)
    told = "\n".join(
        f"Turn {number}: {one.score:g}. {one.reasoning}"
        for number, one in enumerate(judgements, start=1)
    )
    return Ok(Judgement(mean_of_turns([one.score for one in judgements]), told))


async def _judge_turn(
    params: Mapping[str, Any], transcript: Transcript, context: CheckContext
) -> Result[Judgement]:
    """Return what the judge says of the last turn."""
    turn = transcript.turns[-1]
    query, mentions = params.get("query") or turn.user, params.get("contains") or ()
    return await Judge(context, texts_of(transcript)).ask(
        QUALITY,
        lambda: {
            "query": query,
            "toolCalls": [tool_call(use) for step in turn.steps for use in step.tool_uses],
            "answer": turn.text,
            "mentions": list(mentions[:_HINTS]),
        },
        judgement(highest=_HIGHEST),
    )


def _result(expectation: Expectation, parts: _Parts) -> CheckResult:
    params = expectation.params
    score, least = parts.score, params["minScore"]
    share, threshold = _share(score), _share(least)
    reasoning = None if parts.judged is None else parts.judged.reasoning
    actual = _actual(parts)
    if score >= least:
        return passed(
            expectation, score=share, threshold=threshold, actual=actual, reasoning=reasoning
        )
    told = "" if parts.judged is None else f" The judge: {shown(reasoning, 600)}"
    message = (
        f"The score is {score:g}, expected at least {least:g}: tools {100 * parts.accuracy:.4g}, "
        f"output {parts.quality:.4g}, sequence {100 * parts.progress:.4g}.{told}"
    )
    return failed(
        expectation,
        FailureCode.SCORE_BELOW_THRESHOLD,
        message,
        expected={"minScore": least},
        actual=actual,
        score=share,
        threshold=threshold,
        reasoning=reasoning,
    )


def _actual(parts: _Parts) -> dict[str, Any]:
    judged = parts.judged
    return {
        "score": parts.score,
        "toolAccuracy": parts.accuracy,
        "outputQuality": parts.quality,
        "sequenceProgress": parts.progress,
        "weights": asdict(parts.weights),
        "judge": judged and {"score": judged.score, "rationale": bounded(judged.reasoning)},
        "penalty": None if judged is None else penalty(parts.facts),
    }


def _unjudged(expectation: Expectation, error: KindlmError, fallback: float) -> CheckResult:
    """Return that nobody knows; the score that EvalView would give then decides nothing here."""
    return undecided(
        expectation,
        FailureCode.JUDGE_EVAL_ERROR,
        error.message,
        threshold=_share(expectation.params["minScore"]),
        actual={"score": None, "fallbackScore": fallback},
    )


def _share(score: float) -> float:
    """Return a score as a number from 0 to 1, as all results have it."""
    return round(score / _HIGHEST, _DECIMALS)
