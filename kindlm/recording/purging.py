"""Erases the content of runs, for `kindlm history purge` and the retention of a server."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import ExitStack, closing

from kindlm.events.codec import new_event
from kindlm.events.run import ContentsPurged
from kindlm.recording.history_file import new_journal
from kindlm_store import Append, EventLog, erasing, stream_lock
from kindlm_store.erasing import Erasable, Erased

_PART = 5_000
"""The largest number of texts in one event."""

_OLDER = "SELECT id FROM runs WHERE started_at < ? ORDER BY started_at, id"

_UNSEALED = "SELECT name FROM streams WHERE name GLOB 'run/*' AND NOT sealed"

# When runs were last purged as a whole: erasing what matches a pattern leaves the rest of a run.
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

_NEWS = f"""
SELECT run FROM (
  SELECT substr(stream, 5) AS run, at FROM event_log WHERE stream GLOB 'run/*'
   UNION ALL
  SELECT run, at FROM ({_REVIEWS})
) AS news LEFT JOIN ({_PURGES}) AS purged USING (run)
 GROUP BY run
HAVING max(news.at) > coalesce(purged.at, '')
"""  # noqa: S608


def runs_before(db: sqlite3.Connection, before: str) -> list[str]:
    """Return the runs that began before a time (UTC, ISO 8601), the oldest first."""
    return [run for (run,) in db.execute(_OLDER, (before,))]


def streams_to_purge(db: sqlite3.Connection, runs: Collection[str]) -> list[str]:
    """Return the streams whose content a purge of runs erases, unless other streams use it.

    They include the runs that were purged before and have no news: what others shared with them
    then is still there. A journal stays if it also has notes on other runs.
    """
    news = {run for (run,) in db.execute(_NEWS)}
    purged = {*runs, *(run for run, _ in db.execute(_PURGES) if run not in news)}
    journals = defaultdict[str, set[str]](set)
    for stream, run, _ in db.execute(_REVIEWS):
        journals[stream].add(run)
    chosen = (stream for stream, noted in journals.items() if noted <= purged)
    return [*(f"run/{run}" for run in purged), *chosen]


def with_news(db: sqlite3.Connection, runs: Iterable[str]) -> list[str]:
    """Return the runs that were never purged, or have had events or reviews since."""
    news = {run for (run,) in db.execute(_NEWS)}
    return [run for run in runs if run in news]


def erase(
    log: EventLog, found: Erasable, runs: Collection[str], *, by: str, matching: bool = False
) -> Erased:
    """Erase the given content for good. Record who erased it, and of which runs.

    Raises `LockHeldError` while one of the runs is being recorded, and `OpenError`.
    """

    def record(refs: list[str]) -> Append:
        parts = [refs[start : start + _PART] for start in range(0, len(refs) or 1, _PART)]
        payloads = (
            ContentsPurged(texts=len(part), refs=part, runs=[*runs], matching=matching, by=by)
            for part in parts
        )
        return Append(new_journal(), [new_event(payload) for payload in payloads])

    with closing(log.reader()) as db:
        unsealed = {name for (name,) in db.execute(_UNSEALED)}
    with ExitStack() as locks:
        # A sealed stream takes no events; any other must not grow meanwhile.
        for stream in sorted(unsealed.intersection(found.streams or ())):
            locks.enter_context(stream_lock(log.path, stream))
        return erasing.erase(log, found, record)
