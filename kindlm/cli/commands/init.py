"""`kindlm init`: a project that runs at once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.options import VerboseOption


class Template(StrEnum):
    """What there is to start from: a folder of `kindlm/cli/templates` each."""

    BASIC = "basic"
    AGENT = "agent"
    COMPLIANCE = "compliance"
    EVALVIEW = "evalview"
    SCENARIO = "scenario"


def init_command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to write it. Default: here.")
    ] = Path(),
    template: Annotated[
        Template,
        typer.Option(
            "--template",
            help="basic: one scripted test. agent: an agent with tools, on loopback."
            " compliance: the same agent, by what a rule book asks of it."
            " evalview: cases of EvalView for an agent over HTTP."
            " scenario: tests as Python functions, for an agent of yours or one that comes along.",
        ),
    ] = Template.BASIC,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="URL",
            help="The agent that is tested, with --template scenario.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that are there already.")
    ] = False,
    verbose: VerboseOption = False,
) -> None:
    """Write a first suite that runs at once, without key or network."""
    del verbose
    if template is Template.SCENARIO:
        _init_scenarios(folder, agent, force=force)
    elif agent is not None:
        raise typer.BadParameter("it belongs to --template scenario", param_hint="--agent")
    else:
        from kindlm.cli.history import or_fail
        from kindlm.cli.scaffold import create_project

        written = or_fail(create_project(folder, template.value, overwrite=force))
        _tell(folder, written)


def _init_scenarios(folder: Path, agent: str | None, *, force: bool) -> None:
    """Write a project with scenarios, and offer to write more tests for an agent of the user."""
    from kindlm.cli.history import or_fail
    from kindlm.cli.scaffold import create_project
    from kindlm.cli.scenario_setup import ask_setup, offer_tests

    setup = ask_setup(agent)
    written = create_project(folder, setup.template, overwrite=force, values=setup.values)
    _tell(folder, or_fail(written))
    if setup.agent is not None and not offer_tests(setup, folder):
        from kindlm.cli.console import note

        command = _there(folder, 'kindlm gen --description "what it is for"')
        note(f"More tests, written by a model: {command}")


def _tell(folder: Path, written: list[Path]) -> None:
    """Tell what was written, and what to type next."""
    from kindlm.cli.console import note

    note(f"Wrote {', '.join(str(path) for path in written)}.")
    note(f"Next: {_there(folder, 'kindlm test')}")


def _there(folder: Path, command: str) -> str:
    """Return a command for a folder as it is typed from here."""
    import shlex

    if folder.resolve() == Path.cwd():
        return command
    return f"cd {shlex.quote(str(folder))} && {command}"
