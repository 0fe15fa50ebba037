"""What judging models answer, taken strictly as it was asked for or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kindlm.model_answers import object_in

__all__ = [
    "Judgement",
    "bool_member",
    "objects_member",
    "parse_judgement",
    "text_member",
    "texts_member",
]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a judge answered: a score in [0, 1] and why."""

    score: float
    reasoning: str


def parse_judgement(text: str, member: str = "score", highest: float = 1) -> Judgement:
    """Read a judge's answer: the JSON object in it.

    `member` is the name of the score in it, which goes from 0 to `highest`.

    Raises:
        ValueError: it is no judgement; says why. A score is taken as it is or not at all: no
            strings, no booleans, nothing outside its range.
    """
    answer = object_in(text)
    score = answer.get(member)
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise ValueError(f"its {member} is no number")  # noqa: TRY004 - a wrong answer
    if not 0 <= score <= highest:
        raise ValueError(f"its {member} is not from 0 to {highest:g}")
    return Judgement(float(score), text_member(answer, "reasoning"))


def text_member(answer: Mapping[str, Any], name: str) -> str:
    """Return a text of an answer; raise `ValueError` if it is none."""
    value = answer.get(name)
    if not isinstance(value, str):
        raise ValueError(f"its {name} is no text")  # noqa: TRY004 - a wrong answer
    return value


def bool_member(answer: Mapping[str, Any], name: str) -> bool:
    """Return a truth value of an answer; raise `ValueError` if it is none."""
    value = answer.get(name)
    if not isinstance(value, bool):
        raise ValueError(f"its {name} is neither true nor false")  # noqa: TRY004 - a wrong answer
    return value


def objects_member(answer: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects of an answer; raise `ValueError` if it is none."""
    value = answer.get(name)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError(f"its {name} is no list of objects")
    return value


def texts_member(answer: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of texts of an answer; raise `ValueError` if it is none."""
    value = answer.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"its {name} is no list of texts")
    return value
