"""What is said of an error that should not have happened: one line, and a trace if asked for."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kindlm.cli import console
from kindlm.errors import ErrorCode, KindlmError

if TYPE_CHECKING:
    from kindlm_store import ProjectionError


_DAMAGE = {11, 26}
"""SQLITE_CORRUPT and SQLITE_NOTADB, by their numbers: most commands need no SQLite."""

_READERS = ("kindlm.history.", "kindlm.reports.", "kindlm.cli.run_list", "kindlm.cli.trend_list")
"""Modules that take the tables of a history for what kindlm wrote there."""


def report_crash(error: BaseException, environ: Mapping[str, str]) -> None:
    """Tell the user that kindlm itself failed; no secret of the environment is shown.

    Where a history is damaged, SQLite may find that at any moment: that is no fault of kindlm. Nor
    is a value in a table that kindlm never writes there; what reads it fails in any way.
    """
    from kindlm.recording.secrets import redactor
    from kindlm_store import ProjectionError

    redact = redactor(environ)
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
        damaged = KindlmError(
            ErrorCode.UNKNOWN_ERROR,
            f"The history is damaged: {error}.",
            "See where: kindlm verify. Take what can be read of it into a new history: kindlm merge"
            " DAMAGED.db --db NEW.db",
            trace=redact("".join(traceback.format_exception(error))),
        )
        console.show([damaged])
        return
    if isinstance(error, ProjectionError):
        console.show([_newer_tables(error)])
        return
    reason = redact(f"{type(error).__name__}: {error}".rstrip(": "))
    trace = redact("".join(traceback.format_exception(error)))
    hint = "" if console.is_verbose() else "Run it again with --verbose to see where."
    message = f"kindlm itself failed: {reason}"
    if _was_reading(error):
        message = f"What the history holds could not be read: {reason}"
        hint = (
            "If another program changed its tables, kindlm rebuild computes them anew from what was"
            f" recorded. {hint}"
        )
    problem = KindlmError(ErrorCode.UNKNOWN_ERROR, message, hint.rstrip() or None, trace=trace)
    console.show([problem])


def _newer_tables(error: ProjectionError) -> KindlmError:
    """Return the error that a newer version of kindlm keeps the tables, and what to do about it."""
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"The tables of {error.projection!r} cannot be computed: {error}.",
        "No event is lost. Update kindlm. If it is up to date, another program changed the history:"
        " take the events into a new one with kindlm merge THIS.db --db NEW.db",
    )


def _was_reading(error: BaseException) -> bool:
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__", "").startswith(_READERS) for frame, _ in frames)


def report_ended(message: str) -> None:
    """Tell the user that code of theirs has ended the process of kindlm."""
    hint = "Look for os._exit, signals, and crashes of extension modules in test files and packs."
    console.show([KindlmError(ErrorCode.UNKNOWN_ERROR, message, hint)])
