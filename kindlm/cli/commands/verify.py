"""`kindlm history verify`: compare events, content and tables with what was recorded."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import typer

from kindlm.cli.console import refuse, wants_color
from kindlm.cli.history import existing_history, named_run
from kindlm.cli.history_errors import repair_hint, salvage_hint
from kindlm.cli.options import DATABASE, RUN_NAMES, argument, option
from kindlm.errors import ErrorCode, SourceLocation
from kindlm.events.run import PURGES, SEALED_HEADS
from kindlm.history.read_models import changed_tables
from kindlm.projections import PROJECTIONS
from kindlm.reports.untrusted import one_line
from kindlm.wording import count
from kindlm_store import behind_the_log, open_reader, schema_problems, unreadable_wal
from kindlm_store.verification import Verification, verify_file

_HASH = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.IGNORECASE)

_BEYOND = " (the tables are computed from these: kindlm history rebuild)"
"""What is not checked where no run is named: it would take as long as to compute them all."""

_LARGE = 1024**3
"""Bytes from which on indexes are not held to their tables: that takes minutes."""

_HEADS = """
SELECT name, CAST(version AS INTEGER), 'sha256:' || lower(substr(hex(head), 3)) FROM streams
 WHERE :stream IS NULL OR name = :stream ORDER BY id
"""

_SHOWN = 10
"""So many faults of pages are named."""


def verify_command(
    run: str | None = argument("RUN", f"{RUN_NAMES} Default: the whole history.", default=None),
    head: str | None = option("--head HASH", "The head hash in a report of RUN."),
    db: Path | None = DATABASE,
) -> None:
    """Check recorded events and content against their hashes.

    With RUN, also compare its tables with its events.
    """
    if run is not None and Path(run).is_file():
        refuse(f"{run} is a file, not a run.", f"Check it: kindlm history verify --db {run}")
    path = existing_history(db).database
    if head is not None and run is None:
        refuse(
            "--head needs the run whose head it is.",
            "Name the run: kindlm history verify RUN --head HASH",
        )
    noted = None if head is None else _normalised(head)
    try:
        with closing(open_reader(path)) as connection:
            stream = None if run is None else _stream(connection, run)
            found = verify_file(
                path,
                stream,
                heads={stream: noted} if stream and noted else None,
                claims=SEALED_HEADS,
                erasures=PURGES,
            )
            sound = _tell_file(connection, path)
            _tell(connection, found, stream, sound)
        if stream is not None:
            sound &= _tell_tables(path, stream.removeprefix("run/"), intact=found.ok)
    except sqlite3.DatabaseError as error:
        refuse(
            f"The history is damaged: {error}.",
            salvage_hint(path),
            code=ErrorCode.UNKNOWN_ERROR,
            where=SourceLocation(str(path)),
        )
    if not (found.ok and sound):
        raise typer.Exit(1)


def _stream(connection: sqlite3.Connection, wanted: str) -> str:
    """Return the stream of a run; its own name works even if the read models are broken."""
    exact = f"run/{wanted}"
    if connection.execute("SELECT 1 FROM streams WHERE name = ?", (exact,)).fetchone():
        return exact
    return f"run/{named_run(connection, wanted)}"


def _tell(
    connection: sqlite3.Connection, found: Verification, only: str | None, sound: bool
) -> None:
    """Show each stream with its length and head hash, oldest first, and a summary."""
    problems: dict[str | None, list[str]] = {}
    for problem in found.problems:
        place = "" if problem.version is None else f"event {problem.version}: "
        problems.setdefault(problem.stream, []).append(f"{place}{problem.what}")
    for name, version, head in connection.execute(_HEADS, {"stream": only}).fetchall():
        wrong = problems.pop(name, [])
        _tell_part(not wrong, f"{one_line(name)}  {count(version, 'event')}  {head}", wrong)
    for stream, wrong in problems.items():
        _tell_part(False, one_line(stream or "texts"), wrong)
    gone = [
        f", {number:,} {how}"
        for number, how in ((found.erased, "erased"), (found.withheld, "withheld"))
        if number
    ]
    verdict = "all as recorded" if found.ok else count(len(found.problems), "problem")
    if not sound:
        events = "events and texts as recorded" if found.ok else verdict
        verdict = f"{events}, and something is wrong with the file"
    beyond = _BEYOND if only is None and found.ok else ""
    counts = f"{count(found.streams, 'stream')}, {count(found.events, 'event')}"
    texts = f"{count(found.texts, 'text')}{''.join(gone)}"
    heads = count(found.heads, "noted head")
    sys.stdout.write(f"{counts}, {texts}, {heads}: {verdict}{beyond}\n")


def _tell_file(connection: sqlite3.Connection, path: Path) -> bool:
    """Report faults of the file itself; return whether there are none.

    These are damaged pages, and tables, triggers, views or indexes that differ from kindlm's.
    """
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    size = pages * connection.execute("PRAGMA page_size").fetchone()[0]
    check = "integrity_check" if size <= _LARGE else "quick_check"
    try:
        rows = connection.execute(f"PRAGMA {check}({_SHOWN})").fetchall()
        wrong = [row[0] for row in rows if row[0] != "ok"]
    except sqlite3.DatabaseError as error:
        wrong = [str(error)]
    wrong = [f"PRAGMA {check}: {' '.join(what.split())}" for what in wrong]
    if wrong:
        wrong.append(salvage_hint(path))
    if (wal := unreadable_wal(path)) is not None:
        wrong.append(f"the write-ahead log {wal.name} cannot be read: what was in it is lost")
    for problem in schema_problems(connection, PROJECTIONS):
        told = f"{problem.kind} {problem.name!r}"
        if (problem.kind, problem.state) == ("table", "foreign"):
            sys.stdout.write(f"! the {one_line(told)} is not one of kindlm's, and is not checked\n")
            continue
        state = {
            "foreign": "was not made by kindlm",
            "changed": "is not the one that kindlm made",
            "missing": "is not there any more",
        }[problem.state]
        wrong.append(f"the {told} {state}: {repair_hint(problem, path)}")
    wrong += [
        f"the table of {name} does not say that it is of the last event: kindlm history rebuild"
        for name in behind_the_log(connection, PROJECTIONS)
    ]
    if wrong:
        _tell_part(False, "the file", wrong)
    elif check == "quick_check":
        large = f"PRAGMA quick_check, since it is larger than {_LARGE // 1024**3} GiB"
        _tell_part(True, f"the file: {large}; that holds no index to its table")
    return not wrong


def _tell_tables(path: Path, run: str, *, intact: bool) -> bool:
    """Report whether the tables of one run match its events, and return that.

    If the events are not `intact`, rebuilt tables would contain their changed values.
    """
    changed = changed_tables(path, [run])
    said = "what its events give"
    if changed:
        way_out = "kindlm history rebuild" if intact else "restore the history from a backup"
        said = f"NOT what its events give: {way_out}"
    _tell_part(not changed, f"tables of run {one_line(run)}: {said}", changed)
    return not changed


def _tell_part(ok: bool, said: str, wrong: Iterable[str] = ()) -> None:
    """Show whether a part is sound, with its faults below it."""
    sign, paint = ("✓", "\x1b[32m") if ok else ("✗", "\x1b[1;31m")
    if wants_color(sys.stdout):
        sign = f"{paint}{sign}\x1b[0m"
    sys.stdout.write(f"{sign} {said}\n")
    sys.stdout.writelines(f"    {one_line(each)}\n" for each in wrong)


def _normalised(head: str) -> str:
    match = _HASH.fullmatch(head.strip())
    if match is None:
        refuse(
            f"--head {head!r} is no head hash.",
            "Copy it from the report of the run: sha256: and 64 hexadecimal digits.",
        )
    return f"sha256:{match[1].lower()}"
