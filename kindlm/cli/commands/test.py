"""`kindlm test`: run what the paths hold, record it, report it."""

from __future__ import annotations

import os

import typer

from kindlm.cli.ending import ending_at_once
from kindlm.cli.options import TestOptions, with_options
from kindlm.cli.server_environ import kept_from_tests
from kindlm.garbage import put_off
from kindlm.guard import ENDED_BY_USER_CODE, guard


@with_options
def test_command(options: TestOptions, context: typer.Context) -> int:
    """Run tests and record every event."""
    if options.die_with_parent:
        from kindlm.keeper import keep

        keep()
        guard.ends_all = True
        if "KINDLM_LEASE" in os.environ:
            guard.code_of_ended = ENDED_BY_USER_CODE
    if options.watch or context.info_name == "watch":
        with ending_at_once(), put_off():
            from kindlm.cli.commands.watch import watch_tests

        return watch_tests(options, _typed(context))
    with ending_at_once(), put_off():
        from kindlm.cli.commands.test_run import run_tests

    with kept_from_tests():
        return run_tests(options)


def _typed(context: typer.Context) -> list[str]:
    """Return the options and arguments of the command line, without `--watch`, for another one."""
    options: list[str] = []
    arguments: list[str] = []
    for parameter in context.command.params:
        name = parameter.name
        source = context.get_parameter_source(name) if name else None
        if not name or name == "watch" or source is None or source.name != "COMMANDLINE":
            continue
        given = context.params[name]
        values = given if isinstance(given, list | tuple) else [given]
        if name == "tags":
            # Split by then; and only the last `--tags` of a command line counts.
            values = [",".join(values)]
        long = parameter.opts[0]
        if parameter.param_type_name == "argument":
            arguments += map(str, values)
        else:
            options += [long if value is True else f"{long}={value}" for value in values]
    return [*options, "--", *arguments]
