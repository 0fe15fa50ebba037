"""`kindlm rescore`: check recorded conversations against the current suite."""

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
    refuse_together,
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

    if options.everything:
        refuse_together("--all", options, "run", "resume", "label", "reporters", "output")
        return rescore_all(options.since, options)
    if options.since is not None:
        refuse("--since requires --all.", "Add --all, or name one RUN.")
    if options.resume is not None:
        refuse_together("--resume", options, "run", "paths", "suite", "compat", "label")
        return resume_rescoring(options.resume, options)
    return rescore(options.run, options)
