"""Judges the difference between two runs: noise, a suspicion, or a confirmed regression.

`docs/how-to/diff.md` ("The status of a test") and `docs/explanation/statistics.md` have the rules.

Two runs of an unchanged agent are called a regression in at most 5 of 100 cases. This probability
is divided: 2.5 % for the pass rates of all tests and checks together, 0.5 % for all scores, 1 % for
the run as a whole, 0.5 % for repeats that are added to AFTER alone, and 0.5 % for those that are
added to both sides. Tests with a single repeat on a side do not count, since nothing can be
confirmed there, nor do tests with the same conversations on both sides, which chance cannot change.

The pass rates of tests and checks form one family. Checks that never fail cost nothing there. Those
of one test fail together, or the test fails with one of them. With such a positive dependence, the
step-up of Benjamini and Hochberg keeps its level (Y. Benjamini, D. Yekutieli, Annals of Statistics
29 (2001), 1165-1188). The simulations in the tests include checks that never fail together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import compress
from operator import itemgetter
from statistics import fmean
from typing import Generic, TypeAlias

from kindlm.dataclass import replace
from kindlm.history.diff.evidence_values import (
    Change,
    CheckKey,
    CheckPair,
    FailOn,
    Key,
    Rate,
    RunEvidence,
    Side,
    Strength,
    TestEvidence,
    TestPair,
    Verdict,
)
from kindlm.history.statistics import pass_rates, tables
from kindlm.history.statistics.pass_rates import Settlement

REGRESSION_THRESHOLD = 0.05
"""How far the mean of a score may fall by default."""

RATES_LEVEL = 0.025
SCORES_LEVEL = 0.005
RUN_LEVEL = 0.01
SETTLED_LEVEL = 0.005
"""For repeats that are added to AFTER alone, and again for those that are added to both sides."""

_CERTAIN = (Strength.CONFIRMED, Strength.EXPECTATIONS)

_ROUNDING = 1e-9
"""A mean may differ from a threshold by rounding alone."""


def judge_pair(
    tests: Mapping[Key, TestPair],
    *,
    fail_on: FailOn = FailOn.DEFAULT,
    regression_threshold: float | None = None,
    asked: Collection[Key] | None = None,
) -> RunEvidence[Key]:
    """Judge all tests of two runs together, and the runs as a whole.

    The result has only the tests that were `asked` for, but they are judged among all tests, since
    they may have been chosen by their results.
    """
    threshold = REGRESSION_THRESHOLD if regression_threshold is None else regression_threshold
    family = _Family(tests, threshold)
    wanted = {key: pair for key, pair in tests.items() if asked is None or key in asked}
    found = {key: family.judge(key, pair) for key, pair in wanted.items()}
    # The runs as a whole are judged by tests with different conversations on both sides, and only
    # by repeated ones, if there are any.
    own = [rate for (key, check), rate in family.rates.items() if check is None and key in wanted]
    repeated = [rate for rate in own if rate.repeated]
    paired = tables.compare_paired([(rate.before, rate.after) for rate in repeated or own])
    worse = better = False
    # Chosen tests do not represent a run.
    if paired is not None and repeated and len(wanted) == len(tests):
        worse, better = paired.p_worse <= RUN_LEVEL, paired.p_better <= RUN_LEVEL
    failing = {
        rule: tuple(key for key, pair in wanted.items() if _fails(pair, found[key], rule))
        for rule in {FailOn.DEFAULT, fail_on}
    }
    changes = {(test.change, test.strength in _CERTAIN) for test in found.values()}
    verdict = Verdict.UNCHANGED
    if worse or failing[FailOn.DEFAULT]:
        verdict = Verdict.REGRESSED
    elif (Change.REGRESSED, False) in changes:
        verdict = Verdict.SUSPECTED
    elif better or (Change.IMPROVED, True) in changes:
        verdict = Verdict.IMPROVED
    fails = fail_on is not FailOn.NEVER and (worse or bool(failing[fail_on]))
    return RunEvidence(found, paired, worse, verdict, failing[fail_on], fails, family.rates)


def settle(tests: Mapping[Key, TestPair], *, both: bool = False) -> dict[Key, Settlement]:
    """Return what repeats have decided about each test that fell, or that has a check that fell.

    Pass all tests of both runs. More repeats of AFTER, or of `both` sides, may be added.
    """
    rates = compared_rates(tests)
    return _of_tests(rates, _settlements(rates, both=both))


def compared_rates(tests: Mapping[Key, TestPair]) -> dict[Rate[Key], CheckPair]:
    """Return all pass rates of tests and checks that chance may have changed."""
    return {
        (key, check): pair
        for key, test in tests.items()
        if not test.same_conversations
        for check, pair in test.rates
    }


def _settlements(
    rates: Mapping[Rate[Key], CheckPair], *, both: bool = False
) -> dict[Rate[Key], Settlement]:
    looks = [pair.looks for pair in rates.values()]
    before = [pair.added_before for pair in rates.values()]
    return dict(
        zip(rates, pass_rates.settlements(looks, SETTLED_LEVEL, before, both=both), strict=True)
    )


def _of_tests(
    rates: Mapping[Rate[Key], CheckPair], settled: Mapping[Rate[Key], Settlement]
) -> dict[Key, Settlement]:
    """Return the settlement of each test: the first one of its pass rates that fell."""
    found: dict[Key, Settlement] = {}
    for rate, settlement in settled.items():
        if rates[rate].fell:
            known = found.get(rate[0], settlement)
            found[rate[0]] = min(known, settlement, key=list(Settlement).index)
    return found


_Scores: TypeAlias = tuple[float, ...]


class _Family(Generic[Key]):
    """The significant changes among the pass rates and the scores of all tests.

    `worse` and `better` have the tests (None), checks, and names of scores whose change is
    confirmed. `settled` has the settlements of tests with added repeats. `level` is the p-value
    that a test that fell needs if no other test changed.
    """

    def __init__(self, tests: Mapping[Key, TestPair], threshold: float) -> None:
        self.threshold = threshold
        self.rates = compared_rates(tests)
        added = {key for key, test in tests.items() if test.added or test.added_before}
        settled = _settlements(self.rates) if added else {}
        self.settled = {rate: found for rate, found in settled.items() if rate[0] in added}
        self.settlements = _of_tests(self.rates, self.settled)
        rates = {rate: (p.before, p.after) for rate, p in self.rates.items() if p.repeated}
        scores = {
            (key, name): pair
            for key, test in tests.items()
            if test.before and test.after and not test.same_conversations
            for name, pair in _score_pairs(test.before, test.after).items()
            if min(map(len, pair)) >= 2
        }
        self.worse = _dropped(rates, scores)
        self.worse |= {
            rate for rate, found in self.settled.items() if found is Settlement.CONFIRMED
        }
        self.better = _dropped(
            {rate: pair[::-1] for rate, pair in rates.items() if rate[1] is None},
            {score: pair[::-1] for score, pair in scores.items()},
        )
        fallen_tests = {key for (key, _), pair in self.rates.items() if pair.fell}
        self.level = RATES_LEVEL / max(1, len(fallen_tests))

    def judge(self, key: Key, pair: TestPair) -> TestEvidence:
        """Return how a test changed, with the strength of the evidence."""
        before, after, rate = pair.before, pair.after, pair.rate
        if after is None:
            return TestEvidence(Change.REMOVED)
        if before is None or rate is None:
            return TestEvidence(Change.ADDED if after.counts.n else Change.NOT_RUN)
        unsure = Strength.SUSPECTED if rate.repeated else Strength.ONE_SAMPLE
        if pair.same_conversations:
            unsure = Strength.EXPECTATIONS
        fails_now = before.passed and not after.passed
        breaks_limit = fails_now and bool(after.broken_limits)
        dropped = _lower_scores(before, after, 0.0 if breaks_limit else self.threshold)
        risen = _lower_scores(after, before, self.threshold)
        checks = self._dropped_checks(key, pair, unsure)
        cleared = self._is_cleared((key, None))
        # The surest result counts, then the worse one.
        change, strength = Change.UNCHANGED, None
        if any((key, fallen) in self.worse for fallen in (None, *dropped, *checks)):
            change, strength = Change.REGRESSED, Strength.CONFIRMED
        elif not breaks_limit and any((key, better) in self.better for better in (None, *risen)):
            change, strength = Change.IMPROVED, Strength.CONFIRMED
        elif ((rate.fell or fails_now) and not cleared) or breaks_limit or dropped or checks:
            change, strength = Change.REGRESSED, unsure
        elif (rate.direction > 0 and not cleared) or risen:
            change, strength = Change.IMPROVED, unsure
        needed = None
        if strength in (Strength.SUSPECTED, Strength.ONE_SAMPLE):
            needed = _repeats_needed(pair, before, after, change, self.level)
        passed = before.passed or any(check.newly_failed for check in pair.checks.values())
        newly_failed = passed and not after.passed
        settlement = self.settlements.get(key)
        return TestEvidence(change, strength, needed, dropped, settlement, checks, newly_failed)

    def _is_cleared(self, rate: Rate[Key]) -> bool:
        return self.settled.get(rate) is Settlement.CLEARED and rate not in self.worse

    def _dropped_checks(
        self, key: Key, pair: TestPair, unsure: Strength
    ) -> dict[CheckKey, CheckPair]:
        """Return the checks that pass less often, except cleared ones, the surest first."""
        found = []
        for check, rate in pair.checks.items():
            if rate.fell and not self._is_cleared((key, check)):
                sure = (key, check) in self.worse
                judged = replace(rate, strength=Strength.CONFIRMED if sure else unsure)
                found.append((not sure, judged.p_value or 0.0, check, judged))
        return {check: judged for _, _, check, judged in sorted(found, key=itemgetter(0, 1))}


def _dropped(
    rates: Mapping[Rate[Key], tuple[tables.Counts, tables.Counts]],
    scores: Mapping[tuple[Key, str], tuple[_Scores, _Scores]],
) -> set[tuple[Key, CheckKey | str | None]]:
    """Return the pass rates and the scores whose drop is confirmed."""
    looks = [pass_rates.Looks(old, (new,)) for old, new in rates.values()]
    p_values = [tables.score_drop(old, new) for old, new in scores.values()]
    return {
        *compress(rates, pass_rates.confirmed_drops(looks, RATES_LEVEL)),
        *compress(scores, tables.discrete_discoveries(p_values, SCORES_LEVEL)),
    }


def _score_pairs(before: Side, after: Side) -> dict[str, tuple[_Scores, _Scores]]:
    old, new = before.scores, after.scores
    return {name: (old[name], new[name]) for name in old if old[name] and new.get(name)}


def _lower_scores(high: Side, low: Side, threshold: float) -> tuple[str, ...]:
    """Return the scores whose mean on the second side is lower by more than a threshold.

    An errored repeat has no score, and counts as 0 on the first side: it must not look too good.
    """
    found = []
    for name, (highs, lows) in _score_pairs(high, low).items():
        lacking = min(high.errored, max(high.counts.n - len(highs), 0))
        if sum(highs) / (len(highs) + lacking) - fmean(lows) > threshold + _ROUNDING:
            found.append(name)
    return tuple(found)


def _repeats_needed(
    pair: TestPair, before: Side, after: Side, change: Change, level: float
) -> int | None:
    """Return the fewest repeats per side that would confirm the change of a pass rate or score.

    It is more than there are: among other tests that changed, they were not enough.
    """
    is_better = change is Change.IMPROVED
    scores = _score_pairs(after, before) if is_better else _score_pairs(before, after)
    needed = [tables.score_repeats_needed(*both, SCORES_LEVEL) for both in scores.values()]
    for check, rate in pair.rates:
        if check is None or (rate.fell and not is_better):
            old, new = (counts.passed / counts.n for counts in (rate.before, rate.all_after))
            high, low = (new, old) if is_better else (old, new)
            needed.append(pass_rates.repeats_needed(high, low, level))
    fewest = min((n for n in needed if n is not None), default=None)
    if fewest is None or pair.rate is None:
        return None
    return max(fewest, min(pair.rate.before.n, pair.rate.all_after.n) + 1)


def _fails(pair: TestPair, evidence: TestEvidence, rule: FailOn) -> bool:
    """Return whether a test makes the exit code 1; a test that did not run never does."""
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
