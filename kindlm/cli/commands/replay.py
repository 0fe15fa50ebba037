"""`kindlm replay`: run tests with the model answers of a recorded run."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

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
    run = options.run
    if run is not None:
        # The first argument may be a path instead. But a JSON report names its run.
        is_path = run.startswith("pack:") or (Path(run).exists() and not run.endswith(".json"))
        if is_path or options.source is not None:
            options, run = replace(options, paths=(Path(run), *options.paths)), None
    with loading():
        from kindlm.cli.commands.derived_runs import replay

    return replay(options.source or run, options)
