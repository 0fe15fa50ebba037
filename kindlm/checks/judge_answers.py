"""What judging models answer: a score and why, strictly as they were asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kindlm.checks.json_text import parse_json

__all__ = ["Judgement", "parse_judgement"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge answered: a score in [0, 1] and why."""

    score: float
    reasoning: str


def parse_judgement(text: str, member: str = "score") -> Judgement:
    """Read a judge's answer: one JSON object, a code fence around it allowed, and nothing else.

    `member` is the name of the score in it.

    Raises:
        ValueError: it is no judgement; says why. A score is taken as it is or not at all: no
            strings, no booleans, nothing outside [0, 1].
    """
    answer = parse_json(text, unique_keys=True).value
    problem = _problem(answer, member)
    if problem is not None:
        raise ValueError(problem)
    return Judgement(float(answer[member]), answer["reasoning"])


def _problem(answer: Any, member: str) -> str | None:
    """Return why a JSON value is no judgement."""
    if not isinstance(answer, dict):
        return "it is no JSON object"
    score = answer.get(member)
    if isinstance(score, bool) or not isinstance(score, int | float):
        return f"its {member} is no number"
    if not 0 <= score <= 1:
        return f"its {member} is not from 0 to 1"
    if not isinstance(answer.get("reasoning"), str):
        return "its reasoning is no text"
    return None
