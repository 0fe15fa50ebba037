"""What a benchmark gives: figures, each measured several times."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done, and how often.

    `few` and `tests` are two sizes whose difference is the cost of a further test; `events` is the
    size of the long history; `runs` is how often cheap things are measured, `long_runs` how often
    those that take minutes are.
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

    `target` is what the figure is to be, in words; empty where none is set.
    """

    name: str
    values: Sequence[float]
    unit: str
    target: str = ""

    @property
    def median(self) -> float:
        """The value to quote."""
        return statistics.median(self.values)

    @property
    def shown(self) -> str:
        """The median with its unit."""
        return shown(self.median, self.unit)

    @property
    def range(self) -> str:
        """The smallest and the largest value; empty if it was measured once."""
        if len(self.values) == 1:
            return ""
        return f"{shown(min(self.values), self.unit)} – {shown(max(self.values), self.unit)}"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Something that can be measured; `measure` yields its figures as they are known."""

    name: str
    measure: Callable[[Sizes], Iterator[Figure]]


def shown(value: float, unit: str) -> str:
    """Return a value as people read it."""
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
