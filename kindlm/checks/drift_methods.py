"""The ways to measure drift: ask a judge, compare embeddings, or count the fields that differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kindlm.checks.echoes import is_echo, readings
from kindlm.checks.field_diff import Field, compare_fields
from kindlm.checks.json_text import parse_json
from kindlm.checks.judge_answers import parse_judgement
from kindlm.checks.judge_prompts import drift_question, new_token
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.model_answers import why_unread
from kindlm.ports import CheckContext
from kindlm.wording import count, excerpt, shown

__all__ = ["Measured", "by_embedding", "by_fields", "by_judge", "cosine_similarity"]

_SCORE = "driftScore"
_DECIMALS = 12
"""Rounds away what arithmetic alone adds: equal vectors have no drift of 1e-16."""
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Measured:
    """A drift in [0, 1], what it rests on, and which fields differ where fields were compared.

    `reasoning` is what a judge said.
    """

    drift: float
    basis: str
    reasoning: str | None = None
    differing: tuple[Field, ...] = ()


async def by_judge(baseline: str, current: str, context: CheckContext) -> Result[Measured]:
    """Ask the judging model once; an answer that is no measurement is an error."""
    reply = await context.ask(drift_question(baseline, current, token=new_token()))
    if isinstance(reply, Err):
        return _unavailable(f"The judge could not be asked: {reply.error.message}", reply.error)
    text = reply.value.text
    try:
        judgement = parse_judgement(text, _SCORE)
    except ValueError as error:
        why = why_unread(error, reply.value.finish_reason)
        return _unavailable(f"The judge measured no drift: {why}. It answered {shown(text)}.")
    given = await context.aside(partial(readings, (baseline, current)))
    if is_echo(_SCORE, judgement.score, judgement.reasoning, given):
        return _unavailable(
            "The judge measured no drift: it repeated a measurement that stands in what it was to "
            f"compare. It answered {shown(text)}."
        )
    return Ok(Measured(judgement.score, "judge", judgement.reasoning))


async def by_embedding(baseline: str, current: str, context: CheckContext) -> Result[Measured]:
    """Compare directions: one minus the cosine of the angle between the embeddings.

    Opposite directions, where that is 2, count as 1.
    """
    if context.embed is None:
        return Err(_no_embedder())
    reply = await context.embed((baseline, current))
    if isinstance(reply, Err):
        if reply.error.code is ErrorCode.PROVIDER_NOT_FOUND:
            return reply
        message = f"The texts could not be embedded: {reply.error.message}"
        return _unavailable(message, reply.error)
    embedding, model = reply.value
    if len(embedding.vectors) != 2 or not _are_finite(embedding.vectors):
        return _unavailable(f"{model} gave no vectors that can be compared.")
    distance = round(1 - cosine_similarity(*embedding.vectors), _DECIMALS)
    return Ok(Measured(min(1.0, max(0.0, distance)), f"embeddings of {model}"))


def by_fields(baseline: str, current: str, fields: Sequence[str] | None) -> Result[Measured]:
    """Count the fields that differ among `fields`, or among all leaves of the baseline.

    A baseline that is no JSON can't be compared. If it is JSON and the output is none, nothing is
    left of it.
    """
    try:
        before = parse_json(baseline).value
    except ValueError as error:
        return Err(_no_json(error))
    try:
        after = parse_json(current).value
    except ValueError as error:
        return Ok(Measured(1.0, f"the output is no JSON, the baseline is: {error}"))
    compared = compare_fields(before, after, fields or None)
    differing = tuple(found for found in compared if found.differs)
    return Ok(Measured(len(differing) / len(compared), _basis(compared), differing=differing))


def cosine_similarity(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors.

    It is 0 where there is no angle: one has length zero, or they have different dimensions.
    """
    # Scaled by the largest member, so that squares neither overflow nor vanish.
    left, right = _scaled(left), _scaled(right)
    length = math.hypot(*left) * math.hypot(*right)
    if len(left) != len(right) or length == 0:
        return 0.0
    return math.fsum(a * b for a, b in zip(left, right, strict=True)) / length


def _scaled(vector: Sequence[float]) -> Sequence[float]:
    largest = max(map(abs, vector), default=0.0)
    return [number / largest for number in vector] if largest else vector


def _are_finite(vectors: Sequence[Sequence[float]]) -> bool:
    return all(math.isfinite(number) for vector in vectors for number in vector)


def _basis(compared: Sequence[Field]) -> str:
    differing = [found.path for found in compared if found.differs]
    text = f"{len(differing)} of {count(len(compared), 'field')} differ" + _named(differing)
    unknown = [found.path for found in compared if found.unknown]
    return f"{text}; neither side has{_named(unknown)[1:]}" if unknown else text


def _named(paths: Sequence[str]) -> str:
    """Return the names of some fields as they follow a word, nothing for none."""
    if not paths:
        return ""
    more = len(paths) - _NAMED
    names = ", ".join(excerpt(path) for path in paths[:_NAMED])
    return f": {names} and {more} more" if more > 0 else f": {names}"


def _unavailable(message: str, cause: KindlmError | None = None) -> Err:
    hint = None if cause is None else cause.hint
    return Err(KindlmError(ErrorCode.JUDGE_EVAL_ERROR, message, hint))


def _no_embedder() -> KindlmError:
    return KindlmError(
        ErrorCode.PROVIDER_NOT_FOUND,
        "No provider of this suite serves embeddings.",
        "Configure one that does, such as openai or ollama, or use method: judge.",
    )


def _no_json(error: ValueError) -> KindlmError:
    return KindlmError(
        ErrorCode.ASSERTION_EVAL_ERROR,
        f"The output of the baseline is no JSON: {error}.",
        "field-diff compares JSON: choose another baseline, or method: judge or embedding.",
    )
