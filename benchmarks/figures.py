"""Figures, the results of benchmarks, and the sizes of what is measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes and numbers of measurements.

    Attributes:
        runs: How often a benchmark is measured that takes seconds.
        long_runs: How often a benchmark is measured that takes minutes.
        few: A small number of tests; the difference to `tests` gives the cost of a further test.
        events: The size of the long history.
        tasks: The number of tasks for the store.
    """

    runs: int
    long_runs: int
    few: int
    tests: int
    many: int
    events: int
    tasks: int
    processes: int


FULL = Sizes(
    runs=5,
    long_runs=3,
    few=100,
    tests=1_000,
    many=10_000,
    events=1_000_000,
    tasks=5_000,
    processes=8,
)
SMALL = Sizes(runs=1, long_runs=1, few=1, tests=2, many=3, events=200, tasks=8, processes=2)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity. `unit` is s, ms, bytes, events/s, calls/s, % or ×.

    `target` is in words, "" for none.
    """

    name: str
    values: Sequence[float]
    unit: str
    target: str = ""

    @property
    def median(self) -> float:
        """The median of the values."""
        return statistics.median(self.values)

    @property
    def shown(self) -> str:
        """The median with its unit."""
        return shown(self.median, self.unit)

    @property
    def range(self) -> str:
        """The smallest and the largest value, "" for a single one."""
        if len(self.values) == 1:
            return ""
        return f"{shown(min(self.values), self.unit)} – {shown(max(self.values), self.unit)}"


def shown(value: float, unit: str) -> str:
    """Return a value with its unit, rounded for readers."""
    if unit == "bytes":
        for name, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
            if abs(value) >= size:
                return (
                    f"{value / size:.3g} {name}"
                    if value < 100 * size
                    else f"{value / size:.0f} {name}"
                )
        return f"{value:.0f} B"
    if unit.endswith("/s"):
        return f"{value:,.0f} {unit}"
    if unit == "%":
        return f"{value:.0f} %"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}"
