"""What the difference between two runs is worth: noise, a suspicion, or a confirmed regression.

Pure functions over counts and scores; the rules are those of the design's "Diff between two runs".

Two runs of an unchanged agent are called a regression in at most 5 of 100 cases. That chance is
divided: 2.5 of 100 for the pass rates of all tests and all their checks together, 0.5 for their
scores, 1 for the run as a whole, 0.5 for what repeats confirm that are added to AFTER alone, and
0.5 for those that are added to both sides. Tests with a single repeat on a side have no part in it:
nothing can be confirmed there. Nor have tests whose conversations are the same on both sides: what
changed there was not drawn by chance.

A check is one more pass rate beside that of its test, in one family with all others. Most checks
never fail and cost nothing there. Those of one test fail together, or the test fails where one of
them does: such dependence is positive, under which the step-up of Benjamini and Hochberg keeps its
level (Y. Benjamini, D. Yekutieli, Annals of Statistics 29 (2001), 1165-1188). The simulations in
the tests include checks that exclude each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Generic, TypeAlias

from kindlm.history.evidence.values import (
    Change,
    CheckEvidence,
    CheckKey,
    CheckPair,
    FailOn,
    Key,
    RunEvidence,
    Side,
    Strength,
    TestEvidence,
    TestPair,
    Verdict,
)
from kindlm.history.statistics.intervals import rate_difference_interval
from kindlm.history.statistics.paired import PairedComparison, compare_paired
from kindlm.history.statistics.pass_rates import Looks, confirmed_drops, pass_rate_drop
from kindlm.history.statistics.power import repeats_needed, score_repeats_needed
from kindlm.history.statistics.sequential import Settlement, settlements
from kindlm.history.statistics.tables import DiscreteP, discrete_discoveries, score_drop

__all__ = ["compared_rates", "judge_pair", "settle"]

RATES_LEVEL = 0.025
SCORES_LEVEL = 0.005
RUN_LEVEL = 0.01
SETTLED_LEVEL = 0.005
"""For repeats that are added to AFTER alone, and again for those that are added to both sides."""

_CERTAIN = (Strength.CONFIRMED, Strength.EXPECTATIONS)

_REPEATED = 2
_ROUNDING = 1e-9
"""Means of scores are quotients; they may differ from a threshold by rounding alone."""


def judge_pair(
    tests: Mapping[Key, TestPair],
    *,
    fail_on: FailOn = FailOn.DEFAULT,
    regression_threshold: float = 0.05,
    asked: Collection[Key] | None = None,
) -> RunEvidence[Key]:
    """Judge all tests of two runs together, and the runs as a whole.

    If only some tests are `asked` for, they are what is told and what fails. But they are judged as
    some of all: whoever looks at one of many has chosen it.
    """
    confirmed = _confirmed(tests)
    told = {key: pair for key, pair in tests.items() if asked is None or key in asked}
    found = {key: _judge(key, pair, confirmed, regression_threshold) for key, pair in told.items()}
    paired, worse, better = _compare_runs(told)
    if len(told) < len(tests):
        # For the same reason, tests that were picked stand for no run as a whole.
        worse = better = False
    failing = {
        rule: tuple(key for key, pair in told.items() if _fails(pair, found[key], rule))
        for rule in (FailOn.DEFAULT, fail_on)
    }
    return RunEvidence(
        found,
        paired,
        worse,
        better,
        _verdict(found.values(), worse or bool(failing[FailOn.DEFAULT]), better),
        failing[fail_on],
        fail_on is not FailOn.NEVER and (worse or bool(failing[fail_on])),
    )


def settle(tests: Mapping[Key, TestPair], *, both: bool = False) -> dict[Key, Settlement]:
    """Return, for each test that fell or has a check that fell, what repeats have decided of it.

    Undecided tests want more repeats, of AFTER or of `both` sides. All tests of both runs are
    given, since any of them might have fallen by chance.
    """
    settled = _settlements(tests, both=both)
    found = {key: _settlement(key, test, settled) for key, test in tests.items()}
    return {key: settlement for key, settlement in found.items() if settlement is not None}


_Rate: TypeAlias = tuple[Key, CheckKey | None]
"""A pass rate that is compared: that of a test, or of one of its checks."""


def compared_rates(tests: Mapping[Key, TestPair]) -> dict[_Rate[Key], CheckPair]:
    """Return all pass rates between whose sides there is chance, tests and checks alike."""
    found: dict[_Rate[Key], CheckPair] = {}
    for key, test in tests.items():
        if test.rate and not test.same_conversations:
            found[key, None] = test.rate
            found.update(((key, check), pair) for check, pair in test.checks.items())
    return found


def _settlements(
    tests: Mapping[Key, TestPair], *, both: bool = False
) -> dict[_Rate[Key], Settlement]:
    """Return what repeats have decided of each pass rate."""
    pairs = compared_rates(tests)
    looks = [pair.looks for pair in pairs.values()]
    added_before = [pair.added_before for pair in pairs.values()]
    return dict(zip(pairs, settlements(looks, SETTLED_LEVEL, added_before, both=both), strict=True))


_SETTLED_FIRST = (
    Settlement.CONFIRMED,
    Settlement.UNDECIDED,
    Settlement.EXHAUSTED,
    Settlement.BEFORE_TOO_SMALL,
    Settlement.CLEARED,
)


def _settlement(
    key: Key, test: TestPair, settled: Mapping[_Rate[Key], Settlement]
) -> Settlement | None:
    """Return what a test has come to with its checks; None if neither it nor any of them fell.

    One that is confirmed decides, one that is undecided wants more repeats, and only if all are
    cleared is the test.
    """
    if test.rate is None:
        return None
    fell: list[CheckKey | None] = [None] if test.rate.fell else []
    fell += [check for check, pair in test.checks.items() if pair.fell]
    found = {settled[key, rate] for rate in fell if (key, rate) in settled}
    return min(found, key=_SETTLED_FIRST.index, default=None)


@dataclass(frozen=True, slots=True)
class _Confirmed(Generic[Key]):
    """What stands out among all pass rates, and among all scores of all tests.

    `level` is what each test that fell had to reach if it were the only one that really changed.
    """

    worse: frozenset[_Rate[Key]]
    better: frozenset[Key]
    worse_scores: frozenset[tuple[Key, str]]
    better_scores: frozenset[tuple[Key, str]]
    settled: Mapping[_Rate[Key], Settlement]
    level: float


def _confirmed(tests: Mapping[Key, TestPair]) -> _Confirmed[Key]:
    rates = {
        rate: pair
        for rate, pair in compared_rates(tests).items()
        if min(pair.before.n, pair.after.n) >= _REPEATED
    }
    scores = {
        (key, name): pair
        for key, test in tests.items()
        if not test.same_conversations
        for name, pair in _score_pairs(test).items()
        if min(len(pair[0]), len(pair[1])) >= _REPEATED
    }
    fell = {key for (key, _), pair in compared_rates(tests).items() if pair.fell}
    drops = {rate: Looks(pair.before, (pair.after,)) for rate, pair in rates.items()}
    rises = {
        key: Looks(pair.after, (pair.before,))
        for (key, check), pair in rates.items()
        if check is None
    }
    return _Confirmed(
        _chosen(drops, confirmed_drops(list(drops.values()), RATES_LEVEL)),
        _chosen(rises, confirmed_drops(list(rises.values()), RATES_LEVEL)),
        _discovered({key: score_drop(old, new) for key, (old, new) in scores.items()}),
        _discovered({key: score_drop(new, old) for key, (old, new) in scores.items()}),
        _settlements(tests)
        if any(test.added or test.added_before for test in tests.values())
        else {},
        RATES_LEVEL / max(1, len(fell)),
    )


def _discovered(tests: Mapping[Key, DiscreteP]) -> frozenset[Key]:
    return _chosen(tests, discrete_discoveries(list(tests.values()), SCORES_LEVEL))


def _chosen(keys: Iterable[Key], marks: Iterable[bool]) -> frozenset[Key]:
    return frozenset(key for key, mark in zip(keys, marks, strict=True) if mark)


def _judge(key: Key, pair: TestPair, confirmed: _Confirmed[Key], threshold: float) -> TestEvidence:
    rate = pair.rate
    if rate is None:
        if pair.after is None:
            return TestEvidence(Change.REMOVED)
        return TestEvidence(Change.ADDED if pair.after.counts.n else Change.NOT_RUN)
    settled = confirmed.settled if pair.added or pair.added_before else {}
    sure = _is_sure((key, None), confirmed, settled)
    direction = rate.direction
    if settled.get((key, None)) is Settlement.CLEARED and not sure:
        direction = 0
    dropped, risen = _moved(pair, threshold)
    checks = _dropped_checks(key, pair, confirmed, settled)
    broken = rate.direction == 0 and pair.ended_errored
    # What is sure comes first, then what is worse.
    change, strength = Change.UNCHANGED, None
    if (
        sure
        or any((key, name) in confirmed.worse_scores for name in dropped)
        or any(check.strength is Strength.CONFIRMED for check in checks)
    ):
        change, strength = Change.REGRESSED, Strength.CONFIRMED
    elif key in confirmed.better or any((key, name) in confirmed.better_scores for name in risen):
        change, strength = Change.IMPROVED, Strength.CONFIRMED
    elif direction < 0 or broken or dropped or checks:
        change, strength = Change.REGRESSED, _unsure(pair)
    elif direction > 0 or risen:
        change, strength = Change.IMPROVED, _unsure(pair)
    if pair.same_conversations:
        return TestEvidence(change, strength, dropped_scores=dropped, dropped_checks=checks)
    return TestEvidence(
        change,
        strength,
        _p_value(rate),
        rate_difference_interval(rate.all_before, rate.all_after),
        None
        if strength is None or strength is Strength.CONFIRMED
        else _repeats_needed(pair, rate, change, confirmed.level),
        dropped,
        _settlement(key, pair, settled),
        checks,
        _newly_failed(pair),
    )


def _is_sure(
    rate: _Rate[Key], confirmed: _Confirmed[Key], settled: Mapping[_Rate[Key], Settlement]
) -> bool:
    return rate in confirmed.worse or settled.get(rate) is Settlement.CONFIRMED


def _dropped_checks(
    key: Key,
    pair: TestPair,
    confirmed: _Confirmed[Key],
    settled: Mapping[_Rate[Key], Settlement],
) -> tuple[CheckEvidence, ...]:
    """Return the checks that pass less often and that no added repeats cleared, surest first."""
    found = []
    for check, counts in pair.checks.items():
        sure = _is_sure((key, check), confirmed, settled)
        if not counts.fell or (settled.get((key, check)) is Settlement.CLEARED and not sure):
            continue
        last, chance = counts.all_after, not pair.same_conversations
        found.append(
            CheckEvidence(
                check,
                counts.before,
                last,
                Strength.CONFIRMED if sure else _unsure(pair),
                _p_value(counts) if chance else None,
                rate_difference_interval(counts.all_before, last) if chance else None,
                last.n - counts.after.n,
            )
        )
    return tuple(
        sorted(found, key=lambda one: (one.strength is not Strength.CONFIRMED, one.p_value or 0))
    )


def _newly_failed(pair: TestPair) -> bool:
    """Tell whether the test, or a check of a test that does not pass, failed and passed before."""
    assert pair.before is not None
    assert pair.after is not None
    passed = pair.before.passed or any(
        check.was_met and not check.is_met for check in pair.checks.values()
    )
    return passed and not pair.after.passed


def _moved(pair: TestPair, threshold: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the scores that fell and those that rose, by more than the threshold.

    A repeat that errored has no score, and whatever it would have been is no merit of its side:
    it counts as 0 there where the other side would be called worse for it.
    """
    dropped, risen = [], []
    for name, (old, new) in _score_pairs(pair).items():
        assert pair.before is not None
        assert pair.after is not None
        if fmean(new) - _at_worst(pair.before, old) < -threshold - _ROUNDING:
            dropped.append(name)
        if _at_worst(pair.after, new) - fmean(old) > threshold + _ROUNDING:
            risen.append(name)
    return tuple(dropped), tuple(risen)


def _at_worst(side: Side, scores: Sequence[float]) -> float:
    lacking = min(side.errored, max(side.counts.n - len(scores), 0))
    return sum(scores) / (len(scores) + lacking)


def _unsure(pair: TestPair) -> Strength:
    """Return how sure a change is that nothing confirms."""
    if pair.same_conversations:
        return Strength.EXPECTATIONS
    return Strength.SUSPECTED if pair.repeated else Strength.ONE_SAMPLE


def _fails(pair: TestPair, evidence: TestEvidence, rule: FailOn) -> bool:
    """Tell whether a test makes the exit code 1. What was not run never does."""
    if rule is FailOn.NEVER or evidence.change is Change.NOT_RUN:
        return False
    if evidence.change is Change.REMOVED:
        return pair.before is not None and pair.before.counts.n > 0
    if rule is FailOn.BEHAVIOUR and pair.behaviour_changed:
        return True
    if evidence.change is not Change.REGRESSED:
        return False
    if evidence.strength is Strength.ONE_SAMPLE and rule is not FailOn.ANY:
        return evidence.newly_failed
    return rule is FailOn.ANY or evidence.strength in _CERTAIN


def _compare_runs(tests: Mapping[Key, TestPair]) -> tuple[PairedComparison | None, bool, bool]:
    """Compare the runs as a whole: (how, surely worse, surely better), by repeated tests if any.

    Tests count that had conversations of their own on both sides.
    """
    own = [pair for pair in tests.values() if not pair.same_conversations]
    repeated = [pair.counts for pair in own if pair.counts and pair.repeated]
    paired = compare_paired(repeated or [pair.counts for pair in own if pair.counts])
    if paired is None or not repeated:
        return paired, False, False
    return paired, paired.p_worse <= RUN_LEVEL, paired.p_better <= RUN_LEVEL


def _verdict(tests: Iterable[TestEvidence], regressed: bool, better: bool) -> Verdict:
    if regressed:
        return Verdict.REGRESSED
    found = {(test.change, test.strength in _CERTAIN) for test in tests}
    if (Change.REGRESSED, False) in found:
        return Verdict.SUSPECTED
    improved = better or (Change.IMPROVED, True) in found
    return Verdict.IMPROVED if improved else Verdict.UNCHANGED


def _p_value(rate: CheckPair) -> float | None:
    if rate.direction == 0:
        return None
    worse, better = (rate.before, rate.after) if rate.fell else (rate.after, rate.before)
    return pass_rate_drop(Looks(worse, (better,)))


def _score_pairs(pair: TestPair) -> dict[str, tuple[tuple[float, ...], tuple[float, ...]]]:
    if pair.before is None or pair.after is None:
        return {}
    both = (
        (name, old, pair.after.scores.get(name, ())) for name, old in pair.before.scores.items()
    )
    return {name: (old, new) for name, old, new in both if old and new}


def _repeats_needed(pair: TestPair, rate: CheckPair, change: Change, level: float) -> int | None:
    """Return the fewest repeats per side with which a pass rate or a score would be clear."""
    rates = [(rate.before, rate.all_after)]
    scores = list(_score_pairs(pair).values())
    if change is Change.IMPROVED:
        rates = [(after, before) for before, after in rates]
        scores = [(new, old) for old, new in scores]
    else:
        rates += [(check.before, check.all_after) for check in pair.checks.values() if check.fell]
    needed = [repeats_needed(old.passed / old.n, new.passed / new.n, level) for old, new in rates]
    needed += [score_repeats_needed(old, new, SCORES_LEVEL) for old, new in scores]
    return min((n for n in needed if n is not None), default=None)
