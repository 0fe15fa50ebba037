"""Data in a question to a model: fenced off, so that it stays data.

What a model is asked about was often written by another one, which may try to talk to it. So all of
it is data: one JSON object between two lines that hold a random token, and written in such a way
that neither line can occur inside it.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

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
