"""`kindlm watch`: run tests again whenever a relevant file changes."""

from __future__ import annotations

from kindlm.cli.commands.test import start_tests
from kindlm.cli.options import TestOptions, with_options
from kindlm.dataclass import replace


@with_options
def watch_command(options: TestOptions) -> int:
    """Run tests again whenever a relevant file changes."""
    return start_tests(replace(options, watch=True))
