"""Whether shards are parts of one plan: as many of them, of the same suites, selected alike.

Only then do they have together what one run would have: every test once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence

from kindlm.history.queries import among

__all__ = ["find_difference"]

# What tells the suites of a run apart; one that could not be loaded has no hash, and is no reason.
_SUITES = """
SELECT run, ordinal, path, CASE WHEN error_code IS NULL THEN config_hash END
  FROM suites WHERE run IN $ids
 ORDER BY run, ordinal
"""

_OPTIONS = """
SELECT substr(stream, 5), json_extract(data, '$.options') FROM event_log
 WHERE stream IN $ids AND type = 'run.started'
"""

_SHARED = """
SELECT p.test, p.target, min(s.run), max(s.run)
  FROM suites s
  JOIN planned_tests p ON p.suite = s.id
 WHERE s.run IN $ids AND p.selected
 GROUP BY s.ordinal, p.test, p.target HAVING count(*) > 1
 ORDER BY s.ordinal, p.ordinal LIMIT 1
"""

_SELECTING = ("suite", "tests", "tags", "models", "repeat", "gate", "failed")
"""The options of `kindlm test` that decide what is run, and how it is judged."""


def find_difference(db: sqlite3.Connection, runs: Mapping[str, str]) -> str | None:
    """Return in what runs, by their shard as `i/n`, are not parts of one plan; None if they are."""
    shards = list(runs)
    first = shards[0]
    for shard in shards[1:]:
        if shard.partition("/")[2] != first.partition("/")[2]:
            return f"{_named(runs, first)} and {_named(runs, shard)} are not of as many shards"
    ids = list(runs.values())
    return (
        _suites_differ(db, runs, ids) or _options_differ(db, runs, ids) or _overlap(db, runs, ids)
    )


def _suites_differ(
    db: sqlite3.Connection, runs: Mapping[str, str], ids: Sequence[str]
) -> str | None:
    suites: dict[str, dict[tuple[int, str], str | None]] = {run: {} for run in ids}
    for run, ordinal, path, config_hash in db.execute(*among(_SUITES, ids)):
        suites[run][ordinal, path] = config_hash
    first = next(iter(runs))
    known: dict[tuple[int, str], tuple[str, str]] = {}
    for shard, run in runs.items():
        if suites[run].keys() != suites[runs[first]].keys():
            return f"{_named(runs, first)} and {_named(runs, shard)} ran different suites"
        for suite, config_hash in suites[run].items():
            if config_hash is None:
                continue
            other, expected = known.setdefault(suite, (shard, config_hash))
            if config_hash != expected:
                both = f"{_named(runs, other)} and {_named(runs, shard)}"
                return f"{both} have different configurations of {suite[1]}"
    return None


def _options_differ(
    db: sqlite3.Connection, runs: Mapping[str, str], ids: Sequence[str]
) -> str | None:
    streams = [f"run/{run}" for run in ids]
    options = {
        run: json.loads(text) if text else {} for run, text in db.execute(*among(_OPTIONS, streams))
    }
    first = next(iter(runs))
    for name in _SELECTING:
        for shard, run in runs.items():
            # What was not asked for is absent, false or empty.
            if (options[run].get(name) or None) != (options[runs[first]].get(name) or None):
                both = f"{_named(runs, first)} and {_named(runs, shard)}"
                return f"{both} were asked for with different options ({name})"
    return None


def _overlap(db: sqlite3.Connection, runs: Mapping[str, str], ids: Sequence[str]) -> str | None:
    found = db.execute(*among(_SHARED, ids)).fetchone()
    if found is None:
        return None
    test, target, one, other = found
    shards = {run: shard for shard, run in runs.items()}
    both = f"{_named(runs, shards[one])} and {_named(runs, shards[other])}"
    return f"{both} both have the test {test!r} on {target}"


def _named(runs: Mapping[str, str], shard: str) -> str:
    return f"shard {shard} (run {runs[shard]})"
