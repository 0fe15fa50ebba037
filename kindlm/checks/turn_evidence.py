"""Places in an earlier turn, as places of the whole conversation.

A check of a turn sees the conversation up to it, or the turn alone. What it calls the output is
then no final text, and where it sees the turn alone it counts tool calls from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from kindlm.outcome import CheckResult, Evidence
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import excerpt

__all__ = ["in_conversation"]

_TOOL = re.compile(r"tool\[(\d+)\](.*)", re.DOTALL)


def in_conversation(
    results: Iterable[CheckResult], expectation: Expectation, transcript: Transcript
) -> list[CheckResult]:
    """Return the results of an expectation with its evidence placed in a whole conversation."""
    turn = expectation.turn
    if turn is None:
        return list(results)
    before = len(transcript.prefix(turn - 1).tool_uses) if expectation.alone else 0
    # The answer of the last turn is the final text.
    text = transcript.turns[turn - 1].text if turn < len(transcript.turns) else None
    return [
        replace(result, evidence=tuple(_placed(one, turn, text, before) for one in result.evidence))
        for result in results
    ]


def _placed(evidence: Evidence, turn: int, text: str | None, before: int) -> Evidence:
    if evidence.source == "output":
        if text is None:
            return evidence
        found = evidence.excerpt or excerpt(text[evidence.start : evidence.end])
        return replace(evidence, source=f"turn[{turn}].output", excerpt=found)
    tool = _TOOL.fullmatch(evidence.source)
    if tool is None:
        return evidence
    return replace(evidence, source=f"tool[{int(tool[1]) + before}]{tool[2]}")
