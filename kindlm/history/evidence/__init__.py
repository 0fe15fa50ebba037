"""What the difference between two runs is worth: noise, a suspicion, or a confirmed regression."""

from __future__ import annotations

from kindlm.history.evidence.judging import judge_pair, settle
from kindlm.history.evidence.values import (
    MOST_ADDED,
    FailOn,
    RunEvidence,
    Side,
    Strength,
    TestEvidence,
    TestPair,
    Verdict,
)

__all__ = [
    "MOST_ADDED",
    "FailOn",
    "RunEvidence",
    "Side",
    "Strength",
    "TestEvidence",
    "TestPair",
    "Verdict",
    "judge_pair",
    "settle",
]
