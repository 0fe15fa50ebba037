"""The weighted score of EvalView 0.8: tools, output and sequence in a number from 0 to 100.

docs/reference/evalview-scores.md has the formulas.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from kindlm.checks.base import AskingCheck, Fill, failed, passed, undecided
from kindlm.checks.evalview.tools import SequenceMode, sequence_share
from kindlm.checks.judging import GRADED, JudgeError, Judging, Number, prompt, texts_of, tool_call
from kindlm.checks.output import count_unmatched
from kindlm.dataclass import dataclass
from kindlm.json_schema import schema_issues
from kindlm.json_schema_keywords import UndecidableSchemaError
from kindlm.model_answers import find_json
from kindlm.outcome import CheckResult, Demands
from kindlm.ports import CheckContext
from kindlm.transcript import Transcript
from kindlm.values import filled
from kindlm.wording import bounded, shown

CODES = {"SCORE_BELOW_THRESHOLD": "The weighted score is below `min_score`."}

_HINTS = 5
"""The number of expected texts that the judge sees."""

_QUALITY = prompt(
    "You grade how well an AI agent answered a message of its user.",
    """\
- "query": what the user asked.
- "toolCalls": the tools that the agent called for this answer, with arguments and responses.
- "answer": what the agent answered. Grade this and nothing else.
- "mentions": texts that a good answer is expected to contain. They are hints, not the whole of \
it.""",
    """\
Look at whether the answer is right and agrees with the responses of the tools, whether it answers \
all that was asked, whether it keeps to that, and whether it is clear.
100: nothing is missing or wrong. 75: good, with minor gaps. 50: partly right or incomplete. 25: \
hardly any use. 0: wrong, empty, or no answer to this query. Scores in between are allowed.""",
    GRADED,
    "kindlm_quality",
    {"score": Number(100), "reasoning": "one to three sentences naming what decided the score"},
)


WEIGHTS = {"tool_accuracy": 0.3, "output_quality": 0.5, "sequence_correctness": 0.2}
"""The default weights of the parts of the score; the sum of weights is 1."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The expectations that the score of an answer measures.

    `categories` holds the tools of each category by its name. `forbidden_tools` count only in
    `evalview_verdict`.
    """

    query: str = ""
    tools: Sequence[str] = ()
    categories: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    sequence: Sequence[str] = ()
    mode: SequenceMode = "subsequence"
    contains: Sequence[str] = ()
    not_contains: Sequence[str] = ()
    patterns: Sequence[str] = ()
    schema: Any = None
    forbidden_tools: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class WeightedScore(AskingCheck):
    """The weighted score is at least `min_score`, from 0 to 100.

    If `judged`, a judge grades the output: each turn separately if there are `turns`. Otherwise,
    deterministic checks give the quality, at most 75. Only a test with several messages of the user
    has `turns`.
    """

    kind = "weighted_score"
    reads_text = True
    demands = Demands.TASK

    min_score: float
    scored: Scored = Scored()
    weights: Mapping[str, float] = field(default_factory=WEIGHTS.copy)
    judged: bool = False
    turns: Sequence[Scored] = ()

    @property
    def asks_judge(self) -> bool:  # type: ignore[override]
        return self.judged

    def filled(self, bind: Fill, insert: Fill) -> WeightedScore:
        bound: WeightedScore = filled(self, bind)
        return bound

    async def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        wanted, weights, least = self.scored, self.weights, self.min_score
        facts = await context.aside(lambda: _output_facts(wanted, transcript.text))
        called = [use.call.name for use in transcript.tool_uses]
        accuracy = tool_accuracy(wanted, called)
        progress = sequence_share(wanted.sequence, called, wanted.mode)
        threshold = round(least / 100, 6)
        judge = penalty = reasoning = None
        quality = deterministic_quality(facts)
        if self.judged:
            try:
                graded, reasoning = await self._judge(transcript, context)
            except JudgeError as error:
                # `EvalviewVerdict` uses the score that EvalView would fall back to.
                fallback = overall_score(accuracy, fallback_quality(facts), progress, weights)
                without: Any = {"score": None, "fallbackScore": fallback}
                return undecided(str(error), error.code, threshold=threshold, actual=without)
            penalty = penalty_of(facts)
            quality = max(0.0, graded - penalty)
            judge = {"score": graded, "rationale": bounded(reasoning)}
        score = overall_score(accuracy, quality, progress, weights)
        actual = {
            "score": score,
            "toolAccuracy": accuracy,
            "outputQuality": quality,
            "sequenceProgress": progress,
            "weights": weights,
            "judge": judge,
            "penalty": penalty,
        }
        about: dict[str, Any] = {"score": round(score / 100, 6), "threshold": threshold}
        about |= {"actual": actual, "reasoning": reasoning}
        if score >= least:
            return passed(**about)
        parts = f"tools {100 * accuracy:.4g}, output {quality:.4g}, sequence {100 * progress:.4g}"
        message = f"The score is {score:g}, expected at least {least:g}: {parts}."
        message += f" The judge: {shown(reasoning, 600)}" if self.judged else ""
        return failed("SCORE_BELOW_THRESHOLD", message, expected={"minScore": least}, **about)

    async def _judge(self, transcript: Transcript, context: CheckContext) -> tuple[float, str]:
        """Return the judge's score and reasoning, for all turns together if there are several."""
        judging = Judging(context, texts_of(transcript))
        graded: list[tuple[float, str]] = []
        for turn, wanted in zip(transcript.turns, self.turns or (self.scored,), strict=False):
            data = {
                "query": wanted.query or turn.user,
                "toolCalls": [tool_call(use) for step in turn.steps for use in step.tool_uses],
                "answer": turn.text,
                "mentions": list(wanted.contains[:_HINTS]),
            }
            answer = await judging.ask(_QUALITY, data)
            graded.append((float(answer["score"]), answer["reasoning"]))
        if not self.turns:
            return graded[0]
        reasons = [f"Turn {turn}: {score:g}. {why}" for turn, (score, why) in enumerate(graded, 1)]
        return mean_of_turns([score for score, _ in graded]), "\n".join(reasons)


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """Which of its expectations an output meets; a missing expectation counts as met.

    `contained` and `avoided` are shares of the required and the forbidden texts, `unmatched` is the
    share of patterns that do not match. `fits` is about the JSON Schema.
    """

    query: str
    output: str
    contained: float = 1.0
    avoided: float = 1.0
    unmatched: float = 0.0
    fits: bool = True


def _output_facts(wanted: Scored, text: str) -> OutputFacts:
    patterns, schema = wanted.patterns, wanted.schema
    try:
        fits = schema is None or not schema_issues(schema, find_json(text))
    except (ValueError, UndecidableSchemaError):
        fits = False
    return OutputFacts(
        query=wanted.query,
        output=text,
        contained=_share_of([occurs(each, text) for each in wanted.contains]),
        avoided=_share_of([not occurs(each, text) for each in wanted.not_contains]),
        unmatched=count_unmatched(patterns, text) / len(patterns) if patterns else 0.0,
        fits=fits,
    )


def _share_of(met: Sequence[bool]) -> float:
    return sum(met) / len(met) if met else 1.0


_WORD = re.compile(r"\w{4,}")
_COMMON = frozenset({"what", "when", "where", "which", "that", "this"})
_ASKS_FOR_REASONS = re.compile(r"\b(?:explain|why|how)\b")
_GIVES_REASONS = re.compile(
    r"\b(?:because|since|due to|therefore|thus|hence|causes?|caused|reasons?|as a result|so that"
    r"|leads? to)\b"
)
_UNKNOWING = re.compile(r"(?:sorry,? )?(?:i|we) (?:do not|don.t) know[.!]?")


def tool_accuracy(wanted: Scored, called: Iterable[str]) -> float:
    """Return the share of expected tools and categories that were called; 1 if none is expected."""
    tools, categories, used = set(wanted.tools), wanted.categories.values(), set(called)
    met = len(tools & used) + sum(not used.isdisjoint(category or ()) for category in categories)
    total = len(tools) + len(categories)
    return met / total if total else 1.0


def penalty_of(facts: OutputFacts) -> float:
    """Return the points that unmatched patterns and an unmet JSON Schema cost."""
    return 15 * facts.unmatched + 20 * (not facts.fits)


def deterministic_quality(facts: OutputFacts) -> float:
    """Return the quality of an output without a judge, 0 to 75."""
    words = {word for word in facts.query.lower().split() if len(word) > 3}
    length = 15.0 if len(facts.output) > 10 else 7.5
    if not facts.output:
        length = 0.0
    points = (
        30 * facts.contained
        + 15 * facts.avoided
        + length
        + 15 * (_found(words, facts.output) if words else 0.0)
        + 15 * (1 - facts.unmatched)
        + 10 * facts.fits
    )
    return min(points, 75.0)


def fallback_quality(facts: OutputFacts) -> float:
    """Return the quality that EvalView gives an output after its judge failed, 0 to 100."""
    query, output = facts.query.lower(), facts.output.lower()
    terms = set(_WORD.findall(query)) - _COMMON
    length = 15.0 if len(output) >= 20 else 8.0
    if not output:
        length = 0.0
    elif _UNKNOWING.fullmatch(output.strip()):
        length = 5.0
    points = (
        45 * facts.contained
        + 15 * facts.avoided
        + length
        + (25 * _found(terms, output) if terms else 10)
    )
    if _ASKS_FOR_REASONS.search(query) and not _GIVES_REASONS.search(output):
        points -= 30
    if facts.contained == 0:
        points = min(points, 25.0)
    return round(max(0.0, points - penalty_of(facts)), 2)


def mean_of_turns(scores: Sequence[float]) -> float:
    """Return the weighted mean of scores of turns: the weights are 1, 1.2, 1.4 and so on."""
    weights = [1 + 0.2 * place for place in range(len(scores))]
    weighted = math.fsum(score * weight for score, weight in zip(scores, weights, strict=True))
    return round(weighted / math.fsum(weights), 1)


def overall_score(
    accuracy: float, quality: float, progress: float, weights: Mapping[str, float]
) -> float:
    """Return the score, 0 to 100. Accuracy and progress are from 0 to 1, quality from 0 to 100."""
    score = (
        100 * accuracy * weights["tool_accuracy"]
        + quality * weights["output_quality"]
        + 100 * progress * weights["sequence_correctness"]
    )
    return round(min(score, 100.0), 2)


def _found(words: Collection[str], output: str) -> float:
    lowered = output.lower()
    return sum(word in lowered for word in words) / len(words)


def occurs(wanted: str, text: str) -> bool:
    """Return whether a text contains another one in any case, as EvalView compares."""
    return wanted.lower() in text.lower()
