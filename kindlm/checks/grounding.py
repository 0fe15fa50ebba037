"""Signs, found without a judge, that an answer has nothing to go by."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kindlm.checks.claims import Issue
from kindlm.outcome import Evidence
from kindlm.transcript import ToolUse, Transcript
from kindlm.wording import shown

__all__ = ["grounding_issues"]

_LONG = 100
_REFERS = re.compile(r"\b(?:based on|according to)\b", re.IGNORECASE)
_ACKNOWLEDGES = re.compile(
    r"\b(?:error|fail(?:s|ed|ure)?|unable|can(?:not|.t)|could(?: not|n.t)|unavailable|problem"
    r"|unfortunately|timed out|did(?: not|n.t) work)\b",
    re.IGNORECASE,
)


def grounding_issues(transcript: Transcript, *, of_last_turn: bool = False) -> tuple[Issue, ...]:
    """Return the signs in a conversation.

    A tool failed, no later call of it went well, and the answer does not say so. Or an answer of
    more than 100 characters is "based on" something, or "according to" it, and no tool was called.

    What is asked `of_last_turn` is about that turn: tools that failed before it are a matter of
    the answers before, but they may have said what this one rests on.
    """
    first = len(transcript.prefix(len(transcript.turns) - 1).tool_uses) if of_last_turn else 0
    return (*_unacknowledged(transcript, first), *_without_source(transcript))


def _unacknowledged(transcript: Transcript, first: int) -> Iterator[Issue]:
    """Yield the calls, from the one with the number `first` on, that failed unacknowledged."""
    if not transcript.text or _ACKNOWLEDGES.search(transcript.text):
        return
    failing: dict[str, int] = {}
    for index, use in enumerate(transcript.tool_uses[first:], start=first):
        if _has_failed(use):
            failing.setdefault(use.call.name, index)
        else:
            failing.pop(use.call.name, None)
    for tool, index in failing.items():
        yield Issue(f"call {index}, {shown(tool)}, failed, and the answer does not say so")


def _without_source(transcript: Transcript) -> Iterator[Issue]:
    text = transcript.text
    if len(text) <= _LONG or transcript.tool_uses:
        return
    found = _REFERS.search(text)
    if found is not None:
        where = Evidence("output", *found.span(), "no source")
        yield Issue(f"the answer says {shown(found[0])}, and no tool was called", where)


def _has_failed(use: ToolUse) -> bool:
    """Tell whether a response says that the tool failed."""
    response = use.response
    if not isinstance(response, Mapping):
        return False
    return (
        bool(response.get("error"))
        or response.get("success") is False
        or response.get("ok") is False
    )
