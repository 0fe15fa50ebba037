"""Fences data in questions to models, and reads the JSON in their answers.

Most data in a question was written by another model, which may try to give instructions. So all of
it is one JSON object between two lines with a random token, written so that neither line can occur
inside it.

If a provider can guarantee the form of an answer, kindlm asks for it. Other models may put a code
fence, a sentence or their thoughts around the object. kindlm accepts that if the object is clear:
there is exactly one, and it is complete.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

from kindlm.strict_json import parse_json, unique_keys
from kindlm.transcript import FinishReason

# What would end the data early; what JSON text allows but a line or an encoding does not; and what
# is not seen, but read all the same.
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
    """Return data as a question holds it, between its boundary lines."""
    return f"<<<KINDLM-DATA-{token}\n{_encoded(data)}\nKINDLM-DATA-{token}>>>"


def _encoded(data: Any) -> str:
    """Return JSON on one line that parses back to `data` and holds no boundary.

    Only characters inside strings are replaced, by the escape sequence JSON has for them: the
    others that are matched never occur in JSON text.
    """
    return _UNSAFE.sub(_escaped, json.dumps(data, ensure_ascii=False))


def _escaped(match: re.Match[str]) -> str:
    text = match[0]
    if len(text) > 1 and text[0] not in "<>":
        return text.replace("-", "\\u002d")
    # Beyond 16 bits, JSON writes a character as the two halves of UTF-16.
    code = text.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[index : index + 4]}" for index in range(0, len(code), 4))


# To look for a long fence takes time with the square of its length; nobody writes one of 100.
_FENCED = re.compile(r"(`{3,99}|~{3,99})[^\n`]*\n(.*)\1", re.DOTALL)
# Some servers leave out where thoughts begin: that is the beginning of the text anyway. Thoughts
# that have no end have no answer behind them.
_THOUGHTS = re.compile(r"\A.*?</think(?:ing)?>|\A\s*<think(?:ing)?>.*", re.DOTALL | re.IGNORECASE)


def unfenced(text: str) -> str | None:
    """Return what stands inside a code fence around a whole text, None if there is no fence."""
    body = text.strip()
    fence = _FENCED.fullmatch(body) if body[:1] in {"`", "~"} else None
    return fence[2] if fence else None


def object_in(text: str, ending: FinishReason | None = None) -> dict[str, Any]:
    """Return the JSON object that a model answered with; `ending` is why its answer ended.

    An answer that was cut off counts only if it is the object alone: words may have led to another.

    Raises:
        ValueError: there is none, one that has a key twice, or it is not clear which one is meant;
            says what is wrong.
    """
    try:
        inside = unfenced(text)
        answer = parse_json(text.strip() if inside is None else inside, unique_keys)
    except ValueError as error:
        is_cut = ending is FinishReason.MAX_TOKENS
        answer = None if is_cut else _among_words(_THOUGHTS.sub("", text, count=1))
        if answer is None:
            raise (error if text.strip() else ValueError("it is empty")) from None
    if not isinstance(answer, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - a wrong answer
    return answer


def _among_words(text: str) -> Any:
    """Return the only object in a text; None if there is none, or more than one.

    Another one that only begins counts, too.
    """
    before, brace, _ = text.partition("{")
    end = text.rfind("}") + 1
    if not brace or before.rstrip().endswith("[") or "{" in text[end:]:
        return None
    try:
        # Two objects with words between them are ambiguous.
        return parse_json(text[len(before) : end], unique_keys)
    except ValueError:
        return None


def why_unread(error: ValueError, ending: FinishReason | None) -> str:
    """Return why an answer cannot be used: what ended it early, if something did."""
    match ending:
        case FinishReason.MAX_TOKENS:
            return "it was cut off at the limit of its tokens"
        case FinishReason.CONTENT_FILTER:
            return "it was refused, or withheld by a filter"
        case _:
            return str(error)
