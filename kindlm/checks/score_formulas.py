"""The weighted score of EvalView 0.8, from 0 to 100: tools, output and sequence in one number.

Pure arithmetic over what was found out about an output. docs/evalview-scores.md has the formulas.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kindlm.score_weights import Weights

__all__ = [
    "OutputFacts",
    "deterministic_quality",
    "fallback_quality",
    "judged_quality",
    "mean_of_turns",
    "overall_score",
    "penalty",
    "tool_accuracy",
]

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


def penalty(facts: OutputFacts) -> float:
    """Return what patterns and a JSON Schema that are not met take from a judged quality."""
    return _REGEX_PENALTY * (facts.unmatched or 0.0) + _SCHEMA_PENALTY * (facts.fits is False)


def judged_quality(score: float, facts: OutputFacts) -> float:
    """Return the quality of an output, 0 to 100, from the score that a judge gave it."""
    return max(0.0, score - penalty(facts))


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
    return round(min(max(0.0, points - penalty(facts)), 100.0), _DECIMALS)


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
