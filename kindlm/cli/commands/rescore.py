"""`kindlm rescore`: check the conversations of a recorded run by the current suite."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from kindlm.cli.console import refuse
from kindlm.cli.ending import loading
from kindlm.cli.options import (
    SOURCE_RUN,
    DerivedOptions,
    command_options,
    flag,
    option,
    with_options,
)


@command_options
class RescoreOptions(DerivedOptions):
    """The options of `kindlm rescore`, as typed."""

    takes: ClassVar[tuple[str, ...]] = (
        "run", "paths", "everything", "since", "suite", "resume", *DerivedOptions.takes,
    )  # fmt: skip

    run: str | None = SOURCE_RUN
    paths: tuple[Path, ...] = option(
        "--config -c FILE",
        "The suite to check against. Repeatable. Default: the file of the run.",
        default=(),
    )
    everything: bool = flag("--all", "Rescore every finished run, each as a new run.")
    since: str | None = option(
        "--since AGE", "With --all: only runs since then: 30d, 12h, 2026-01-31."
    )
    suite: str | None = option("--suite -s NAME", "Rescore only this suite.")
    resume: str | None = option(
        "--resume [RUN]", "Finish an interrupted rescoring. Default: the latest one."
    )


@with_options
def rescore_command(options: RescoreOptions) -> int:
    """Check recorded conversations against the current suite.

    The tested model is not called.
    """
    with loading():
        from kindlm.cli.commands.derived_runs import rescore, rescore_all, resume_rescoring

    _check_options(options)
    if options.resume is not None:
        return resume_rescoring(options.resume, options)
    if options.everything:
        return rescore_all(options.since, options)
    return rescore(options.run, options)


def _check_options(options: RescoreOptions) -> None:
    others: dict[str, object] = {"RUN": options.run}
    if options.everything:
        option, hint = "--all", "Leave it out; kindlm report writes reports of any run."
        others |= {"--resume": options.resume, "--label": options.label}
        others |= {"--reporter": options.reporters, "--output": options.output}
    elif options.since is not None:
        refuse("--since is for many runs.", "Write --all --since, or name one RUN.")
    elif options.resume is not None:
        option, hint = "--resume", "Leave it out."
        others |= {"--config": options.paths, "--suite": options.suite}
        others |= {"--compat": options.compat, "--label": options.label}
    else:
        return
    if given := [name for name, value in others.items() if value]:
        refuse(f"{option} cannot be combined with {', '.join(given)}.", hint)
