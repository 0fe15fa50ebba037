"""Which streams belong to a run: those of an export, and those that are pushed and pulled with it.

They are the run, the runs that it was derived from, the repeats that `kindlm settle` added to any
of them, and the journals that note something of them.
"""

from __future__ import annotations

import json
import sqlite3

from kindlm.history.runs import sources_of

_ADDED = """
SELECT id FROM runs WHERE mode = 'settled' AND source_run IN (SELECT value FROM json_each(?))
 ORDER BY started_at, id
"""

# What is noted of a run, and what took back its being a baseline.
_JOURNALS = """
SELECT DISTINCT j.stream FROM event_log j
 WHERE j.stream GLOB 'journal/*'
   AND (json_extract(j.data, '$.run') = :run
        OR j.type = 'baseline.set' AND :run IN (SELECT value FROM json_each(j.data, '$.runs'))
        OR j.type = 'baseline.removed' AND EXISTS (
          SELECT 1 FROM event_log s
           WHERE s.type = 'baseline.set'
             AND (json_extract(s.data, '$.run') = :run
                  OR :run IN (SELECT value FROM json_each(s.data, '$.runs')))
             AND json_extract(s.data, '$.project') = json_extract(j.data, '$.project')
             AND json_extract(s.data, '$.suite') = json_extract(j.data, '$.suite')
             AND json_extract(s.data, '$.label') IS json_extract(j.data, '$.label')))
"""

# A journal is exported whole, so that what it notes of other runs has to hold as well.
_SEALED = """
SELECT json_extract(data, '$.run') FROM event_log WHERE stream = ? AND type = 'run.sealed'
"""


def streams_of(db: sqlite3.Connection, run: str) -> tuple[list[str], list[str], list[str]]:
    """Return the streams of a run, as three lists.

    First the runs, by id: the oldest source before, the run itself at the end; then the names of
    all streams; then the sources that are not in this history.
    """
    sources = sources_of(db, run)
    missing = [each for each, mode in sources.items() if mode is None and each != run]
    runs = [each for each in reversed(sources) if each not in missing]
    # The other runs that hold repeats which `kindlm settle` added to some of these.
    added = (each for (each,) in db.execute(_ADDED, (json.dumps(runs),)))
    runs[-1:-1] = [each for each in added if each not in runs]
    wanted = list(runs)
    journals: dict[str, None] = {}
    for each in wanted:
        for (journal,) in db.execute(_JOURNALS, {"run": each}).fetchall():
            if journal in journals:
                continue
            journals[journal] = None
            sealed = (row[0] for row in db.execute(_SEALED, (journal,)).fetchall())
            wanted += [other for other in sealed if other not in wanted]
    return runs, [*(f"run/{each}" for each in wanted), *journals], missing
