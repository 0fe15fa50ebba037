"""How often `kindlm diff` fails two runs of an unchanged agent, and how often it sees a real drop.

`python tests/shared/false_alarms.py` prints the tables of `docs/explanation/statistics.md`. Runs
are drawn, not run: for each repeat each check passes or not, and the repeat passes if all its
checks do. The counts go through `judge_pair`, which decides the exit code of `kindlm diff`. The
dice are seeded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kindlm.history.diff.evidence import judge_pair
from kindlm.history.diff.evidence_values import CheckKey, CheckPair, RunEvidence, Side, TestPair
from kindlm.history.statistics.tables import Counts
from kindlm.outcome import Status

Rates: TypeAlias = NDArray[np.float64]
"""The pass rates of checks: a row for each test, a column for each check."""

Dependence: TypeAlias = Literal["independent", "together", "mixed", "exclusive"]

DEPENDENCES: tuple[Dependence, ...] = ("independent", "together", "mixed", "exclusive")
"""How the checks of a test depend on one another within a repeat.

Together: they share one number, so that a check fails wherever a more reliable one does. Mixed: a
check shares it in half of the repeats. Exclusive: every second check fails where the others pass.
"""

_TESTS, _CHECKS = 20, 5
_RUNS = 1_000
_REPEATS = (1, 3, 5, 10, 20)


def _spread() -> Rates:
    return np.linspace(0.3, 1.0, _TESTS * _CHECKS).reshape(_CHECKS, _TESTS).T.copy()


def _failing() -> Rates:
    rates = np.full((_TESTS, _CHECKS), 0.8)
    rates[:, 0] = 0.0
    return rates


AGENTS: Mapping[str, Rates] = {
    "every check passes in 95 of 100": np.full((_TESTS, _CHECKS), 0.95),
    "every check passes in 80 of 100": np.full((_TESTS, _CHECKS), 0.8),
    "every check passes in 50 of 100": np.full((_TESTS, _CHECKS), 0.5),
    "checks pass in 30 to 100 of 100": _spread(),
    "one check of each test always fails, others pass in 80 of 100": _failing(),
    "three tests pass in 80 of 100, the others always": np.repeat(
        np.array([0.8] * 3 + [1.0] * (_TESTS - 3))[:, None], _CHECKS, axis=1
    ),
}
"""Agents by the pass rates of the checks of their tests."""


def _outcomes(
    dice: np.random.Generator, rates: Rates, repeats: int, dependence: Dependence
) -> NDArray[np.bool_]:
    """Draw which checks pass: by test, repeat and check."""
    tests, checks = rates.shape
    own = dice.random((tests, repeats, checks))
    shared = np.broadcast_to(dice.random((tests, repeats, 1)), own.shape)
    match dependence:
        case "independent":
            drawn = own
        case "together":
            drawn = shared
        case "mixed":
            drawn = np.where(dice.random(own.shape) < 0.5, shared, own)
        case "exclusive":
            drawn = np.where(np.arange(checks) % 2 == 1, 1 - shared, shared)
    passed: NDArray[np.bool_] = drawn < rates[:, None, :]
    return passed


def drawn_pair(
    dice: np.random.Generator,
    before: Rates,
    after: Rates,
    repeats: int,
    dependence: Dependence,
) -> dict[int, TestPair]:
    """Draw two runs, one at each of the pass rates, as `kindlm diff` reads them."""
    sides = [_outcomes(dice, rates, repeats, dependence) for rates in (before, after)]
    checks = [side.sum(axis=1).tolist() for side in sides]
    tests = [side.all(axis=2).sum(axis=1).tolist() for side in sides]
    return {
        test: TestPair(
            *(_side(passed[test], repeats) for passed in tests),
            checks={
                CheckKey("contains", str(check)): CheckPair(
                    Counts(old, repeats),
                    Counts(new, repeats),
                    newly_failed=new < old == repeats,
                )
                for check, (old, new) in enumerate(
                    zip(checks[0][test], checks[1][test], strict=True)
                )
            },
        )
        for test in range(len(before))
    }


def _side(passed: int, repeats: int) -> Side:
    return Side(Counts(passed, repeats), Status.PASSED if passed == repeats else Status.FAILED)


def share_of_failures(
    rates: Rates, repeats: int, dependence: Dependence, runs: int, seed: int = 1
) -> float:
    """Return the share of comparisons of an unchanged agent that exit with 1."""
    return (
        sum(found.fails for found in _compared(rates, rates, repeats, dependence, runs, seed))
        / runs
    )


class Drop(NamedTuple):
    """One check of one test drops. `test_failed`: another check of its test always fails."""

    before: float
    after: float
    test_failed: bool


def share_found(drop: Drop, repeats: int, runs: int, seed: int = 2) -> float:
    """Return how often a drop of one check of one among twenty tests makes the exit code 1.

    One in four of the other tests is flaky: its checks pass in 90 of 100.
    """
    before = np.ones((_TESTS, _CHECKS))
    before[1 : 1 + _TESTS // 4] = 0.9
    before[0] = 1.0
    before[0, 1] = drop.before
    if drop.test_failed:
        before[0, 0] = 0.0
    after = before.copy()
    after[0, 1] = drop.after
    found = _compared(before, after, repeats, "mixed", runs, seed)
    return sum(0 in evidence.failing for evidence in found) / runs


def _compared(
    before: Rates, after: Rates, repeats: int, dependence: Dependence, runs: int, seed: int
) -> Iterator[RunEvidence[int]]:
    dice = np.random.default_rng(seed)
    for _ in range(runs):
        yield judge_pair(drawn_pair(dice, before, after, repeats, dependence))


_DROPS = (
    Drop(1.0, 0.0, test_failed=True),
    Drop(1.0, 0.5, test_failed=True),
    Drop(1.0, 0.7, test_failed=True),
    Drop(0.9, 0.4, test_failed=True),
    Drop(1.0, 0.0, test_failed=False),
    Drop(1.0, 0.5, test_failed=False),
)


def main() -> None:
    """Print the share of comparisons that exit with 1, for each agent and number of repeats."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else _RUNS
    heads = " | ".join(f"{repeats}" for repeats in _REPEATS)
    sys.stdout.write(
        f"| agent, unchanged | checks | {heads} |\n|---|---|{'---:|' * len(_REPEATS)}\n"
    )
    for name, rates in AGENTS.items():
        for dependence in DEPENDENCES:
            shares = [share_of_failures(rates, n, dependence, runs) for n in _REPEATS]
            cells = " | ".join(f"{share:.1%}" for share in shares)
            sys.stdout.write(f"| {name} | {dependence} | {cells} |\n")
    sys.stdout.write(
        f"\n| drop of one check | its test | {heads} |\n|---|---|{'---:|' * len(_REPEATS)}\n"
    )
    for drop in _DROPS:
        cells = " | ".join(f"{share_found(drop, n, runs):.0%}" for n in _REPEATS)
        test = "failed before" if drop.test_failed else "passed before"
        sys.stdout.write(f"| {drop.before:.0%} → {drop.after:.0%} | {test} | {cells} |\n")


if __name__ == "__main__":
    main()
