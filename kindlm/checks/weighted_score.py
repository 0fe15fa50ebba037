"""The weighted score of EvalView 0.8, from 0 to 100: tools, output and sequence in one number.

docs/evalview-scores.md has the formulas.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from kindlm.checks.echoes import texts_of
from kindlm.checks.judge_prompts import QUALITY, tool_call
from kindlm.checks.judging import Judge, Judgement, judgement
from kindlm.checks.output import count_unmatched, occurs
from kindlm.checks.output_json import find_json
from kindlm.checks.registry import check
from kindlm.checks.results import failed, passed, undecided
from kindlm.checks.tools import SequenceMode, sequence_progress
from kindlm.errors import Err, Ok, Result
from kindlm.json_schema import UndecidableSchemaError, schema_issues
from kindlm.outcome import CheckResult, FailureCode
from kindlm.ports import CheckContext
from kindlm.score_weights import Weights
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import bounded, shown

__all__ = [
    "OutputFacts",
    "deterministic_quality",
    "fallback_quality",
    "judged_quality",
    "mean_of_turns",
    "overall_score",
    "tool_accuracy",
    "weighted_score",
]

_HIGHEST = 100
_SHARE_DECIMALS = 6
_HINTS = 5
"""How many of the texts that an output must contain the judge gets to know."""


@check("weighted_score")
async def weighted_score(
    expectation: Expectation, transcript: Transcript, context: CheckContext
) -> CheckResult:
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
    facts = await context.aside(partial(_output_facts, params, transcript.text))
    called = [use.call.name for use in transcript.tool_uses]
    categories = [tools or () for tools in (params.get("toolCategories") or {}).values()]
    accuracy = tool_accuracy(params.get("tools") or (), categories, called)
    mode = SequenceMode(params.get("sequenceMode") or SequenceMode.SUBSEQUENCE)
    progress = sequence_progress(params.get("sequence") or (), called, mode).share
    weights = Weights.of(params.get("weights"))
    least = params["minScore"]
    threshold = _share(least)
    judged = None
    if params.get("judged"):
        answer = await _judged(params, transcript, context)
        if isinstance(answer, Err):
            # The score that EvalView would give then decides nothing here.
            fallback = overall_score(accuracy, fallback_quality(facts), progress, weights)
            return undecided(
                expectation,
                FailureCode.JUDGE_EVAL_ERROR,
                answer.error.message,
                threshold=threshold,
                actual={"score": None, "fallbackScore": fallback},
            )
        judged = answer.value
    quality = judged_quality(judged.score, facts) if judged else deterministic_quality(facts)
    score = overall_score(accuracy, quality, progress, weights)
    reasoning = judged.reasoning if judged else None
    actual = {
        "score": score,
        "toolAccuracy": accuracy,
        "outputQuality": quality,
        "sequenceProgress": progress,
        "weights": asdict(weights),
        "judge": judged and {"score": judged.score, "rationale": bounded(judged.reasoning)},
        "penalty": judged and _penalty(facts),
    }
    share = _share(score)
    if score >= least:
        return passed(
            expectation, score=share, threshold=threshold, actual=actual, reasoning=reasoning
        )
    told = f" The judge: {shown(reasoning, 600)}" if judged else ""
    return failed(
        expectation,
        FailureCode.SCORE_BELOW_THRESHOLD,
        f"The score is {score:g}, expected at least {least:g}: tools {100 * accuracy:.4g}, "
        f"output {quality:.4g}, sequence {100 * progress:.4g}.{told}",
        expected={"minScore": least},
        actual=actual,
        score=share,
        threshold=threshold,
        reasoning=reasoning,
    )


def _share(score: float) -> float:
    """Return a score as a number from 0 to 1, as all results have it."""
    return round(score / _HIGHEST, _SHARE_DECIMALS)


async def _judged(
    params: Mapping[str, Any], transcript: Transcript, context: CheckContext
) -> Result[Judgement]:
    """Return what the judge says of the output: of all turns together where there are several."""
    asked: Sequence[Mapping[str, Any]] = params.get("turns") or ()
    judgements: list[Judgement] = []
    for turn, wanted in zip(transcript.turns, asked, strict=False):
        answer = await _judge_turn(wanted, replace(transcript, turns=(turn,)), context)
        if isinstance(answer, Err):
            return answer
        judgements.append(answer.value)
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


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """What was found out about an output, for a score: how much of each check it meets.

    `contained` and `avoided` are shares of the texts that it must and must not contain,
    `unmatched` that of the patterns that do not match; None where there are none of them.
    `fits` tells whether it fits the JSON Schema, None where there is none.
    """

    query: str
    output: str
    contained: float | None = None
    avoided: float | None = None
    unmatched: float | None = None
    fits: bool | None = None


def _output_facts(params: Mapping[str, Any], text: str) -> OutputFacts:
    """Return how much of its checks an output meets; runs patterns, and a schema."""
    wanted, unwanted = params.get("contains") or (), params.get("notContains") or ()
    patterns, schema = params.get("regexPatterns") or (), params.get("jsonSchema")
    return OutputFacts(
        query=params.get("query") or "",
        output=text,
        contained=_part([occurs(one, text) for one in wanted]),
        avoided=_part([not occurs(one, text) for one in unwanted]),
        unmatched=count_unmatched(patterns, text) / len(patterns) if patterns else None,
        fits=None if schema is None else _fits(schema, text),
    )


def _part(met: Sequence[bool]) -> float | None:
    return sum(met) / len(met) if met else None


def _fits(schema: Any, text: str) -> bool:
    """Tell whether a text holds JSON that fits a schema; one that cannot decide is not met."""
    try:
        return not schema_issues(schema, find_json(text))
    except (ValueError, UndecidableSchemaError):
        return False


_DECIMALS = 2

_REGEX_PENALTY = 15
_SCHEMA_PENALTY = 20

_UNJUDGED_MOST = 75
_NOTHING_CONTAINED_MOST = 25
_NO_REASONS_PENALTY = 30
_SHORT = 20
_VERY_SHORT = 10

_WORD = re.compile(r"\w{4,}")
_COMMON = frozenset({"what", "when", "where", "which", "that", "this"})
_ASKS_FOR_REASONS = re.compile(r"\b(?:explain|why|how)\b")
_GIVES_REASONS = re.compile(
    r"\b(?:because|since|due to|therefore|thus|hence|causes?|caused|reasons?|as a result|so that"
    r"|leads? to)\b"
)
_UNKNOWING = re.compile(r"(?:sorry,? )?(?:i|we) (?:do not|don.t) know[.!]?")


def tool_accuracy(
    tools: Collection[str], categories: Sequence[Collection[str]], called: Collection[str]
) -> float:
    """Return the share of expected tools and categories that were called; 1 of none.

    A tool counts once, however often it is named; others than the expected ones cost nothing.
    """
    expected, used = set(tools), set(called)
    met = len(expected & used) + sum(not used.isdisjoint(category) for category in categories)
    total = len(expected) + len(categories)
    return met / total if total else 1.0


def _penalty(facts: OutputFacts) -> float:
    """Return what patterns and a JSON Schema that are not met take from a judged quality."""
    return _REGEX_PENALTY * (facts.unmatched or 0.0) + _SCHEMA_PENALTY * (facts.fits is False)


def judged_quality(score: float, facts: OutputFacts) -> float:
    """Return the quality of an output, 0 to 100, from the score that a judge gave it."""
    return max(0.0, score - _penalty(facts))


def deterministic_quality(facts: OutputFacts) -> float:
    """Return the quality of an output, 0 to 75, where no judge is configured."""
    words = {word for word in facts.query.lower().split() if len(word) > 3}
    length = 15.0 if len(facts.output) > _VERY_SHORT else 7.5 if facts.output else 0.0
    points = (
        30 * _full(facts.contained)
        + 15 * _full(facts.avoided)
        + length
        + 15 * (_found(words, facts.output) if words else 0.0)
        + 15 * (1 - (facts.unmatched or 0.0))
        + 10 * (facts.fits is not False)
    )
    return min(points, float(_UNJUDGED_MOST))


def fallback_quality(facts: OutputFacts) -> float:
    """Return the quality of an output, 0 to 100, as EvalView gives it where its judge failed."""
    query, output = facts.query.lower(), facts.output.lower()
    terms = set(_WORD.findall(query)) - _COMMON
    points = (
        45 * _full(facts.contained)
        + 15 * _full(facts.avoided)
        + _length_points(output)
        + (25 * _found(terms, output) if terms else 10)
    )
    if _ASKS_FOR_REASONS.search(query) and not _GIVES_REASONS.search(output):
        points -= _NO_REASONS_PENALTY
    if facts.contained == 0:
        points = min(points, _NOTHING_CONTAINED_MOST)
    return round(min(max(0.0, points - _penalty(facts)), 100.0), _DECIMALS)


def mean_of_turns(scores: Sequence[float]) -> float:
    """Return the mean of the scores of turns; each counts 0.2 more than the one before, from 1."""
    weights = [1 + 0.2 * place for place in range(len(scores))]
    weighted = math.fsum(score * weight for score, weight in zip(scores, weights, strict=True))
    return round(weighted / math.fsum(weights), 1)


def overall_score(accuracy: float, quality: float, progress: float, weights: Weights) -> float:
    """Return the score, 0 to 100; accuracy and progress are from 0 to 1, quality to 100."""
    score = (
        100 * accuracy * weights.tool_accuracy
        + quality * weights.output_quality
        + 100 * progress * weights.sequence_correctness
    )
    return round(min(max(score, 0.0), 100.0), _DECIMALS)


def _full(share: float | None) -> float:
    return 1.0 if share is None else share


def _found(words: Collection[str], output: str) -> float:
    lowered = output.lower()
    return sum(word in lowered for word in words) / len(words)


def _length_points(output: str) -> float:
    if _UNKNOWING.fullmatch(output.strip()):
        return 5.0
    return 15.0 if len(output) >= _SHORT else 8.0 if output else 0.0
