"""`kindlm history purge`: erase content permanently.

Events stay, with names of tests, labels and numbers, so that their hash chains stay valid.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from kindlm.cli.console import fail, note, refuse, warn
from kindlm.cli.history import named_run, remove_copies
from kindlm.cli.history_errors import disk_full
from kindlm.cli.journal import author, open_journal
from kindlm.cli.options import DATABASE, flag, option, parse_erased_before
from kindlm.errors import DOCS, ErrorCode, KindlmError, broken
from kindlm.events.execution_events import RAW_BODY
from kindlm.history.baselines import list_baselines
from kindlm.history.runs import held_lock
from kindlm.patterns import PatternError, matcher
from kindlm.recording.purging import erase, runs_before, streams_to_purge, with_news
from kindlm.wording import count, listed
from kindlm_store import CorruptDatabaseError, LockHeldError, OpenError
from kindlm_store.erasing import Erasable, Erased, find_erasable

_NAMED = 3

_STAYS = f"Names and labels in events stay: {DOCS}/how-to/keeping-history/#what-cannot-be-erased"


def purge_command(
    run: list[str] | None = option(
        "--run RUN", "Erase content of this run that no other run uses. Repeatable."
    ),
    older_than: str | None = option(
        "--older-than AGE", "Erase content of older runs: 90d, 2026-01-31."
    ),
    matching: str | None = option(
        "--matching PATTERN", "Erase content that matches this regular expression."
    ),
    yes: bool = flag("--yes -y", "Erase without asking."),
    db: Path | None = DATABASE,
) -> None:
    """Erase recorded content permanently. Events stay, and `kindlm history verify` still passes."""
    hint = (
        "Write --run ID, --older-than 90d or --matching PATTERN. A pattern goes with either of the"
        " others."
    )
    if run and older_than is not None:
        refuse("--run and --older-than cannot be combined.", hint)
    if not run and older_than is None and matching is None:
        refuse("The command does not say what to erase.", hint)
    with open_journal(db) as (log, reader):
        runs = _runs(reader, run or [], older_than)
        chosen = {*(runs or ())}
        try:
            matches = None if matching is None else _matcher(matching)
            streams = None if runs is None else streams_to_purge(reader, runs)
            found = find_erasable(log, streams, matches, RAW_BODY)
            # A purge of texts that other runs share is recorded: it applies once those are purged.
            is_later = found.shared and runs and matches is None and with_news(reader, runs)
            if not found.refs and not is_later:
                remove_copies(log.path)  # an earlier purge may have ended before that
                note(f"There is nothing to erase{_shared(found)}.")
                note(_STAYS)
                return
            baselines = [
                f"{each} of {baseline.suite}"
                for baseline in list_baselines(reader)
                for each in baseline.runs
                if each in chosen
            ]
            if baselines:
                warn(
                    f"Some of these runs are baselines: {listed(baselines, _NAMED)}.",
                    "Later runs cannot be compared with erased texts. Choose other baselines:"
                    " kindlm baseline set",
                )
            of = "" if runs is None else f" of {count(len(runs), 'run')}"
            if runs is not None and len(runs) == 1:
                of = f" of run {runs[0]}"
            what = f"{count(len(found.refs), 'text')}{of} will be erased for good"
            if not yes and not _ask(f"{what}{_shared(found)}."):
                note("Nothing was erased.")
                return
            try:
                erased = erase(log, found, runs or (), by=author(), matching=matches is not None)
            finally:
                remove_copies(log.path)
        except PatternError as error:
            refuse(
                f"--matching {matching!r} cannot be used: {error}.",
                "Nothing was erased. Write another regular expression.",
            )
        except LockHeldError as error:
            fail([_going_on(str(error))])
        except OpenError as error:
            is_full = disk_full(error.path, error.__cause__) is not None
            if is_full or isinstance(error, CorruptDatabaseError):
                raise
            refuse(
                f"The history {error.reason}.",
                "Check the disk, and purge again: until then, the file may still hold texts that"
                " were erased.",
                code=ErrorCode.UNKNOWN_ERROR,
            )
        _report(found, erased)


def _ask(question: str) -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        refuse(
            f"Nothing was erased: the command cannot ask for confirmation. {question}",
            "To erase without being asked: --yes",
        )
    note(question)
    return typer.confirm("Erase them?", err=True)


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tests texts; end the command if the pattern matches every text."""
    matches = matcher(pattern)
    if matches(""):
        what = f"{pattern!r} matches the empty text, so it" if pattern else "is empty: it"
        refuse(
            f"--matching {what} would erase every text.",
            "Write a pattern of what to erase, such as 'jane\\.roe@example\\.com'. To erase by run"
            " or age: --run ID, --older-than 90d",
        )
    return matches


def _runs(db: sqlite3.Connection, named: Sequence[str], older_than: str | None) -> list[str] | None:
    if named:
        chosen = dict.fromkeys(named_run(db, wanted) for wanted in named)
        if going_on := [run for run in chosen if held_lock(db, run)]:
            fail([_going_on(f"run {going_on[0]} is being recorded")])
        return list(chosen)
    if older_than is None:
        return None
    older = runs_before(db, parse_erased_before(older_than, "--older-than"))
    going_on = [run for run in older if held_lock(db, run)]
    for run in going_on:
        warn(f"Run {run} is being recorded, so its content is not erased.")
    return [run for run in older if run not in going_on]


def _report(found: Erasable, erased: Erased) -> None:
    note(f"{count(erased.texts, 'text')} erased{_shared(found)}.")
    if not erased.emptied:
        warn(
            "Another program has the history open, whose write-ahead log may hold erased texts.",
            "Close that program, then purge again, or run any command that writes.",
        )
    note("Backups, exports and other copies of the history still hold these texts.")
    note(_STAYS)


def _shared(found: Erasable) -> str:
    stays = f"; used by other runs, and left until these are purged: {found.shared:,}"
    return stays if found.shared else ""


def _going_on(reason: str) -> KindlmError:
    return broken(f"Nothing was erased: {reason}.", "Wait until it has ended, then purge again.")
