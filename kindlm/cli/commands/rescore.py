"""`kindlm rescore` and `kindlm replay`: make a run from a recorded one."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from kindlm.cli.console import refuse
from kindlm.cli.ending import loading
from kindlm.cli.options import (
    SOURCE_RUN,
    DerivedOptions,
    argument,
    command_options,
    flag,
    option,
    with_options,
)
from kindlm.dataclass import replace


@command_options
class RescoreOptions(DerivedOptions):
    """The options of `kindlm rescore`, as typed; `paths` are the suites to check by."""

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

    _require_sense(options)
    if options.resume is not None:
        return resume_rescoring(options.resume, options)
    if options.everything:
        return rescore_all(options.since, options)
    return rescore(options.run, options)


def _require_sense(options: RescoreOptions) -> None:
    """End the command if options cannot be combined."""
    given: dict[str, object] = {"RUN": options.run}
    if options.everything:
        option, hint = "--all", "Leave it out; kindlm report writes reports of any run."
        given |= {"--resume": options.resume, "--label": options.label}
        given |= {"--reporter": options.reporters, "--output": options.output}
    elif options.since is not None:
        refuse("--since is for many runs.", "Write --all --since, or name one RUN.")
    elif options.resume is not None:
        option, hint = "--resume", "Leave it out."
        given |= {"--config": options.paths, "--suite": options.suite}
        given |= {"--compat": options.compat, "--label": options.label}
    else:
        return
    if wrong := [name for name, value in given.items() if value]:
        refuse(f"{option} does not go with {', '.join(wrong)}.", hint)


@command_options
class ReplayOptions(DerivedOptions):
    """The options of `kindlm replay`, as typed."""

    takes: ClassVar[tuple[str, ...]] = (
        "run", "paths", "source", "config", "judge", "masks_times", "suite", "tests", "tags",
        "models", "keywords", "repeat", "gate", *DerivedOptions.takes,
    )  # fmt: skip

    run: str | None = SOURCE_RUN
    paths: tuple[Path, ...] = argument(
        "PATH", "Files, folders or pack:NAME. Default: the files of the run.", default=()
    )
    source: str | None = option("--from RUN", "Same as RUN.", hidden=True)
    judge: Literal["recorded", "live"] = option(
        "--judge", "live: ask judges new questions. recorded: make no calls.", default="recorded"
    )
    masks_times: bool = flag(
        "--mask-times", "Ignore dates, times and UUIDs in requests of agents behind the gateway."
    )


@with_options
def replay_command(options: ReplayOptions) -> int:
    """Run tests with recorded model answers: no key, no cost."""
    # Without a file, it is the files and tests that the run selected, and new tests in them.
    run = options.run
    if run is not None:
        # A JSON report names its run.
        is_path = run.startswith("pack:") or (Path(run).exists() and not run.endswith(".json"))
        if is_path or options.source is not None:
            options, run = replace(options, paths=(Path(run), *options.paths)), None
    with loading():
        from kindlm.cli.commands.derived_runs import replay

    return replay(options.source or run, options)
