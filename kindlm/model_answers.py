"""Fences data in questions to models, and reads the JSON in their answers.

Most data in a question was written by another model, which may try to give instructions. So the
data is one JSON object between two lines with a random token, which cannot occur inside it.

Models may put a code fence, a sentence or their thoughts around the object in an answer. kindlm
accepts that if the answer contains exactly one object.
"""

from __future__ import annotations

import json
import re
import secrets
from contextlib import suppress
from itertools import islice
from typing import Any

from kindlm.strict_json import parse_json, parse_json_at, unique_keys
from kindlm.transcript import FinishReason

# The boundaries, characters that break lines or encodings, and invisible characters.
_UNSAFE = re.compile(
    "<<<|>>>|KINDLM-DATA|[\x7f-\x9f\u2028\u2029\ud800-\udfff"
    "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]",
    re.IGNORECASE,
)


def new_token() -> str:
    """Return eight random hexadecimal digits."""
    return secrets.token_hex(4)


def fenced(data: Any, token: str) -> str:
    """Return data between its boundary lines, for a question.

    It is JSON on one line that parses to `data` and contains no boundary: unsafe characters only
    occur in strings, where JSON has escapes for them.
    """
    written = _UNSAFE.sub(_escaped, json.dumps(data, ensure_ascii=False))
    return f"<<<KINDLM-DATA-{token}\n{written}\nKINDLM-DATA-{token}>>>"


def _escaped(match: re.Match[str]) -> str:
    text = match[0]
    if len(text) > 1 and text[0] not in "<>":
        return text.replace("-", "\\u002d")
    # JSON escapes a character beyond 16 bits as two halves of UTF-16.
    code = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[index : index + 4]}" for index in range(0, len(code), 4))


# The length of a fence is limited, since the search takes quadratic time.
_FENCED = re.compile(r"(`{3,99}|~{3,99})[^\n`]*\n(.*)\1", re.DOTALL)
# Some servers leave out the opening tag. Thoughts without an end have no answer after them.
_THOUGHTS = re.compile(r"\A.*?</think(?:ing)?>|\A\s*<think(?:ing)?>.*", re.DOTALL | re.IGNORECASE)

_OPENING = re.compile(r'\{[ \t\n\r]*["}]')
_MAX_OPENINGS = 1_000


def unfenced(text: str) -> str | None:
    """Return the content of a code fence around a whole text, None without a fence."""
    body = text.strip()
    fence = _FENCED.fullmatch(body) if body[:1] in {"`", "~"} else None
    return fence[2] if fence else None


def json_of(text: str) -> Any:
    """Return the JSON value of a whole text, perhaps in a code fence.

    Raises:
        ValueError: The text is not JSON, or repeats a key, so that one value would hide another.
    """
    inside = unfenced(text)
    return parse_json(text if inside is None else inside, unique_keys)


def find_json(text: str) -> Any:
    """Return the JSON value of a text, or the first object among 1,000 places in it.

    Raises `ValueError` if there is none.
    """
    with suppress(ValueError):
        return json_of(text)
    for opening in islice(_OPENING.finditer(text), _MAX_OPENINGS):
        with suppress(ValueError):
            return parse_json_at(text, opening.start())
    raise ValueError("it holds no JSON object")


def object_in(text: str, ending: FinishReason | None = None) -> dict[str, Any]:
    """Return the JSON object in a model's answer; `ending` is why the answer ended.

    An answer that was cut off, or refused, has to be only the object: another one might have
    followed, and a refusal may quote one.

    Raises:
        ValueError: There is no object, more than one, or a key occurs twice.
    """
    try:
        answer = json_of(text)
    except ValueError as error:
        is_cut = ending in (FinishReason.MAX_TOKENS, FinishReason.CONTENT_FILTER)
        answer = None if is_cut else _among_words(_THOUGHTS.sub("", text, count=1))
        if answer is None:
            raise (error if text.strip() else ValueError("it is empty")) from None
    if not isinstance(answer, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - a wrong answer
    return answer


def _among_words(text: str) -> Any:
    """Return the only object in a text; None if there is none, or if another one begins."""
    before, brace, _ = text.partition("{")
    end = text.rfind("}") + 1
    if not brace or before.rstrip().endswith("[") or "{" in text[end:]:
        return None
    try:
        # This does not parse if there are two objects.
        return parse_json(text[len(before) : end], unique_keys)
    except ValueError:
        return None


def why_unread(error: ValueError, ending: FinishReason | None) -> str:
    """Return why an answer cannot be used: why it ended early, or its error."""
    match ending:
        case FinishReason.MAX_TOKENS:
            return "it was cut off at the limit of its tokens"
        case FinishReason.CONTENT_FILTER:
            return "it was refused, or withheld by a filter"
        case _:
            return str(error)
