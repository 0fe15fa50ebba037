"""How much the parts of the weighted score of EvalView 0.8 count: docs/evalview-scores.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Weights", "total_one"]

_TOLERANCE = 0.001


@dataclass(frozen=True, slots=True)
class Weights:
    """How much tools, output and sequence count; together 1.

    Raises:
        ValueError: one is not from 0 to 1, or they are more or less than 1 together.
    """

    tool_accuracy: float = 0.3
    output_quality: float = 0.5
    sequence_correctness: float = 0.2

    def __post_init__(self) -> None:
        parts = (self.tool_accuracy, self.output_quality, self.sequence_correctness)
        if not all(0 <= part <= 1 for part in parts):
            raise ValueError("weights are from 0 to 1")
        if not total_one(parts):
            raise ValueError("weights must sum to 1.0")

    @classmethod
    def of(cls, written: Mapping[str, Any] | None) -> Weights:
        """Return the weights that are written, the usual ones where none are."""
        return cls(**(written or {}))


def total_one(weights: Iterable[float]) -> bool:
    """Tell whether weights are 1 together, but for what rounding takes off them."""
    return math.isclose(math.fsum(weights), 1, rel_tol=0, abs_tol=_TOLERANCE + 1e-12)
