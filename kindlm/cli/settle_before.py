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

__all__ = ["RepeatsOfBefore"]

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

    async def add(self, db: sqlite3.Connection, database: Path, repeats: int) -> bool:
        """Add at most so many repeats; return whether that went well."""
        command = [*self._command(database), "--max-runs", str(repeats)]
        if self._options.max_cost_usd is not None:
            left = self._options.max_cost_usd / 2 - self.made(db)[1]
            if left <= 0:
                return False
            command += ["--max-cost", f"{left:.12f}"]
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self._folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            return await process.wait() == 0
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()

    def made(self, db: sqlite3.Connection) -> tuple[int, float]:
        """Return how many repeats were added since, and what they cost."""
        runs = db.execute(_SINCE, (self._pair.before, self._earlier)).fetchall()
        found = [RunView(db, row[0]).summary for row in runs]
        return (
            sum(summary.executions.tested for summary in found),
            sum(summary.cost_usd or 0.0 for summary in found),
        )

    def _command(self, database: Path) -> list[str]:
        command = [*_KINDLM, self._pair.before, self._pair.after, "--db", str(database)]
        for name in self._options.tests:
            command += ["--test", name]
        if self._options.concurrency is not None:
            command += ["--concurrency", str(self._options.concurrency)]
        return command
