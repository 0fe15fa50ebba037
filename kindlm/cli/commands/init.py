"""`kindlm init`: a project that runs at once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.options import VerboseOption

__all__ = ["Template", "init_command"]


class Template(StrEnum):
    """What there is to start from: a folder of `kindlm/cli/templates` each."""

    BASIC = "basic"
    AGENT = "agent"
    COMPLIANCE = "compliance"
    EVALVIEW = "evalview"


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
            " evalview: cases of EvalView for an agent over HTTP.",
        ),
    ] = Template.BASIC,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that are there already.")
    ] = False,
    verbose: VerboseOption = False,
) -> None:
    """Write a first suite that runs at once, without key or network."""
    import shlex

    from kindlm.cli.console import note
    from kindlm.cli.history import or_fail
    from kindlm.cli.scaffold import create_project

    del verbose
    written = or_fail(create_project(folder, template.value, overwrite=force))
    note(f"Wrote {', '.join(str(path) for path in written)}.")
    here = folder.resolve() == Path.cwd()
    note(f"Next: {'' if here else f'cd {shlex.quote(str(folder))} && '}kindlm test")
