"""Which tests of two runs are suspected, how they stand, and how repeats are added to them.

A test may be looked at after every repeat, and repeats may be added to both sides.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import comb
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_history import History, Make

from kindlm.history.diff.evidence import judge_pair, settle
from kindlm.history.diff.evidence_values import (
    MOST_ADDED,
    CheckKey,
    CheckPair,
    QualifiedName,
    Side,
    Strength,
    TestPair,
)
from kindlm.history.diff.power import chance_to_settle
from kindlm.history.diff.samples import Attempts
from kindlm.history.settling import AddedRepeats, Suspect, read_added, share_out, suspects
from kindlm.history.statistics.pass_rates import (
    Looks,
    Settlement,
    _cleared,
    large_drop,
    pass_rate_drop,
    settlements,
    together,
)
from kindlm.history.statistics.tables import Counts, fisher_drop, pooled
from kindlm.outcome import Status


def key(name: str) -> QualifiedName:
    return QualifiedName("shop", "orders", name, "gpt")


def pair(
    before: tuple[int, int], after: tuple[int, int], **scores: tuple[tuple[float, ...], ...]
) -> TestPair:
    sides = (
        Side(
            Counts(*counts),
            Status.PASSED if counts[0] == counts[1] else Status.FAILED,
            {name: both[n] for name, both in scores.items()},
        )
        for n, counts in enumerate((before, after))
    )
    return TestPair(*sides)


def standing(pairs: dict[str, TestPair], **added: str) -> dict[str, Settlement | None]:
    """How the suspected tests stand, by name; `added` are repeats that passed (+) or not."""
    made = {"+": (Status.PASSED, "[]"), "-": (Status.FAILED, "[]")}
    more = {
        key(name): AddedRepeats(tuple(map(made.__getitem__, signs)), len(signs))
        for name, signs in added.items()
    }
    known = {key(name): test for name, test in pairs.items()}
    found = suspects(known, {}, more, 0.05, both=False)
    return {suspect.key.name: suspect.standing for suspect in found}


def test_only_tests_that_fell_are_suspected() -> None:
    pairs = {
        "checked otherwise": replace(pair((5, 5), (0, 5)), same_conversations=True),
        "same": pair((5, 5), (5, 5)),
        "rose": pair((3, 5), (5, 5)),
        "fell": pair((10, 10), (2, 3)),
        "broke": pair((10, 10), (0, 10)),
        "judged": pair((5, 5), (5, 5), kind=((0.9,) * 5, (0.8, 0.8, 0.9, 0.7, 0.9))),
        "few": pair((1, 1), (0, 3)),
    }
    assert standing(pairs) == {
        "fell": Settlement.UNDECIDED,
        "broke": Settlement.CONFIRMED,
        "judged": None,
        "few": Settlement.BEFORE_TOO_SMALL,
    }


def test_added_repeats_decide() -> None:
    pairs = {"a": pair((10, 10), (2, 3)), "b": pair((10, 10), (2, 3))}
    assert standing(pairs, a="+" * 20, b="-" * 20) == {
        "a": Settlement.CLEARED,
        "b": Settlement.CONFIRMED,
    }
    # An agent that is a little worse than before stays between the two until there are no more.
    slightly = {"a": pair((20, 20), (4, 5))}
    signs = ("+++-" * MOST_ADDED)[:MOST_ADDED]
    assert standing(slightly, a=signs[:4]) == {"a": Settlement.UNDECIDED}
    assert standing(slightly, a=signs)["a"] in (Settlement.EXHAUSTED, Settlement.CONFIRMED)


def test_repeats_that_fell_are_not_taken_back_by_later_ones() -> None:
    pairs = {"a": pair((10, 10), (2, 3))}
    assert standing(pairs, a="-" * 8) == {"a": Settlement.CONFIRMED}
    assert standing(pairs, a="-" * 8 + "+" * 3) == {"a": Settlement.CONFIRMED}


REFUNDED = CheckKey("contains", "refunded")


def settled_check(signs: str, *, before: int = 0, both: bool = False) -> Suspect:
    """Return a test whose check fell, with added repeats: `+` and `-` decided it, `.` did not.

    None of those added `before` decided it.
    """
    it, made = key("it"), {"+": "null", "-": '"CONTAINS_FAILED"'}
    fell, kept = CheckPair(Counts(10, 10), Counts(2, 3)), CheckPair(Counts(10, 10), Counts(3, 3))
    checks = {REFUNDED: fell, CheckKey("contains", "hi"): kept}
    pairs = {it: replace(pair((0, 10), (0, 3)), checks=checks)}
    texts = (
        f'[["contains","refunded",null,{made[sign]}]]' if sign in made else "[]" for sign in signs
    )
    added = AddedRepeats(tuple((Status.FAILED, text) for text in texts), len(signs))
    more = AddedRepeats(((Status.FAILED, "[]"),) * before, before)
    (found,) = suspects(pairs, {it: more}, {it: added}, 0.05, both=both)
    return found


def test_a_check_that_fell_is_settled_although_its_test_failed_before() -> None:
    assert settled_check("").standing is Settlement.UNDECIDED
    assert settled_check("+" * 20).standing is Settlement.CLEARED
    confirmed = settled_check("-" * 20)
    assert confirmed.standing is Settlement.CONFIRMED
    assert confirmed.checks.keys() == {REFUNDED}
    assert pooled(confirmed.checks[REFUNDED].added) == Counts(0, 20)


def test_a_check_that_too_few_repeats_decide_is_exhausted_with_them() -> None:
    undecided = "++-+" + "." * (MOST_ADDED - 5)
    assert settled_check(undecided).standing is Settlement.UNDECIDED
    full = settled_check(undecided + ".")
    assert (full.standing, full.room) == (Settlement.EXHAUSTED, 0)
    for before, expected in ((MOST_ADDED - 1, Settlement.UNDECIDED), (50, Settlement.EXHAUSTED)):
        both = settled_check(undecided + ".", before=before, both=True)
        assert (both.standing, both.room_before) == (expected, before < MOST_ADDED)


def test_an_added_repeat_that_errored_did_not_pass_its_checks(history: History) -> None:
    run = history.run("more", mode="settled", source_run="after")
    run.suite("orders", tests=[Make.planned("it")])
    run.execution("it", repeat=4, error=("ENGINE_MAX_TURNS", 401, "10 model calls", None))
    run.execution("it", repeat=5, assertions=(Make.passed(),))
    run.execution("it", repeat=6, assertions=(Make.passed(label="another"),))
    run.leave()
    (added,) = read_added(history.reader(), ["after"], Attempts.LAST).values()
    assert added.of(CheckKey("contains", "contains hi")) == (Counts(0, 1), Counts(1, 1))


def test_an_added_repeat_whose_retry_was_cut_off_does_not_count(history: History) -> None:
    run = history.run("more", mode="settled", source_run="after")
    run.suite("orders", tests=[Make.planned("it")])
    run.execution("it", repeat=4, assertions=(Make.failed(),), retried=True)
    run.execution("it", repeat=4, number=1, attempt=2, finished=False)
    run.execution("it", repeat=5, assertions=(Make.passed(),))
    run.leave()
    for attempts in Attempts:
        (added,) = read_added(history.reader(), ["after"], attempts).values()
        assert (added.of(None), added.last) == ((Counts(1, 1),), 5)


def test_added_repeats_without_an_answer_count_only_before_one_with_a_result(
    history: History,
) -> None:
    unanswered = {"error": ("PROVIDER_TIMEOUT", 203, "Too slow.", None), "output": None}
    run = history.run("more", mode="settled", source_run="after")
    run.suite("orders", tests=[Make.planned("it")])
    run.execution("it", repeat=4, **unanswered)
    run.execution("it", repeat=5, assertions=(Make.passed(),))
    run.execution("it", repeat=6, **unanswered)
    run.leave()
    (added,) = read_added(history.reader(), ["after"], Attempts.LAST).values()
    assert (added.of(None), added.last) == ((Counts(0, 1), Counts(1, 1)), 6)


suspect_lists = st.lists(
    st.builds(
        Suspect,
        st.builds(key, st.text(min_size=1, max_size=3)),
        st.integers(0, MOST_ADDED).map(
            lambda n: CheckPair(Counts(5, 5), Counts(3, 5), (Counts(0, 1),) * n)
        ),
        st.sampled_from([None, *Settlement]),
    ),
    unique_by=lambda suspect: suspect.key,
    max_size=6,
)


@given(suspect_lists, st.integers(-1, 40))
def test_repeats_are_shared_out_evenly_within_every_limit(found: list[Suspect], most: int) -> None:
    before, shares = share_out(found, most, both=False)
    assert before == {}
    wanted = {test.key: min(5 - len(test.rate.added) % 5, test.room) for test in found if test.room}
    assert shares.keys() <= wanted.keys()
    assert all(0 < number <= wanted[test] for test, number in shares.items())
    assert sum(shares.values()) == min(max(most, 0), sum(wanted.values()))
    for test, number in wanted.items():
        if shares.get(test, 0) < number:
            assert max(shares.values(), default=0) <= shares.get(test, 0) + 1


def suspect(name: str, before: int, after: int, standing: Settlement) -> Suspect:
    """Return a suspect with so many added repeats on each side."""
    once = (Counts(1, 1),)
    rate = CheckPair(Counts(5, 5), Counts(3, 5), once * after, once * before)
    return Suspect(key(name), rate, standing)


def test_both_sides_get_the_repeats_until_their_next_common_look() -> None:
    open_ = Settlement.UNDECIDED
    found = [
        suspect("new", 0, 0, open_),
        suspect("one side", 0, 7, open_),
        suspect("cut off", 8, 10, open_),
        suspect("behind", 12, 7, open_),
        suspect("nearly full", 48, 50, open_),
        suspect("full", 50, 50, open_),
        suspect("decided", 0, 0, Settlement.CLEARED),
    ]
    before, after = share_out(found, 100, both=True)
    assert {test.name: number for test, number in before.items()} == {
        "new": 5, "one side": 5, "cut off": 2, "nearly full": 2
    }  # fmt: skip
    assert {test.name: number for test, number in after.items()} == {"new": 5, "behind": 3}


def test_no_test_gets_more_repeats_than_it_may() -> None:
    open_ = Settlement.UNDECIDED
    found = [
        suspect("new", 9, 0, open_),
        suspect("nearly full", 0, MOST_ADDED - 2, open_),
        suspect("full", 0, MOST_ADDED, open_),
        suspect("decided", 0, 0, Settlement.CONFIRMED),
    ]
    assert share_out(found, 100, both=False)[1] == {key("new"): 5, key("nearly full"): 2}


def test_each_side_gets_at_most_its_part_of_the_budget() -> None:
    found = [suspect(name, 0, 0, Settlement.UNDECIDED) for name in "ab"]
    for shares in share_out(found, 3, both=True):
        assert shares == {key("a"): 2, key("b"): 1}


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
        (_looks((2, 2), (0, 2)), Settlement.UNDECIDED),
        (_looks((9, 10), (7, 10), (31, 45)), Settlement.BEFORE_TOO_SMALL),
        (_looks((2, 2), (1, 2), (14, 30)), Settlement.BEFORE_TOO_SMALL),
        (_looks((9, 10), (7, 10), (42, 60)), Settlement.EXHAUSTED),
    ],
)
def test_what_a_test_has_come_to(looks: Looks, expected: Settlement) -> None:
    assert settlements([looks, *[_STABLE] * 19], 0.01)[0] is expected


@pytest.mark.parametrize(
    ("added", "expected"), [(30, Settlement.UNDECIDED), (50, Settlement.EXHAUSTED)]
)
@pytest.mark.parametrize("both", [True, False])
def test_a_test_of_two_sides_is_exhausted_once_both_are(
    added: int, expected: Settlement, both: bool
) -> None:
    looks = _looks((9, 10), (7, 10), (42, 60))
    before = [Counts(added * 4 // 5, added)]
    assert settlements([looks], 0.01, [before], both=both) == [expected]


def test_flaky_tests_beside_it_make_confirming_harder() -> None:
    looks = _looks((3, 3), (0, 3), (0, 7))
    flaky = _looks((2, 3), (1, 3))
    assert settlements([looks, *[_STABLE] * 19], 0.01)[0] is Settlement.CONFIRMED
    assert settlements([looks, *[flaky] * 19], 0.01)[0] is Settlement.UNDECIDED


def test_nothing_to_settle() -> None:
    assert settlements([], 0.01) == []


def _side(passed: int, n: int) -> Side:
    return Side(Counts(passed, n), Status.PASSED if passed == n else Status.FAILED)


def _pair(before: int, after: int, n: int) -> TestPair:
    return TestPair(_side(before, n), _side(after, n))


class Settled(NamedTuple):
    confirmed: set[int]
    settlements: dict[int, Settlement]


def _settle(
    dice: np.random.Generator, before: list[float], after: list[float], n: int, *, both: bool
) -> Settled:
    """Add five repeats at a time to each undecided test, on both sides or on one."""
    old, new = dice.binomial(n, before), dice.binomial(n, after)
    tests = {i: _pair(int(old[i]), int(new[i]), n) for i in range(len(before))}
    while True:
        known = settle(tests, both=both)
        found = judge_pair(tests).tests
        sure = {
            key
            for key, test in found.items()
            if test.change == "regressed" and test.strength is Strength.CONFIRMED
        }
        open_tests = [key for key, each in known.items() if each is Settlement.UNDECIDED]
        if not set(open_tests) - sure:
            return Settled(sure, known)
        for key in set(open_tests) - sure:
            pair = tests[key]
            added = Counts(int(dice.binomial(5, after[key])), 5)
            pair = replace(pair, added=(*pair.added, added))
            if both:
                added = Counts(int(dice.binomial(5, before[key])), 5)
                pair = replace(pair, added_before=(*pair.added_before, added))
            tests[key] = pair


def test_the_p_value_counts_all_courses_that_repeats_of_both_sides_may_take() -> None:
    looks = Looks(Counts(2, 2), (Counts(1, 2), Counts(2, 7)), 5, (Counts(2, 2), Counts(6, 7)))
    smallest = looks.smallest_p
    found: dict[int, float] = {}
    for first in product(range(3), range(3)):
        for more in product(range(6), range(6)):
            old, new = (Counts(x, 2) for x in first)
            last = (Counts(x + y, 7) for x, y in zip(first, more, strict=True))
            if min(fisher_drop(old, new), fisher_drop(*last)) <= smallest:
                ways = [comb(2, x) for x in first] + [comb(5, y) for y in more]
                passed = sum(first) + sum(more)
                found[passed] = found.get(passed, 0.0) + float(np.prod(ways))
    worst = max(
        sum(ways * rate**passed * (1 - rate) ** (14 - passed) for passed, ways in found.items())
        for rate in (step / 1000 for step in range(1, 1000))
    )
    assert pass_rate_drop(looks) == pytest.approx(worst, rel=1e-4)


def test_looks_are_taken_when_both_sides_have_equally_many_more() -> None:
    after = Looks(Counts(3, 3), tuple(Counts(2, n) for n in range(3, 17)), 50)
    before = [Counts(1, 1)] * 11
    assert together(after, before) == Looks(
        Counts(3, 3),
        (Counts(2, 3), Counts(2, 8), Counts(2, 13)),
        50,
        (Counts(3, 3), Counts(8, 8), Counts(13, 13)),
    )
    assert together(after, []).grown == (Counts(3, 3),)


def test_the_last_repeats_of_both_sides_are_looked_at_too() -> None:
    after = Looks(Counts(3, 3), tuple(Counts(2, n) for n in range(3, 54)), MOST_ADDED)
    looks = together(after, [Counts(1, 1)] * MOST_ADDED)
    assert (looks.grown[-1], looks.after[-1]) == (Counts(53, 53), Counts(2, 53))


def test_a_large_drop_of_a_test_that_seldom_passes_is_half_of_its_rate() -> None:
    assert large_drop(Counts(9, 9)) == pytest.approx((0.975, 0.675))
    assert large_drop(Counts(1, 4)) == pytest.approx((0.35, 0.175))


@pytest.mark.parametrize("n", [1, 5])
def test_repeating_both_sides_keeps_the_error_rate(n: int) -> None:
    dice = np.random.default_rng(1)
    flaky = list(np.linspace(0.3, 1.0, 10))
    found = [_settle(dice, flaky, flaky, n, both=True) for _ in range(4)]
    assert not any(run.confirmed for run in found)


def test_repeating_both_sides_finds_what_repeats_of_one_side_can_not() -> None:
    dice = np.random.default_rng(2)
    before, after = [0.9] * 5, [0.6] * 5
    alone, both = (
        [len(_settle(dice, before, after, 10, both=sides).confirmed) for _ in range(3)]
        for sides in (False, True)
    )
    assert sum(alone) / 15 < 0.4
    assert sum(both) / 15 > 0.7


def test_the_chance_that_is_reported_is_a_lower_bound() -> None:
    tests = {i: _pair(9, 6, 10) for i in range(5)}
    alone, both = (chance_to_settle(tests, range(5), both=sides) for sides in (False, True))
    assert alone < 0.3
    assert 0.5 < both < 1
    dice = np.random.default_rng(3)
    found = 0
    for _ in range(4):
        course = dict(tests)
        for key, pair in course.items():
            # By how far such a drop is: from 9 of 10 to 30 points below.
            old, new = dice.random(50) < 0.886, dice.random(50) < 0.586
            course[key] = replace(
                pair,
                added=tuple(Counts(int(x), 1) for x in new),
                added_before=tuple(Counts(int(x), 1) for x in old),
            )
        known = settle(course, both=True)
        found += sum(each is Settlement.CONFIRMED for each in known.values())
    assert found / 20 >= both - 0.1


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("n", [3, 10])
@pytest.mark.parametrize("rate", [0.6, 0.95])
def test_at_most_one_of_ten_suspected_tests_that_dropped_by_30_points_is_cleared(
    rate: float, n: int, both: bool
) -> None:
    """Computed over all courses, whatever else may end them."""

    def ways(of: int, p: float) -> list[float]:
        return [comb(of, k) * p**k * (1 - p) ** (of - k) for k in range(of + 1)]

    dropped = rate - 0.3
    ups, downs = ways(5 if both else 0, rate), ways(5, dropped)
    state = {
        (old, new): x * y
        for old, x in enumerate(ways(n, rate))
        for new, y in enumerate(ways(n, dropped))
        if new < old
    }
    suspected, cleared = sum(state.values()), 0.0
    for more in range(0, 51, 5):
        following: dict[tuple[int, int], float] = {}
        for (old, new), chance in state.items():
            if _cleared(Counts(old, n + (more if both else 0)), Counts(new, n + more)):
                cleared += chance
                continue
            for up, x in enumerate(ups):
                for down, y in enumerate(downs):
                    key = old + up, new + down
                    following[key] = following.get(key, 0.0) + chance * x * y
        state = following
    assert cleared / suspected <= 0.1
