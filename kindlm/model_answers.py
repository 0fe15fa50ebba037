"""Reading what a model answers that was asked for one JSON object, whoever asked it.

Where a provider can make sure of the form, it is asked to. Where none does, models put a code fence
around the object, a sentence before it or their thoughts, and mean the object all the same. So that
is allowed as long as there is no doubt which object is meant: there is one, and it is whole.
"""

from __future__ import annotations

import re
from typing import Any

from kindlm.strict_json import parse_json, unique_keys
from kindlm.transcript import FinishReason

__all__ = ["object_in", "why_unread"]

_FENCED = re.compile(r"(`{3,}|~{3,})[^\n`]*\n(.*)\1", re.DOTALL)
# Some servers leave out where thoughts begin: that is the beginning of the text anyway. Thoughts
# that have no end have no answer behind them.
_THOUGHTS = re.compile(r"\A.*?</think(?:ing)?>|\A\s*<think(?:ing)?>.*", re.DOTALL | re.IGNORECASE)


def object_in(text: str) -> dict[str, Any]:
    """Return the JSON object that a model answered with.

    Raises:
        ValueError: there is none, one that has a key twice, or it is not clear which one is meant;
            says what is wrong.
    """
    try:
        answer = _whole(text)
    except ValueError as error:
        answer = _among_words(_THOUGHTS.sub("", text, count=1))
        if answer is None:
            raise _told(text, error) from None
    if not isinstance(answer, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - a wrong answer
    return answer


def why_unread(error: ValueError, ending: FinishReason | None) -> str:
    """Return why an answer can not be used: what ended it early, if something did."""
    match ending:
        case FinishReason.MAX_TOKENS:
            return "it was cut off at the limit of its tokens"
        case FinishReason.CONTENT_FILTER:
            return "it was refused, or withheld by a filter"
        case _:
            return str(error)


def _whole(text: str) -> Any:
    """Return the value that a text is, a code fence around it allowed."""
    body = text.strip()
    fence = _FENCED.fullmatch(body) if body[:1] in {"`", "~"} else None
    return parse_json(fence[2] if fence else body, unique_keys)


def _among_words(text: str) -> Any:
    """Return the only object in a text; None if there is none, or more than one."""
    before, brace, _ = text.partition("{")
    if not brace or before.rstrip().endswith("["):
        return None
    try:
        # Two objects with words between them are none.
        return parse_json(text[len(before) : text.rfind("}") + 1], unique_keys)
    except ValueError:
        return None


def _told(text: str, error: ValueError) -> ValueError:
    return error if text.strip() else ValueError("it is empty")
