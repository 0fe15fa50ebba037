"""`kindlm history verify`: compare events, content and tables with what was recorded."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import typer

from kindlm.cli.console import refuse, typed, wants_color
from kindlm.cli.history import db_option, existing_history, named_run
from kindlm.cli.history_errors import repair_hint, salvage_hint
from kindlm.cli.options import DATABASE, RUN_NAMES, argument, option
from kindlm.errors import ErrorCode, SourceLocation
from kindlm.events.run import PURGES, SEALED_HEADS
from kindlm.history.read_models import changed_tables
from kindlm.history.runs import journals_about
from kindlm.projections import PROJECTIONS
from kindlm.reports.untrusted import one_line
from kindlm.wording import count
from kindlm_store import behind_the_log, open_reader, schema_problems, unreadable_wal
from kindlm_store.verification import Verification, verify_file

_HASH = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.IGNORECASE)

_UNCHECKED = "; tables are not checked, but can be computed again: kindlm history rebuild"
"""Without a run, tables are not checked: that would take as long as to compute them."""

_HEADS = """
SELECT name, CAST(version AS INTEGER), 'sha256:' || lower(substr(hex(head), 3)) FROM streams
 WHERE :stream IS NULL OR name = :stream ORDER BY id
"""

_SHOWN = 10
"""The number of faults that SQLite's check reports."""


def verify_command(
    run: str | None = argument("RUN", f"{RUN_NAMES} Default: the whole history.", default=None),
    head: str | None = option("--head HASH", "The head hash in a report of RUN."),
    db: Path | None = DATABASE,
) -> None:
    """Check recorded events and content against their hashes.

    With RUN, also compare its tables with its events.
    """
    if run is not None and Path(run).is_file():
        check = f"kindlm history verify{db_option(Path(run))}"
        refuse(f"{run} is a file, not a run.", f"Check it: {check}")
    path = existing_history(db).database
    if head is not None and run is None:
        refuse("--head requires a run.", "Name the run: kindlm history verify RUN --head HASH")
    expected = None if head is None else _HASH.fullmatch(head.strip())
    if head is not None and expected is None:
        refuse(
            f"--head {head!r} is not a head hash.",
            "Copy it from the report of the run: sha256: and 64 hexadecimal digits.",
        )
    try:
        with closing(open_reader(path)) as connection:
            stream = None if run is None else f"run/{run}"
            query = "SELECT 1 FROM streams WHERE name = ?"
            # The id of a run works even if the tables are damaged.
            if run is not None and not connection.execute(query, (stream,)).fetchone():
                stream = f"run/{named_run(connection, run)}"
            found = verify_file(
                path,
                stream,
                heads={stream: f"sha256:{expected[1].lower()}"} if stream and expected else None,
                claims=SEALED_HEADS,
                erasures=PURGES,
            )
            if stream is not None:
                run = stream.removeprefix("run/")
                for journal in journals_about(connection, [run]):
                    found.problems += verify_file(path, journal, erasures=PURGES).problems
            sound = _report_file(connection, path)
            _report_streams(connection, found, stream, sound)
        if run is not None:
            state, changed = "match its events", changed_tables(path, [run])
            if changed:
                # A rebuild would only copy changes of events into the tables.
                backup = "restore the history from a backup"
                state = f"do NOT {state}: {'kindlm history rebuild' if found.ok else backup}"
            _report_part(f"tables of run {one_line(run)}: {state}", changed)
            sound &= not changed
    except sqlite3.DatabaseError as error:
        refuse(
            f"The history is damaged: {error}.",
            salvage_hint(path),
            code=ErrorCode.UNKNOWN_ERROR,
            where=SourceLocation(str(path)),
        )
    if not (found.ok and sound):
        raise typer.Exit(1)


def _report_streams(
    connection: sqlite3.Connection, found: Verification, only: str | None, sound: bool
) -> None:
    """Print each stream with its length and head hash, oldest first, and a summary."""
    problems: dict[str | None, list[str]] = {}
    for problem in found.problems:
        place = "" if problem.version is None else f"event {problem.version}: "
        problems.setdefault(problem.stream, []).append(f"{place}{problem.what}")
    for name, version, head in connection.execute(_HEADS, {"stream": only}).fetchall():
        wrong = problems.pop(name, [])
        _report_part(f"{one_line(name)}  {count(version, 'event')}  {head}", wrong)
    for stream, wrong in problems.items():
        _report_part(one_line(stream or "texts"), wrong)
    gone = [
        f", {number:,} {how}"
        for number, how in ((found.erased, "erased"), (found.withheld, "withheld"))
        if number
    ]
    verdict = "all as recorded" if found.ok else count(len(found.problems), "problem")
    if not sound:
        events = "events and texts as recorded" if found.ok else verdict
        verdict = f"{events}, and something is wrong with the file"
    unchecked = _UNCHECKED if only is None and found.ok else ""
    counts = f"{count(found.streams, 'stream')}, {count(found.events, 'event')}"
    texts = f"{count(found.texts, 'text')}{''.join(gone)}"
    heads = count(found.heads, "seal")
    sys.stdout.write(f"{counts}, {texts}, {heads}: {verdict}{typed(unchecked)}\n")


def _report_file(connection: sqlite3.Connection, path: Path) -> bool:
    """Print faults of the file itself; return whether there are none.

    Such faults are damaged pages, and tables, triggers, views or indexes that differ from kindlm's.
    """
    try:
        rows = connection.execute(f"PRAGMA integrity_check({_SHOWN})").fetchall()
        wrong = [row[0] for row in rows if row[0] != "ok"]
    except sqlite3.DatabaseError as error:
        wrong = [str(error)]
    wrong = [f"PRAGMA integrity_check: {' '.join(what.split())}" for what in wrong]
    if wrong:
        wrong.append(salvage_hint(path))
    if (wal := unreadable_wal(path)) is not None:
        wrong.append(f"the write-ahead log {wal.name} cannot be read: what was in it is lost")
    for problem in schema_problems(connection, PROJECTIONS):
        name = f"{problem.kind} {problem.name!r}"
        if (problem.kind, problem.state) == ("table", "foreign"):
            sys.stdout.write(f"! the {one_line(name)} is not one of kindlm's, and is not checked\n")
            continue
        state = {
            "foreign": "was not made by kindlm",
            "changed": "is not the one that kindlm made",
            "missing": "no longer exists",
        }[problem.state]
        wrong.append(f"the {name} {state}: {repair_hint(problem, path)}")
    wrong += [
        f"the table of {name} does not say that it is of the last event: kindlm history rebuild"
        for name in behind_the_log(connection, PROJECTIONS)
    ]
    if wrong:
        _report_part("the file", wrong)
    return not wrong


def _report_part(text: str, wrong: Sequence[str] = ()) -> None:
    sign, color = ("✗", "\x1b[1;31m") if wrong else ("✓", "\x1b[32m")
    if wants_color(sys.stdout):
        sign = f"{color}{sign}\x1b[0m"
    sys.stdout.write(f"{sign} {typed(text)}\n")
    sys.stdout.writelines(f"    {typed(one_line(each))}\n" for each in wrong)
