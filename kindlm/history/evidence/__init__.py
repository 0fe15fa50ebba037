"""What the difference between two runs is worth: noise, a suspicion, or a confirmed regression."""

from __future__ import annotations

from kindlm.history.evidence.judging import judge_pair, settle
from kindlm.history.evidence.power import (
    ComparisonPower,
    chance_to_settle,
    comparison_power,
    power_of_baseline,
    power_of_pairs,
)
from kindlm.history.evidence.values import (
    MOST_ADDED,
    Change,
    CheckEvidence,
    CheckKey,
    CheckPair,
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
    "Change",
    "CheckEvidence",
    "CheckKey",
    "CheckPair",
    "ComparisonPower",
    "FailOn",
    "RunEvidence",
    "Side",
    "Strength",
    "TestEvidence",
    "TestPair",
    "Verdict",
    "chance_to_settle",
    "comparison_power",
    "judge_pair",
    "power_of_baseline",
    "power_of_pairs",
    "settle",
]
