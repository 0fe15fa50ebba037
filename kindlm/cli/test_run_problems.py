"""Why `kindlm test` can not do what is asked for: what is told, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kindlm.cli.shown_path import shown_path
from kindlm.errors import ErrorCode, KindlmError
from kindlm.recording.event_files import import_command
from kindlm.suite import Suite
from kindlm_store import LockHeldError, SealedError


def pdf_of_what() -> KindlmError:
    """Return the error of `--pdf` where no compliance report is written."""
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        "--pdf is the form of the compliance report, which was not asked for.",
        "Add --compliance, or set compliance.enabled in a suite.",
    )


def no_report_of_a_plan() -> KindlmError:
    """Return the error of `--dry-run` with a report."""
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        "--dry-run runs nothing that could be reported.",
        "Leave out --reporter and --output, or --dry-run.",
    )


def nothing_to_force() -> KindlmError:
    """Return the error of `--force-resume` without `--resume`."""
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        "--force-resume resumes nothing by itself.",
        "Write which run: kindlm test --resume RUN --force-resume",
    )


def nothing_to_spend() -> KindlmError:
    """Return the error of a limit of costs that allows no call."""
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        "--max-cost 0 allows no call at all.",
        "Write a sum above 0, or leave it out; to see what a run may cost: --dry-run",
    )


def writes_lost(count: int, database: Path) -> KindlmError:
    """Return the error of a write-ahead log that is damaged, which held the last writes."""
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"What was recorded last is lost: {shown_path(database)}-wal is damaged, and {count:,} of"
        " the writes in it can not be read.",
        f"Restore it from a backup, with {database.name}; or run the tests: kindlm test",
    )


def not_imported(run: str, file: Path, database: Path) -> KindlmError:
    """Return the error of a run of which a file has events that are not in the history."""
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"Run {run} can not be resumed yet: events of it that could not be written are in {file}.",
        f"Bring them in first: {import_command(file, shown_path(database))}; or delete the file,"
        " and what is in it is run again.",
    )


def run_elsewhere(run: str, error: LockHeldError | SealedError) -> KindlmError:
    """Return the error of a run that another process records, or has finished."""
    if isinstance(error, SealedError):
        return KindlmError(
            ErrorCode.CONFIG_VALIDATION_ERROR,
            f"Another process has finished run {run} meanwhile.",
            f"Look at it: kindlm show {run}",
        )
    who = error.holder
    by = f"process {who.pid} on {who.host} since {who.since}" if who else "another process"
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"Run {run} goes on already: {by} holds it.",
        "Wait until it has ended, or end it; then: kindlm test --resume",
    )


def no_tests(suites: Sequence[Suite]) -> KindlmError:
    """Return the error of suites that hold no tests."""
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"Nothing was tested: there are no tests in {', '.join(suite.path for suite in suites)}.",
        "Write one: a function test_… under @scenario. What skips itself has none.",
    )


def nothing_selected(shard: str | None) -> KindlmError:
    """Return the error of a selection, or a shard, that no test is in."""
    fits = "no test fits the selection" if shard is None else f"there is none for shard {shard}"
    fewer = "" if shard is None else "take fewer shards than there are tests; "
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"Nothing was tested: {fits}.",
        f"Loosen --suite, --test, --tags, --model or --failed; {fewer}"
        "kindlm validate counts the tests.",
    )
