"""Which request parameter a provider's 400 complains about.

Models differ in the parameters they take, and no table of them stays right. So the provider is
asked by trying, and its answer is read: OpenAI names the culprit in `param`, others only in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kindlm.providers.wire import error_message
from kindlm.strict_json import parse_json

__all__ = ["WRITTEN_AS", "refused_parameters"]

WRITTEN_AS = {
    "temperature": "temperature",
    "top_p": "topP",
    "seed": "seed",
    "stop": "stopSequences",
    "stop_sequences": "stopSequences",
    "max_tokens": "maxTokens",
    "max_completion_tokens": "maxTokens",
}
"""Parameters on the wire, and as the user writes them in a model's `params`."""

_REFUSAL_STATUSES = frozenset({400, 422})
_REFUSAL = re.compile(
    r"unsupported|not support|unavailable|not available|deprecated|not allowed|not permitted"
    r"|unknown|unrecognized|unexpected|unrecognised|cannot both|not compatible|incompatible"
    r"|extra inputs|only the default",
    re.IGNORECASE,
)
_TOO_MUCH = re.compile(r"too large|too high|supports at most", re.IGNORECASE)
"""What is taken, but not so much of it."""

_FORMAT = "response_format"
_OF_FORMAT = re.compile(r"(?<!\w)(?:response_format|json_schema|json_object)(?!\w)")
"""Who speaks of it in an error does not take it as it was sent, whatever the words: LM Studio and
vLLM say what it must be, others only name the kind that they do not know."""

_SCANNED_CHARACTERS = 4000


def refused_parameters(status: int, body: str, sent: Iterable[str]) -> frozenset[str]:
    """Return those of the `sent` names that the error says the model does not take."""
    if status not in _REFUSAL_STATUSES:
        return frozenset()
    try:
        parsed = parse_json(body)
    except ValueError:
        parsed = None
    param = _param(parsed)
    if _TOO_MUCH.search((error_message(parsed) or "")[:_SCANNED_CHARACTERS]):
        return frozenset()
    if param is not None:
        return frozenset(name for name in sent if re.split(r"[.\[]", param, maxsplit=1)[0] == name)
    words = (error_message(parsed) or body)[:_SCANNED_CHARACTERS]
    is_refusal = _REFUSAL.search(words) is not None
    return frozenset(
        name
        for name in sent
        if (is_refusal and _names(words, name)) or (name == _FORMAT and _OF_FORMAT.search(words))
    )


def _param(body: Any) -> str | None:
    error = body.get("error") if isinstance(body, dict) else None
    param = error.get("param") if isinstance(error, dict) else None
    return param if isinstance(param, str) and param else None


def _names(words: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", words) is not None
