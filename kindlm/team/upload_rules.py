"""What may leave the machine: the settings `upload` that suites were recorded with.

Where several suites are in question, the strictest settings hold.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from kindlm.config.schema import NO_SERVER
from kindlm.errors import Err, Ok, Result, misuse
from kindlm.patterns import PatternError
from kindlm.suite import Upload
from kindlm.team.withholding import Withholding, withholder

_CONFIGS = """
SELECT c.body FROM suites s LEFT JOIN contents c ON c.ref = s.config_ref
 WHERE s.run IN (SELECT value FROM json_each(?)) AND s.config_ref IS NOT NULL
 ORDER BY s.run, s.ordinal
"""


def combined(uploads: Iterable[Upload]) -> Result[Upload]:
    """Return the settings for suites that are sent together."""
    given = list(uploads)
    urls = list(dict.fromkeys(each.url for each in given if each.url is not None))
    if len(urls) > 1:
        what = f"Suites have different values of upload.apiUrl: {urls[0]} and {urls[1]}."
        hint = "Use one server for the suites of a run, run them apart, or name it with --url."
        return Err(misuse(what, hint))
    return Ok(
        Upload(
            enabled=any(each.enabled for each in given),
            url=urls[0] if urls else None,
            include_texts=bool(given) and all(each.include_texts for each in given),
            patterns=tuple(dict.fromkeys(each for one in given for each in one.patterns)),
        )
    )


def recorded_uploads(db: sqlite3.Connection, runs: Sequence[str]) -> list[Upload | None]:
    """Return the settings of the suites of runs; None where content is lost that may hold them."""
    rows = db.execute(_CONFIGS, (json.dumps([*runs]),)).fetchall()
    return [None if body is None else _upload_of(body) for (body,) in rows]


def recorded_rule(
    db: sqlite3.Connection, runs: Sequence[str], also: Sequence[Upload] = (), *, texts: bool
) -> Result[Withholding | None]:
    """Return what of runs is withheld: by their settings, or with `texts` by their patterns alone.

    Where the settings are lost, all content is withheld. `also` are settings that hold besides.
    """
    uploads = [*recorded_uploads(db, runs), *also]
    known = [upload for upload in uploads if upload is not None]
    includes = texts or (bool(known) and all(upload.include_texts for upload in known))
    patterns = dict.fromkeys(each for upload in known for each in upload.patterns)
    try:
        return Ok(withholder(includes and len(known) == len(uploads), [*patterns]))
    except PatternError as error:
        what = f"upload.redactPatterns cannot be used: {error}."
        return Err(misuse(what, "Nothing of the run is sent without them."))


def _upload_of(text: str) -> Upload:
    """Return the settings in a recorded configuration. Most formats have none."""
    try:
        settings: Any = json.loads(text)["config"]["upload"]
        url = settings["apiUrl"]
        return Upload(
            settings["enabled"] is True,
            url if isinstance(url, str) and url != NO_SERVER else None,
            settings["includeArtifacts"] is True,
            tuple(str(each) for each in settings["redactPatterns"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return Upload()
