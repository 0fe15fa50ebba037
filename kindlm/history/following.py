"""Following a run while it goes on: what has happened in it since somebody last looked."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

__all__ = ["Happening", "What", "happenings"]

_SINCE = """
SELECT version, type, subject, data FROM event_log
 WHERE stream = 'run/' || :run AND version > :version
   AND type IN ('run.started', 'run.resumed', 'run.extended', 'execution.finished',
                'provider.failed', 'agent.failed', 'run.finished', 'run.interrupted',
                'run.aborted')
 ORDER BY version
"""


class What(Enum):
    """What can happen in a run that somebody who follows it wants to know."""

    PLANNED = "planned"
    ENDED = "ended"
    TRIED_AGAIN = "tried again"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened; `version` is where it stands in the run's stream.

    `execution` is the number of the execution it happened in. `planned` is how many executions
    there are to be, `wait_ms` how long is waited before a call is tried again, `error_code` why.
    """

    version: int
    what: What
    execution: str | None = None
    planned: int | None = None
    wait_ms: float | None = None
    error_code: str | None = None


def happenings(db: sqlite3.Connection, run: str, since: int = 0) -> Iterator[Happening]:
    """Yield what happened in a run after a version of its stream, in order."""
    for row in db.execute(_SINCE, {"run": run, "version": since}):
        data = json.loads(row["data"])
        number = None if row["subject"] is None else str(row["subject"]).partition(".")[0]
        match row["type"]:
            case "run.started" | "run.resumed" | "run.extended":
                yield Happening(row["version"], What.PLANNED, planned=data["planned"])
            case "execution.finished" if data.get("retried"):
                continue  # the execution goes on
            case "execution.finished":
                yield Happening(row["version"], What.ENDED, number)
            case "provider.failed" | "agent.failed":
                if data.get("retry_in_ms") is not None:
                    yield Happening(
                        row["version"],
                        What.TRIED_AGAIN,
                        number,
                        wait_ms=data["retry_in_ms"],
                        error_code=data.get("error_code"),
                    )
            case _:
                yield Happening(row["version"], What.OVER)
