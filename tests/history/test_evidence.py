"""What the difference between two runs is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kindlm.history.diff.evidence import SCORES_LEVEL, judge_pair, settle
from kindlm.history.diff.evidence_values import (
    MOST_ADDED,
    Change,
    CheckKey,
    CheckPair,
    FailOn,
    RunEvidence,
    Side,
    Strength,
    TestPair,
    Verdict,
)
from kindlm.history.statistics.pass_rates import Settlement
from kindlm.history.statistics.tables import Counts, score_repeats_needed
from kindlm.outcome import Status


def _side(passed: int, n: int, scores: Sequence[float] = ()) -> Side:
    status = Status.PASSED if passed == n else Status.FAILED
    return Side(Counts(passed, n), status, {"tone": tuple(scores)} if scores else {})


def _pair(before: tuple[int, int], after: tuple[int, int], *added: tuple[int, int]) -> TestPair:
    return TestPair(_side(*before), _side(*after), tuple(Counts(*batch) for batch in added))


_STABLE = {f"stable {i}": _pair((3, 3), (3, 3)) for i in range(19)}


def _judge(pair: TestPair, fail_on: FailOn = FailOn.DEFAULT) -> RunEvidence[str]:
    return judge_pair({"it": pair, **_STABLE}, fail_on=fail_on)


@pytest.mark.parametrize(
    ("before", "after", "change", "fails"),
    [
        ((1, 1), (0, 1), Change.REGRESSED, True),
        ((5, 5), (4, 5), Change.REGRESSED, True),
        ((0, 5), (5, 5), Change.IMPROVED, False),
        ((3, 5), (3, 5), Change.UNCHANGED, False),
    ],
)
def test_what_becomes_of_the_same_conversations_is_no_matter_of_chance(
    before: tuple[int, int], after: tuple[int, int], change: Change, fails: bool
) -> None:
    pair = TestPair(_side(*before), _side(*after), same_conversations=True)
    found = judge_pair({"it": pair, "also": pair})
    evidence = found.tests["it"]
    assert evidence.change is change
    assert evidence.strength is (None if change is Change.UNCHANGED else Strength.EXPECTATIONS)
    assert pair.rate is not None
    assert (pair.rate.p_value, pair.rate.interval) == (None, None)
    assert evidence.repeats_to_settle is None
    assert (found.fails, found.paired) == (fails, None)
    assert settle({"it": pair}) == {}


def test_the_same_conversations_are_no_evidence_for_or_against_others() -> None:
    rescored = {i: TestPair(_side(5, 5), _side(0, 5), same_conversations=True) for i in range(50)}
    drawn = {"it": _pair((3, 3), (0, 3)), **_STABLE}
    found = judge_pair({**drawn, **rescored})
    assert found.tests["it"] == judge_pair(drawn).tests["it"]
    assert found.paired == judge_pair(drawn).paired


@pytest.mark.parametrize(
    ("before", "after", "change", "strength", "fails"),
    [
        ((3, 3), (0, 3), Change.REGRESSED, Strength.CONFIRMED, True),
        ((3, 3), (1, 3), Change.REGRESSED, Strength.SUSPECTED, False),
        ((10, 10), (9, 10), Change.REGRESSED, Strength.SUSPECTED, False),
        ((0, 3), (3, 3), Change.IMPROVED, Strength.CONFIRMED, False),
        ((1, 3), (2, 3), Change.IMPROVED, Strength.SUSPECTED, False),
        ((2, 3), (2, 3), Change.UNCHANGED, None, False),
        # Equal, though no float is 1/3.
        ((1, 3), (2, 6), Change.UNCHANGED, None, False),
        ((1, 1), (0, 1), Change.REGRESSED, Strength.ONE_SAMPLE, True),
        ((5, 5), (0, 1), Change.REGRESSED, Strength.ONE_SAMPLE, True),
        # It failed before, too.
        ((4, 5), (0, 1), Change.REGRESSED, Strength.ONE_SAMPLE, False),
        ((0, 1), (1, 1), Change.IMPROVED, Strength.ONE_SAMPLE, False),
        ((2, 2), (0, 2), Change.REGRESSED, Strength.SUSPECTED, False),
        ((0, 0), (0, 3), Change.ADDED, None, False),
        ((3, 3), (0, 0), Change.NOT_RUN, None, False),
    ],
)
def test_what_became_of_a_test(
    before: tuple[int, int],
    after: tuple[int, int],
    change: Change,
    strength: Strength | None,
    fails: bool,
) -> None:
    found = _judge(_pair(before, after))
    evidence = found.tests["it"]
    assert (evidence.change, evidence.strength, found.fails) == (change, strength, fails)
    assert found.failing == (("it",) if fails else ())


def test_a_suspicion_says_how_many_repeats_would_settle_it() -> None:
    pair = _pair((3, 3), (1, 3))
    found = _judge(pair).tests["it"]
    assert pair.rate is not None
    assert pair.rate.p_value is not None
    assert pair.rate.p_value > 0.025
    assert pair.rate.interval is not None
    assert pair.rate.interval[0] < -2 / 3 < pair.rate.interval[1]
    assert found.repeats_to_settle is not None
    assert 5 <= found.repeats_to_settle <= 10


def test_one_sample_says_how_many_repeats_would_settle_it() -> None:
    assert _judge(_pair((1, 1), (0, 1))).tests["it"].repeats_to_settle == 3


def test_a_suspicion_needs_more_repeats_than_there_are() -> None:
    fell, rose = _pair((3, 3), (0, 3)), _pair((0, 3), (3, 3))
    found = judge_pair({"fell": fell, "rose": rose}).tests
    assert {test.strength for test in found.values()} == {Strength.SUSPECTED}
    assert {name: test.repeats_to_settle for name, test in found.items()} == {"fell": 4, "rose": 4}
    fell, rose = _pair((4, 4), (0, 4)), _pair((0, 4), (4, 4))
    found = judge_pair({"fell": fell, "rose": rose}).tests
    assert {test.strength for test in found.values()} == {Strength.CONFIRMED}


def test_what_is_decided_needs_no_repeats() -> None:
    assert _judge(_pair((3, 3), (0, 3))).tests["it"].repeats_to_settle is None
    assert _judge(_pair((2, 3), (2, 3))).tests["it"].repeats_to_settle is None


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (None, _side(3, 3), Change.ADDED),
        (None, _side(0, 3), Change.ADDED),
        (_side(3, 3), None, Change.REMOVED),
        (_side(3, 3), _side(0, 0), Change.NOT_RUN),
    ],
)
@pytest.mark.parametrize("fail_on", list(FailOn))
def test_only_removed_tests_fail_of_those_without_a_partner(
    before: Side | None, after: Side | None, change: Change, fail_on: FailOn
) -> None:
    found = _judge(TestPair(before, after), fail_on)
    assert found.tests["it"].change is change
    assert found.fails is (change is Change.REMOVED and fail_on is not FailOn.NEVER)


def test_a_removed_test_that_never_ran_cannot_be_missed() -> None:
    assert not _judge(TestPair(_side(0, 0), None)).fails


@pytest.mark.parametrize(
    ("pair", "failing"),
    [
        (_pair((3, 3), (0, 3)), {FailOn.DEFAULT, FailOn.ANY, FailOn.BEHAVIOUR}),
        (_pair((3, 3), (2, 3)), {FailOn.ANY}),
        (_pair((4, 5), (0, 1)), {FailOn.ANY}),
        (TestPair(_side(3, 3), _side(3, 3), behaviour_changed=True), {FailOn.BEHAVIOUR}),
        (TestPair(_side(3, 3), _side(0, 0), behaviour_changed=True), set()),
        (_pair((1, 3), (2, 3)), set()),
    ],
)
def test_what_fails_is_what_was_asked_for(pair: TestPair, failing: set[FailOn]) -> None:
    assert {rule for rule in FailOn if _judge(pair, rule).fails} == failing


def test_the_verdict_does_not_depend_on_what_fails() -> None:
    for rule in FailOn:
        assert _judge(_pair((3, 3), (0, 3)), rule).verdict is Verdict.REGRESSED
        assert _judge(_pair((3, 3), (2, 3)), rule).verdict is Verdict.SUSPECTED
        assert _judge(_pair((0, 3), (3, 3)), rule).verdict is Verdict.IMPROVED
        assert _judge(_pair((3, 3), (3, 3)), rule).verdict is Verdict.UNCHANGED


def test_the_runs_as_a_whole_may_regress_though_no_test_does() -> None:
    found = judge_pair({i: _pair((5, 5), (4, 5)) for i in range(12)})
    assert {test.strength for test in found.tests.values()} == {Strength.SUSPECTED}
    assert (found.run_regressed, found.verdict, found.fails) == (True, Verdict.REGRESSED, True)
    assert found.paired is not None
    assert found.paired.change == pytest.approx(-0.2)


def test_runs_without_repeats_confirm_nothing_as_a_whole() -> None:
    found = judge_pair(
        {
            **{i: TestPair(_side(0, 1), _side(0, 1)) for i in range(5)},
            **{i: _pair((0, 1), (1, 1)) for i in range(5, 25)},
        }
    )
    assert found.paired is not None
    assert found.paired.p_better < 0.001
    assert found.verdict is not Verdict.IMPROVED


def test_a_drop_of_scores_is_a_regression_of_a_test_that_passes() -> None:
    high, low = (0.9, 0.95, 0.92, 0.97, 0.91), (0.8, 0.82, 0.81, 0.85, 0.79)
    found = judge_pair({"it": TestPair(_side(5, 5, high), _side(5, 5, low)), **_STABLE})
    evidence = found.tests["it"]
    assert (evidence.change, evidence.strength) == (Change.REGRESSED, Strength.CONFIRMED)
    assert evidence.dropped_scores == ("tone",)
    assert found.fails


@pytest.mark.parametrize(
    ("after", "strength"),
    [
        ((0.9, 0.8, 0.7), Strength.SUSPECTED),
        # By 0.05, which is not more than the threshold.
        ((0.85, 0.85, 0.85), None),
        ((0.95, 0.94, 0.93), None),
    ],
)
def test_a_drop_of_scores_counts_from_the_threshold_on(
    after: tuple[float, ...], strength: Strength | None
) -> None:
    found = judge_pair({"it": TestPair(_side(3, 3, (0.9, 0.9, 0.9)), _side(3, 3, after))})
    assert found.tests["it"].strength is strength
    assert not found.fails


def test_a_rise_of_scores_counts_from_the_threshold_on() -> None:
    low = _side(3, 3, (0.8, 0.8, 0.8))
    for after, change in ((0.85, Change.UNCHANGED), (0.9, Change.IMPROVED)):
        found = judge_pair({"it": TestPair(low, _side(3, 3, (after,) * 3))})
        assert found.tests["it"].change is change


def test_scores_of_the_same_conversations_are_no_matter_of_chance() -> None:
    high, low = _side(5, 5, (0.9,) * 5), _side(5, 5, (0.5,) * 5)
    found = judge_pair({"it": TestPair(high, low, same_conversations=True)})
    assert found.tests["it"].strength is Strength.EXPECTATIONS
    back = judge_pair({"it": TestPair(low, high, same_conversations=True)})
    assert back.tests["it"].strength is Strength.EXPECTATIONS


def test_suspected_scores_say_how_many_repeats_would_settle_them() -> None:
    before, after = (0.9, 0.8, 0.9), (0.8, 0.7, 0.75)
    evidence = judge_pair({"it": TestPair(_side(3, 3, before), _side(3, 3, after))}).tests["it"]
    assert evidence.strength is Strength.SUSPECTED
    assert evidence.repeats_to_settle == score_repeats_needed(before, after, SCORES_LEVEL)
    back = judge_pair({"it": TestPair(_side(3, 3, after), _side(3, 3, before))}).tests["it"]
    assert (back.change, back.repeats_to_settle) == (Change.IMPROVED, evidence.repeats_to_settle)


def test_the_threshold_can_be_chosen() -> None:
    pair = TestPair(_side(3, 3, (0.9, 0.9, 0.9)), _side(3, 3, (0.8, 0.8, 0.8)))
    assert judge_pair({"it": pair}, regression_threshold=0.2).verdict is Verdict.UNCHANGED
    assert judge_pair({"it": pair}).verdict is Verdict.SUSPECTED


def test_one_score_on_a_side_does_not_fail_a_test_that_passes() -> None:
    found = judge_pair({"it": TestPair(_side(1, 1, (0.9,)), _side(1, 1, (0.5,)))})
    assert found.tests["it"].strength is Strength.ONE_SAMPLE
    assert not found.fails


def test_one_score_on_a_side_confirms_nothing_however_many_others_dropped() -> None:
    clear = TestPair(_side(9, 9, (0.9,) * 9), _side(9, 9, (0.1,) * 9))
    single = TestPair(_side(1, 1, (0.9,)), _side(59, 59, (0.5,) * 59))
    found = judge_pair({**dict.fromkeys(range(100), clear), "it": single})
    assert found.tests[0].strength is Strength.CONFIRMED
    assert found.tests["it"].strength is Strength.ONE_SAMPLE


def test_scores_that_one_side_has_are_not_compared() -> None:
    found = judge_pair({"it": TestPair(_side(3, 3, (0.9, 0.9, 0.9)), _side(3, 3))})
    assert found.tests["it"].change is Change.UNCHANGED


def test_added_repeats_confirm_a_suspicion() -> None:
    suspected = _pair((5, 5), (2, 5))
    assert settle({"it": suspected, **_STABLE})["it"] is Settlement.UNDECIDED
    found = _judge(_pair((5, 5), (2, 5), (0, 5), (1, 5)))
    evidence = found.tests["it"]
    assert (evidence.strength, evidence.settlement) == (
        Strength.CONFIRMED,
        Settlement.CONFIRMED,
    )
    assert found.fails


def test_added_repeats_clear_a_suspicion() -> None:
    found = _judge(_pair((5, 5), (4, 5), (5, 5), (5, 5)), FailOn.ANY)
    evidence = found.tests["it"]
    assert (evidence.change, evidence.settlement) == (Change.UNCHANGED, Settlement.CLEARED)
    assert not found.fails


def test_repeats_added_to_a_test_clear_no_other_one() -> None:
    fell = _pair((50, 50), (49, 50))
    assert settle({"it": fell})["it"] is Settlement.CLEARED
    found = judge_pair({"it": fell, "other": _pair((5, 5), (4, 5), (5, 5))}).tests["it"]
    assert (found.change, found.strength, found.settlement) == (
        Change.REGRESSED,
        Strength.SUSPECTED,
        None,
    )


def test_added_repeats_may_leave_it_open() -> None:
    evidence = _judge(_pair((5, 5), (3, 5), (3, 5))).tests["it"]
    assert (evidence.change, evidence.strength) == (Change.REGRESSED, Strength.SUSPECTED)


def test_what_the_runs_confirmed_stays_confirmed() -> None:
    evidence = _judge(_pair((3, 3), (0, 3), (5, 5), (5, 5), (5, 5))).tests["it"]
    assert (evidence.change, evidence.strength) == (Change.REGRESSED, Strength.CONFIRMED)


@pytest.mark.parametrize("before", [(1, 1), (2, 2), (3, 3)])
def test_before_may_have_too_few_repeats_to_ever_decide(before: tuple[int, int]) -> None:
    found = settle({"it": _pair(before, (1, 2), (22, 44)), **_STABLE})
    assert found["it"] is Settlement.BEFORE_TOO_SMALL


@pytest.mark.parametrize(
    ("before", "after", "added", "expected"),
    [
        ((8, 10), (3, 5), (7, 18), Settlement.BEFORE_TOO_SMALL),
        ((9, 10), (3, 5), (7, 18), Settlement.UNDECIDED),
    ],
)
def test_more_repeats_are_worth_it_while_a_likely_rate_of_them_decides(
    before: tuple[int, int], after: tuple[int, int], added: tuple[int, int], expected: Settlement
) -> None:
    assert settle({"it": _pair(before, after, added)})["it"] is expected


@pytest.mark.parametrize(
    ("check", "expected"),
    [((0, 10), Settlement.CONFIRMED), ((10, 10), Settlement.UNDECIDED)],
)
def test_a_test_stands_as_the_surest_drop_of_it_and_its_checks(
    check: tuple[int, int], expected: Settlement
) -> None:
    checks = {
        CheckKey("contains", "refunded"): CheckPair(Counts(10, 10), Counts(*check)),
        CheckKey("contains", "hello"): CheckPair(Counts(50, 50), Counts(49, 50)),
    }
    fell = replace(_pair((10, 10), (2, 3)), checks=checks)
    assert settle({"it": fell})["it"] is expected


def test_repeats_end_some_time() -> None:
    passed = 14 * MOST_ADDED // 20
    found = settle({"it": _pair((9, 10), (7, 10), (passed, MOST_ADDED)), **_STABLE})
    assert found["it"] is Settlement.EXHAUSTED


def test_repeats_beyond_the_planned_ones_are_not_looked_at() -> None:
    planned = _pair((9, 10), (7, 10), (35, MOST_ADDED))
    beyond = _pair((9, 10), (7, 10), (35, MOST_ADDED), (0, 100))
    assert settle({"it": planned, **_STABLE}) == settle({"it": beyond, **_STABLE})


def test_only_tests_that_fell_are_settled() -> None:
    tests = {"fell": _pair((5, 5), (3, 5)), "rose": _pair((1, 5), (4, 5)), **_STABLE}
    tests["gone"] = TestPair(_side(5, 5), None)
    assert set(settle(tests)) == {"fell"}


def test_nothing_to_judge() -> None:
    found = judge_pair({})
    assert (found.verdict, found.fails, found.paired) == (Verdict.UNCHANGED, False, None)
    assert settle({}) == {}


_TOLERATED = Side(Counts(2, 3), Status.PASSED, scores={"mean": (1.0, 1.0, 0.0)})
_ERRORED = Side(Counts(2, 3), Status.ERRORED, scores={"mean": (1.0, 1.0)}, errored=1)


def test_a_repeat_that_errors_in_place_of_failing_makes_nothing_better() -> None:
    evidence = _judge(TestPair(_TOLERATED, _ERRORED)).tests["it"]
    assert (evidence.change, evidence.strength) == (Change.REGRESSED, Strength.SUSPECTED)
    back = _judge(TestPair(_ERRORED, _TOLERATED)).tests["it"]
    assert (back.change, back.dropped_scores) == (Change.UNCHANGED, ())


def test_scores_of_a_branch_that_few_repeats_take_are_compared_as_they_are() -> None:
    before = Side(Counts(3, 3), Status.PASSED, scores={"tone": (1.0,)})
    after = Side(Counts(3, 3), Status.PASSED, scores={"tone": (0.5,)})
    assert _judge(TestPair(before, after)).tests["it"].dropped_scores == ("tone",)


def test_a_repeat_that_errors_after_its_score_counts_with_that_score() -> None:
    errored = Side(Counts(2, 3), Status.ERRORED, scores={"mean": (1.0, 1.0, 0.4)}, errored=1)
    after = Side(Counts(3, 3), Status.PASSED, scores={"mean": (0.7, 0.7, 0.7)})
    assert _judge(TestPair(errored, after)).tests["it"].dropped_scores == ("mean",)
