"""A test that may be looked at after every repeat."""

from __future__ import annotations

from itertools import product

import pytest

from kindlm.history.statistics.pass_rates import Looks, Settlement, pass_rate_drop, settlements
from kindlm.history.statistics.tables import Counts, fisher_drop

_STABLE = Looks(Counts(5, 5), (Counts(5, 5),), 50)


def _looks(before: tuple[int, int], *after: tuple[int, int]) -> Looks:
    return Looks(Counts(*before), tuple(Counts(*look) for look in after), 50)


@pytest.mark.parametrize("last", [Counts(0, 3), Counts(0, 5), Counts(1, 5)])
def test_the_p_value_counts_all_courses_that_repeats_may_take(last: Counts) -> None:
    seen = Looks(Counts(3, 3), (Counts(0, 2), last), more=3)
    smallest = min(fisher_drop(seen.before, look) for look in seen.after)
    found: dict[int, int] = {}
    for course in product((0, 1), repeat=8):
        old = Counts(sum(course[:3]), 3)
        looks = [Counts(sum(course[3 : 3 + n]), n) for n in range(2, 6)]
        if any(fisher_drop(old, look) <= smallest for look in looks):
            found[sum(course)] = found.get(sum(course), 0) + 1
    worst = max(
        sum(ways * rate**passed * (1 - rate) ** (8 - passed) for passed, ways in found.items())
        for rate in (step / 1000 for step in range(1, 1000))
    )
    assert pass_rate_drop(seen) == pytest.approx(worst, rel=1e-4)


def test_more_failures_say_more() -> None:
    p_values = [pass_rate_drop(_looks((5, 5), (2, 5), (2, 5 + n))) for n in range(0, 50, 5)]
    assert p_values == sorted(p_values, reverse=True)


def test_what_was_seen_stays_seen() -> None:
    clear = _looks((5, 5), (1, 5), (1, 10))
    later = _looks((5, 5), (1, 5), (1, 10), (16, 25))
    assert pass_rate_drop(later) == pass_rate_drop(clear)


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        (_looks((5, 5), (2, 5)), Settlement.UNDECIDED),
        (_looks((5, 5), (2, 5), (3, 15)), Settlement.CONFIRMED),
        (_looks((5, 5), (4, 5)), Settlement.UNDECIDED),
        (_looks((5, 5), (4, 5), (14, 15)), Settlement.CLEARED),
        (_looks((1, 1), (0, 1)), Settlement.BEFORE_TOO_SMALL),
        (_looks((2, 2), (1, 2), (14, 30)), Settlement.BEFORE_TOO_SMALL),
        (_looks((9, 10), (7, 10), (42, 60)), Settlement.EXHAUSTED),
    ],
)
def test_what_a_test_has_come_to(looks: Looks, expected: Settlement) -> None:
    assert settlements([looks, *[_STABLE] * 19], 0.01)[0] is expected


def test_flaky_tests_beside_it_make_confirming_harder() -> None:
    looks = _looks((3, 3), (0, 3), (0, 7))
    flaky = _looks((2, 3), (1, 3))
    assert settlements([looks, *[_STABLE] * 19], 0.01)[0] is Settlement.CONFIRMED
    assert settlements([looks, *[flaky] * 19], 0.01)[0] is Settlement.UNDECIDED


def test_nothing_to_settle() -> None:
    assert settlements([], 0.01) == []
