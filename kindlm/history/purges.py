"""Which streams hold what was said in runs, and which of them were purged before."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import NamedTuple

__all__ = ["PurgedStreams", "has_news", "streams_to_purge"]

# One that erased only what matched a pattern left the rest of the run.
_PURGES = """
SELECT run.value AS run, max(log.at) AS at
  FROM event_log log, json_each(log.data, '$.runs') run
 WHERE log.type = 'contents.purged' AND json_extract(log.data, '$.matching') IS NOT 1
 GROUP BY run.value
"""

_REVIEWS = """
SELECT stream, json_extract(data, '$.run') AS run, max(at) AS at
  FROM event_log
 WHERE type = 'review.recorded'
 GROUP BY stream, run
"""

_ENDS = "SELECT stream, max(at) AS at FROM event_log WHERE stream GLOB 'run/*' GROUP BY stream"


class PurgedStreams(NamedTuple):
    """Streams in the terms of `EventLog.erasable`.

    Attributes:
        chosen: Those of some runs, and the journals with what people noted of them.
        forgotten: Those that were purged before → until when, UTC, ISO 8601.
    """

    chosen: list[str]
    forgotten: dict[str, str]


def streams_to_purge(db: sqlite3.Connection, runs: Collection[str]) -> PurgedStreams:
    """Return the streams of runs, and those that keep no text for their own sake any more.

    A journal that also notes something of a run that is not purged is left alone.
    """
    chosen = {*runs}
    purged = _purged(db)
    streams = [f"run/{run}" for run in runs]
    forgotten = {f"run/{run}": at for run, at in purged.items() if run not in chosen}
    for journal, noted in _reviews(db).items():
        open_ = {run for run, at in noted.items() if at > purged.get(run, "")}
        if chosen & noted.keys() and open_ <= chosen:
            streams.append(journal)
        elif not open_:
            forgotten[journal] = max(noted.values())
    return PurgedStreams(streams, forgotten)


def has_news(db: sqlite3.Connection, runs: Collection[str]) -> bool:
    """Whether one of some runs was never purged, or went on since."""
    purged = _purged(db)
    ends = {row["stream"]: row["at"] for row in db.execute(_ENDS)}
    return any(ends.get(f"run/{run}", "") > purged.get(run, "") for run in runs)


def _purged(db: sqlite3.Connection) -> dict[str, str]:
    """Return when the runs were purged last that were purged as a whole."""
    return {row["run"]: row["at"] for row in db.execute(_PURGES)}


def _reviews(db: sqlite3.Connection) -> dict[str, dict[str, str]]:
    """Return of each journal the runs whose executions it reviews, with the time of the last."""
    journals: dict[str, dict[str, str]] = {}
    for row in db.execute(_REVIEWS):
        journals.setdefault(row["stream"], {})[row["run"]] = row["at"]
    return journals
