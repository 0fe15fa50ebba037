"""Repeats of BEFORE, where its agent still is: by a process of their own, in its checkout.

Two versions of an agent have modules, variables and `.env` files of the same names. In a process of
its own, each is what it was.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from kindlm.cli.settle_request import SettledPair, SettleOptions
from kindlm.history.run_view import RunView

# `-P`: a file of that folder must not take the place of a standard module.
_KINDLM = (sys.executable, "-P", "-m", "kindlm", "settle", "--of-before", "--no-progress")

_SINCE = """
SELECT id FROM runs WHERE mode = 'settled' AND source_run = ?
 AND id NOT IN (SELECT value FROM json_each(?))
"""
_ALL = "SELECT json_group_array(id) FROM runs WHERE mode = 'settled' AND source_run = ?"


class RepeatsOfBefore:
    """Has repeats added to BEFORE by the suites in a folder, and knows what they cost.

    Its messages are on our standard error. Where it may cost something, that is half of what both
    sides may.
    """

    def __init__(self, db: sqlite3.Connection, pair: SettledPair, options: SettleOptions) -> None:
        assert options.both is not None
        self._pair = pair
        self._options = options
        self._folder: Path = options.both
        (self._earlier,) = db.execute(_ALL, (pair.before,)).fetchone()

    def check(self, database: Path) -> bool:
        """Return whether the suites in the folder are those that BEFORE ran."""
        command = [*self._command(database), "--dry-run"]
        done = subprocess.run(
            command,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode == 0

    async def add(self, db: sqlite3.Connection, database: Path, repeats: int) -> str | None:
        """Add at most so many repeats; return why that was not possible, None if it was."""
        command = [*self._command(database), "--max-runs", str(repeats)]
        if self._options.max_cost_usd is not None:
            _, spent = self.made(db)
            if spent is None:
                return (
                    "The cost of BEFORE's repeats is unknown, so --max-cost cannot be kept:"
                    " add the price of the model under `prices`."
                )
            if spent >= self._options.max_cost_usd / 2:
                return "BEFORE's half of --max-cost is used up."
            command += ["--max-cost", f"{self._options.max_cost_usd / 2 - spent:.12f}"]
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self._folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            failed = await process.wait() != 0
            return f"BEFORE could not be repeated in {self._folder}." if failed else None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()

    def made(self, db: sqlite3.Connection) -> tuple[int, float | None]:
        """Return how many repeats were added since, and what they cost, None if that is unknown."""
        runs = db.execute(_SINCE, (self._pair.before, self._earlier)).fetchall()
        found = [RunView(db, row[0]).summary for row in runs]
        costs = [None if each.unknown_costs else each.cost_usd or 0.0 for each in found]
        known = [cost for cost in costs if cost is not None]
        return (
            sum(summary.executions.tested for summary in found),
            sum(known) if len(known) == len(costs) else None,
        )

    def _command(self, database: Path) -> list[str]:
        command = [*_KINDLM, self._pair.before, self._pair.after, "--db", str(database)]
        for name in self._options.tests:
            command += ["--test", name]
        if self._options.concurrency is not None:
            command += ["--concurrency", str(self._options.concurrency)]
        return command
