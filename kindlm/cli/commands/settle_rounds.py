"""The rounds of `kindlm settle`: a few repeats of each open test, until no test is open.

A separate process repeats BEFORE, in the checkout of its agent, since two versions of an agent have
modules, variables and `.env` files of the same names.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kindlm.cli.commands.settle import SettleOptions
from kindlm.cli.console import note, typed
from kindlm.cli.options import given_again
from kindlm.engine.stop import Stop
from kindlm.history.diff.evidence_values import CheckPair, TestPair
from kindlm.history.diff.samples import Attempts
from kindlm.history.run_view import RunView
from kindlm.history.settling import AddedRepeats, Suspect, read_added, share_out, suspects
from kindlm.keeper import KINDLM
from kindlm.money import exceeds
from kindlm.plan import Plan, QualifiedName, plan_repeats
from kindlm.recording.resumption import Unfinished
from kindlm.reports.terminal.settled_tests import counts_text
from kindlm.wording import count

_ADDED = "SELECT id FROM runs WHERE mode = 'settled' AND source_run = ?"


@dataclass(frozen=True, slots=True)
class SettledPair:
    """Two runs to settle by the options of the command.

    `tests` are those that both ran, and `recorded` is the record of the run that is repeated.
    `attempts` are the attempts that count, if executions were rerun.
    """

    options: SettleOptions
    before: str
    after: str
    attempts: Attempts
    tests: Mapping[QualifiedName, TestPair]
    threshold: float | None
    recorded: Unfinished

    def suspects(self, db: sqlite3.Connection) -> list[Suspect]:
        """Return the current state of suspected tests that `--test` selects."""
        found = suspects(
            self.tests,
            read_added(db, [self.before], self.attempts),
            read_added(db, [self.after], self.attempts),
            self.threshold,
            both=self.options.grows_both,
        )
        parts = self.options.tests or [""]
        return [test for test in found if any(is_named(test.key, part) for part in parts)]


def is_named(test: QualifiedName, part: str) -> bool:
    """Return whether the name of a test, or that of its suite, contains a text."""
    return any(part.casefold() in name.casefold() for name in (test.suite, test.name))


@dataclass(slots=True)
class Rounds:
    """Plans each round from the recorded results of earlier rounds, and reports it.

    `of_before` also repeats BEFORE. `ended` is why the rounds ended with an open test, unless the
    run was stopped. `is_stuck` means that no further repeat can be run.
    """

    run: str
    database: Path
    pair: SettledPair
    of_before: RepeatsOfBefore | None
    ended: str | None = field(default=None, init=False)
    is_stuck: bool = field(default=False, init=False)
    _rounds: int = field(default=0, init=False)
    _planned: int = field(default=0, init=False)
    _planned_before: int = field(default=0, init=False)
    _added: int = field(default=-1, init=False)

    async def next(self, db: sqlite3.Connection, plan: Plan, stop: Stop) -> Plan | None:
        """Return the next repeats of the tests of the plan; None at the end."""
        options = self.pair.options
        is_of_before, both = options.of_before, options.grows_both
        while not (self._rounds and is_of_before):
            found = self.pair.suspects(db)
            if self._rounds:
                self._note_round(found)
            left = (options.max_runs or sys.maxsize) - self._planned - self._planned_before
            most = left // 2 if both and not is_of_before else left
            before, after = share_out(found, most, both=both)
            earlier, self._added = self._added, sum(_added(test.rate) for test in found)
            if any(test.is_open for test in found):
                if self._added == earlier:
                    self.is_stuck = True
                    show = f"kindlm show {self.run}"
                    self.ended = typed(f"No repeat of the last round was answered: {show}")
                elif not (before or after):
                    self.ended = f"--max-runs {options.max_runs} is used up."
            if self.ended or not (before or after):
                break
            self._rounds += 1
            if self.of_before is not None and before:
                repeats = sum(before.values())
                self._planned_before += repeats
                self.ended = await self.of_before.add(db, self.database, repeats, stop)
                self.is_stuck = self.ended is not None
                if self.is_stuck:
                    break
            if shares := before if is_of_before else after:
                following = plan_repeats(plan, self._numbers(db, shares), self._planned)
                self._planned += len(following)
                return following
        return None

    def _note_round(self, found: Sequence[Suspect]) -> None:
        still = sum(test.is_open for test in found)
        of = count(len(found), "suspected test")
        note(f"Round {self._rounds}: {still:,} of {of} still open")
        for test in found:
            name = f"{test.key.name} · {test.key.target}"
            standing = "open" if test.is_open else test.standing or "scores only"
            note(f"  {name}  {counts_text(test.rate)}  {standing}")

    def _numbers(
        self, db: sqlite3.Connection, shares: Mapping[QualifiedName, int]
    ) -> dict[QualifiedName, range]:
        """Return the numbers of the next repeats, after those planned in the run and added since.

        No number is used twice, so that each repeat is an independent sample.
        """
        recorded = self.pair.recorded
        added = read_added(db, [recorded.run], self.pair.attempts)
        last: dict[QualifiedName, int] = {
            key: added.get(key, AddedRepeats()).last for key in shares
        }
        for suite in recorded.started.values():
            for test in suite.tests:
                key = QualifiedName(suite.project, suite.suite, test.name, test.target)
                if key in last:
                    last[key] = max(last[key], test.repeat)
        return {key: range(last[key] + 1, last[key] + 1 + share) for key, share in shares.items()}


def _added(rate: CheckPair) -> int:
    return len(rate.added) + len(rate.added_before)


class RepeatsOfBefore:
    """Adds repeats to BEFORE with the suites in a folder, for half of the cost limit."""

    def __init__(self, db: sqlite3.Connection, pair: SettledPair, project: str) -> None:
        # Without a configured name, the project would be named after the folder of the checkout.
        self._environ = {**os.environ, "KINDLM_PROJECT": project}
        self._pair = pair
        self._options = pair.options
        self._earlier = {run for (run,) in db.execute(_ADDED, (pair.before,))}

    def check(self, database: Path) -> bool:
        """Return whether the folder holds the suites that BEFORE ran."""
        done = subprocess.run(
            [*self._command(database), "--dry-run"],
            cwd=self._options.both,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode == 0

    async def add(
        self, db: sqlite3.Connection, database: Path, repeats: int, stop: Stop
    ) -> str | None:
        """Add at most so many repeats; return why that failed, else None.

        The process that adds them stops if this one does.
        """
        command = [*self._command(database), "--max-runs", str(repeats)]
        if (limit := self._options.max_cost_usd) is not None:
            _, spent = self.made(db)
            if spent is None:
                return (
                    "The cost of BEFORE's repeats is unknown, so --max-cost cannot be kept:"
                    " add the price of the model under `prices`."
                )
            if not exceeds(limit / 2, spent):
                return "BEFORE's half of --max-cost is used up."
            command += ["--max-cost", f"{limit / 2 - spent:.12f}"]
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self._options.both,
            env=self._environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches this process only
        )
        ended = asyncio.ensure_future(process.wait())
        for asked in (stop.requested, stop.at_once):
            waiting = asyncio.ensure_future(asked.wait())
            await asyncio.wait((ended, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if process.returncode is None:
                process.terminate()
        failed = await ended != 0
        return f"BEFORE could not be repeated in {self._options.both}." if failed else None

    def made(self, db: sqlite3.Connection) -> tuple[int, float | None]:
        """Return how many repeats were added to BEFORE, and their cost; None if it is unknown."""
        runs = {run for (run,) in db.execute(_ADDED, (self._pair.before,))} - self._earlier
        found = [RunView(db, run).summary for run in runs]
        costs = [each.paid.whole_usd for each in found]
        cost = None if None in costs else sum(filter(None, costs))
        return sum(summary.executions.tested for summary in found), cost

    def _command(self, database: Path) -> list[str]:
        given = given_again(self._options, ("tests", "concurrency"))
        command = [*KINDLM, "settle", "--of-before", "--no-progress", *given]
        return [*command, self._pair.before, self._pair.after, "--db", str(database)]
