"""The options of a run that is resumed: those it began with, and what may be given anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kindlm.cli.request import RECORDED_OPTIONS, TestOptions
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.recording.resumption import Unfinished

_GIVEN_ANEW = ("concurrency", "timeout_ms", "max_cost_usd", "max_rpm")


def no_selection(options: TestOptions) -> KindlmError | None:
    """Return what is wrong with options that would change what the resumed run consists of."""
    given = {
        "--suite": options.suite,
        "--test": options.tests,
        "--tags": options.tags,
        "--model": options.models,
        "--failed": options.failed,
        "--runs": options.repeat,
        "--gate": options.gate,
        "--label": options.label,
        "--cache": options.cache,
        "--compat": options.compat,
        "--shard": options.shard,
        "--run-group": options.run_group,
        "--dry-run": options.dry_run,
    }
    wrong = [name for name, value in given.items() if value]
    if not wrong:
        return None
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"--resume goes on with what the run began with; it does not take {', '.join(wrong)}.",
        "Leave that out, or begin a new run without --resume.",
    )


def as_recorded(options: TestOptions, unfinished: Unfinished, root: Path) -> Result[TestOptions]:
    """Return the options of the run's first session, with what is given anew for this one.

    Paths that are given anew must hold the same suites, which `resumed` compares. An error if the
    files of the run are not in this project.
    """
    recorded = unfinished.options
    paths = tuple(options.paths) or tuple(root / path for path in recorded.paths)
    if not options.paths and (gone := [path for path in paths if not path.exists()]):
        return Err(_not_here(unfinished.run, gone))
    then = {name: getattr(recorded, name) for name in RECORDED_OPTIONS if name != "fail_fast"}
    anew = {name: given for name in _GIVEN_ANEW if (given := getattr(options, name)) is not None}
    return Ok(replace(options, **then | anew | {"paths": paths}))


def _not_here(run: str, gone: Sequence[Path]) -> KindlmError:
    names = ", ".join(str(path) for path in gone[:5])
    return KindlmError(
        ErrorCode.CONFIG_NOT_FOUND,
        f"Run {run} can not be resumed here: there is no {names}.",
        "Go to the project that it began in, and resume it there; or put the files back.",
    )
