"""`kindlm watch`: run tests again whenever a relevant file changes."""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar

from kindlm.cli.commands.test import start_tests
from kindlm.cli.options import TestOptions, command_options, with_options
from kindlm.dataclass import replace

NOT_WATCHED = ("resume", "force_resume", "dry_run")
"""Options of `kindlm test` for a single run."""


@command_options
class WatchOptions(TestOptions):
    """The options of `kindlm watch`: those of `kindlm test` for many runs."""

    takes: ClassVar[tuple[str, ...]] = tuple(
        each.name for each in fields(TestOptions) if each.name not in ("watch", *NOT_WATCHED)
    )


@with_options
def watch_command(options: WatchOptions) -> int:
    """Run tests again whenever a relevant file changes."""
    return start_tests(replace(options, watch=True))
