"""The check of a sequence of tools: how far the calls follow it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kindlm.checks.registry import Reads, check
from kindlm.checks.results import failed, passed
from kindlm.outcome import CheckResult, FailureCode
from kindlm.suite import Expectation
from kindlm.transcript import Transcript
from kindlm.wording import bounded, shown

__all__ = ["SequenceMode", "SequenceProgress", "sequence_progress", "tool_sequence"]

_DECIMALS = 4


class SequenceMode(StrEnum):
    """How the calls have to follow a sequence."""

    EXACT = "exact"
    SUBSEQUENCE = "subsequence"
    UNORDERED = "unordered"


@dataclass(frozen=True, slots=True)
class SequenceProgress:
    """How far calls follow a sequence.

    `share` is the part of the sequence that was called, from 0 to 1, as a weighted score counts
    it. `holds` tells whether the expectation is met. `missing` names a tool of the sequence that
    was not called where it had to be, if there is one.
    """

    share: float
    holds: bool
    missing: str | None = None


@check("tool_sequence", about_tools=True, reads=Reads.NUMBERS_AND_NAMES)
def tool_sequence(expectation: Expectation, transcript: Transcript) -> list[CheckResult]:
    """The tools were called in a sequence; the score is how much of it was.

    Params: `sequence`, the names of tools; `mode`:

    - exact: these calls and no others, in this order.
    - subsequence: these calls in this order; others may come before, after and between.
    - unordered: these calls in any order, as often as they are named; others may be made.
    """
    sequence: list[str] = list(expectation.params["sequence"])
    mode = SequenceMode(expectation.params.get("mode") or SequenceMode.SUBSEQUENCE)
    called = [use.call.name for use in transcript.tool_uses]
    progress = sequence_progress(sequence, called, mode)
    if progress.holds:
        return [passed(expectation)]
    problem = f"{shown(progress.missing)} is missing" if progress.missing else "there are others"
    message = (
        f"The tools were not called in the sequence {shown(sequence)} ({mode}): {problem}, "
        f"progress {progress.share:g}; called were {shown(called)}."
    )
    return [
        failed(
            expectation,
            FailureCode.TOOL_SEQUENCE_WRONG,
            message,
            expected={"sequence": bounded(sequence), "mode": mode.value},
            actual=bounded(called),
            score=progress.share,
        )
    ]


def sequence_progress(
    expected: Sequence[str], called: Sequence[str], mode: SequenceMode
) -> SequenceProgress:
    """Return how far the calls follow a sequence; an empty one is followed by all calls."""
    match mode:
        case SequenceMode.EXACT:
            return _exact(expected, called)
        case SequenceMode.UNORDERED:
            return _unordered(expected, called)
    return _subsequence(expected, called)


def _exact(expected: Sequence[str], called: Sequence[str]) -> SequenceProgress:
    places = [
        place
        for place, tool in enumerate(expected)
        if place >= len(called) or called[place] != tool
    ]
    missing = expected[places[0]] if places else None
    holds = not places and (len(called) == len(expected) or not expected)
    return SequenceProgress(_share(len(expected) - len(places), len(expected)), holds, missing)


def _subsequence(expected: Sequence[str], called: Sequence[str]) -> SequenceProgress:
    found = 0
    for tool in called:
        if found < len(expected) and tool == expected[found]:
            found += 1
    missing = expected[found] if found < len(expected) else None
    return SequenceProgress(_share(found, len(expected)), missing is None, missing)


def _unordered(expected: Sequence[str], called: Sequence[str]) -> SequenceProgress:
    lacking = Counter(expected) - Counter(called)
    found = len(expected) - lacking.total()
    missing = next((tool for tool in expected if lacking[tool]), None)
    return SequenceProgress(_share(found, len(expected)), missing is None, missing)


def _share(found: int, total: int) -> float:
    return round(found / total, _DECIMALS) if total else 1.0
