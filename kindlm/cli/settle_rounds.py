"""The rounds of `kindlm settle`: a few repeats of each open test, until none is open."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rich.console import Console

from kindlm.cli.console import note
from kindlm.cli.settle_request import SettledPair, SettleOptions
from kindlm.history.diff.values import QualifiedName
from kindlm.history.settling import (
    AddedRepeats,
    Suspect,
    read_added,
    share_out,
    share_out_both,
    suspects,
)
from kindlm.plan import Plan, plan_repeats
from kindlm.reports.terminal.settling import counts_text
from kindlm.wording import count

AT_A_TIME = 5
"""Repeats that an open test gets in a round: few enough that little is run in vain."""


def wanted_suspects(
    db: sqlite3.Connection, pair: SettledPair, options: SettleOptions
) -> list[Suspect]:
    """Return the suspected tests that are wanted, by a part of their name, as they stand now."""
    found = suspects(
        pair.tests,
        read_added(db, [pair.after], pair.attempts),
        pair.threshold,
        read_added(db, [pair.before], pair.attempts),
        both=options.grows_both,
    )
    return [test for test in found if _is_wanted(test.key, options.tests)]


class Rounds:
    """Plans one round after the other, by what is recorded of those before, and tells of each.

    Where both sides are repeated, `repeat_before` has another process add so many repeats to BEFORE
    in a round, and returns why that could not be done. `ended` says what ended it although a test
    is open, if not the run itself did; `is_stuck` that nothing can be tested any more.
    """

    def __init__(
        self,
        run: str,
        pair: SettledPair,
        options: SettleOptions,
        console: Console,
        repeat_before: Callable[[sqlite3.Connection, int], Awaitable[str | None]] | None = None,
    ) -> None:
        self._run = run
        self._pair = pair
        self._options = options
        self._console = console
        self._repeat_before = repeat_before
        self._rounds = 0
        self._planned = 0
        self._planned_before = 0
        self._added = -1
        self.ended: str | None = None
        self.is_stuck = False

    async def next(self, db: sqlite3.Connection, plan: Plan) -> Plan | None:
        """Return what is run next of the tests of the plan; None when it is over."""
        while True:
            found = wanted_suspects(db, self._pair, self._options)
            if self._rounds and self._options.of_before:
                return None
            if self._rounds:
                self._tell(found)
            before, after = self._shares(found)
            added = sum(len(test.rate.added) + len(test.rate.added_before) for test in found)
            if any(test.is_open for test in found):
                self.ended = self._end(added, used_up=not (before or after))
            if self.ended or not (before or after):
                return None
            self._added = added
            self._rounds += 1
            if self._repeat_before is not None and before:
                self._planned_before += sum(before.values())
                if why := await self._repeat_before(db, sum(before.values())):
                    self.is_stuck = True
                    self.ended = why
                    return None
            shares = before if self._options.of_before else after
            if shares:
                following = plan_repeats(plan, self._numbers(db, shares), self._planned)
                self._planned += len(following)
                return following

    def _shares(
        self, found: Sequence[Suspect]
    ) -> tuple[dict[QualifiedName, int], dict[QualifiedName, int]]:
        """Return how many repeats of BEFORE and of AFTER are next, as far as the budget goes."""
        most = self._options.max_runs
        left = sys.maxsize if most is None else most - self._planned - self._planned_before
        if self._options.grows_both:
            return share_out_both(found, left if self._options.of_before else left // 2)
        return {}, share_out(found, AT_A_TIME, left)

    def _end(self, added: int, *, used_up: bool) -> str | None:
        """Return why it ends although a test is open; None if it goes on."""
        if added == self._added:
            self.is_stuck = True
            return f"No repeat of the last round was answered: kindlm show {self._run}"
        return f"--max-runs {self._options.max_runs} is used up." if used_up else None

    def _numbers(
        self, db: sqlite3.Connection, shares: Mapping[QualifiedName, int]
    ) -> dict[tuple[str, str, str], range]:
        """Return the numbers of the next repeats: on from those of the run and from what was added.

        Each is a sample of its own.
        """
        added = read_added(db, [self._pair.repeated], self._pair.attempts)
        numbers = {}
        for key, share in shares.items():
            last = max(added.get(key, AddedRepeats()).last, self._repeats(key))
            numbers[key.suite, key.name, key.target] = range(last + 1, last + 1 + share)
        return numbers

    def _repeats(self, key: QualifiedName) -> int:
        """Return how many repeats the run planned of a test."""
        return max(
            test.repeat
            for suite in self._pair.recorded.started.values()
            if (suite.project, suite.suite) == (key.project, key.suite)
            for test in suite.tests
            if (test.name, test.target) == (key.name, key.target)
        )

    def _tell(self, found: Sequence[Suspect]) -> None:
        still = sum(test.is_open for test in found)
        of = count(len(found), "suspected test")
        note(f"Round {self._rounds}: {still:,} of {of} still open", self._console)
        for test in found:
            name = f"{test.key.name} · {test.key.target}"
            standing = "open" if test.is_open else test.standing or "scores only"
            note(f"  {name}  {counts_text(test.rate)}  {standing}", self._console)


def _is_wanted(key: QualifiedName, wanted: Sequence[str]) -> bool:
    names = (key.suite.casefold(), key.name.casefold())
    return not wanted or any(part.casefold() in name for part in wanted for name in names)
