"""`kindlm test`: run tests and record every event."""

from __future__ import annotations

import os

from kindlm.cli.ending import loading
from kindlm.cli.options import TestOptions, with_options
from kindlm.cli.server_environ import kept_from_tests
from kindlm.guard import ENDED_BY_USER_CODE, guard
from kindlm.keeper import keep


@with_options
def test_command(options: TestOptions) -> int:
    """Run tests and record every event."""
    return start_tests(options)


def start_tests(options: TestOptions) -> int:
    """Run tests once, or with `--watch` again after each change; return the exit code."""
    if options.die_with_parent:
        keep()
        guard.ends_all = True
        if "KINDLM_LEASE" in os.environ:
            guard.code_of_ended = ENDED_BY_USER_CODE
    if options.watch:
        with loading():
            from kindlm.cli.commands.watch_rounds import watch_tests

        return watch_tests(options)
    with loading():
        from kindlm.cli.commands.test_run import run_tests

    with kept_from_tests():
        return run_tests(options)
