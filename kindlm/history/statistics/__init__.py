"""Statistics on counts and scores, each with its formula and where it is from.

Pure functions without random numbers: the same input gives the same output, to the last bit.
"""

from __future__ import annotations

from kindlm.history.statistics.agreement import Agreement, agreement
from kindlm.history.statistics.intervals import (
    mean_difference_interval,
    mean_interval,
    rate_difference_interval,
    wilson_interval,
)
from kindlm.history.statistics.multiplicity import discrete_discoveries
from kindlm.history.statistics.paired import PairedComparison, compare_paired
from kindlm.history.statistics.pass_rates import (
    BLOCK,
    Design,
    Looks,
    confirmed_drops,
    pass_rate_drop,
)
from kindlm.history.statistics.power import power, power_from_here
from kindlm.history.statistics.repeats import (
    Flakiness,
    flakiness,
    pass_at_k,
    pass_hat_k,
    repeats_needed,
    score_repeats_needed,
)
from kindlm.history.statistics.sequential import Settlement, large_drop, settlements, together
from kindlm.history.statistics.tables import Counts, DiscreteP, score_drop

__all__ = [
    "BLOCK",
    "Agreement",
    "Counts",
    "Design",
    "DiscreteP",
    "Flakiness",
    "Looks",
    "PairedComparison",
    "Settlement",
    "agreement",
    "compare_paired",
    "confirmed_drops",
    "discrete_discoveries",
    "flakiness",
    "large_drop",
    "mean_difference_interval",
    "mean_interval",
    "pass_at_k",
    "pass_hat_k",
    "pass_rate_drop",
    "power",
    "power_from_here",
    "rate_difference_interval",
    "repeats_needed",
    "score_drop",
    "score_repeats_needed",
    "settlements",
    "together",
    "wilson_interval",
]
