"""`kindlm gen`: write tests for an agent."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.ending import ending_at_once
from kindlm.cli.options import DatabaseOption, VerboseOption, with_options
from kindlm.garbage import put_off
from kindlm.reports.untrusted import one_line


class FileFormat(StrEnum):
    """What files are written in."""

    PYTHON = "python"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class GenOptions:
    """The options of `kindlm gen`, as typed.

    `seen_from` is the way to this folder from where the user is, None if they are here.
    """

    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="URL",
            help="The agent. It is sent a few harmless messages. Default: that of kindlm.toml.",
            show_default=False,
        ),
    ] = None
    description: Annotated[
        str | None,
        typer.Option(
            "--description",
            "-d",
            metavar="TEXT",
            help="What it is for, and which tools it has.",
            show_default=False,
        ),
    ] = None
    system_prompt: Annotated[
        Path | None,
        typer.Option(
            "--system-prompt",
            metavar="FILE",
            help="The instructions that it works by.",
            show_default=False,
        ),
    ] = None
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=1, max=70, help="Tests to write.")
    ] = 10
    categories: Annotated[
        str | None,
        typer.Option(
            "--categories",
            metavar="LIST",
            help="Some of happy, edge, adversarial, guardrail, multi-turn, tool-use, tone."
            " Default: all.",
            show_default=False,
        ),
    ] = None
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Where to write them.")
    ] = "tests/generated"
    form: Annotated[FileFormat, typer.Option("--format", help="What to write them in.")] = (
        FileFormat.PYTHON
    )
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider",
            metavar="NAME",
            help="Who writes them: openai, anthropic or ollama. Default: `llm` of kindlm.toml.",
            show_default=False,
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="The model's name.", show_default=False),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="For models that can answer alike twice.",
            show_default=False,
        ),
    ] = None
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that have the same names.")
    ] = False
    database: DatabaseOption = None
    verbose: VerboseOption = False
    seen_from: Path | None = None

    def command(self, command: str) -> str:
        """Return a command as the user can type it."""
        if self.seen_from is None:
            return command
        return f"cd {shlex.quote(argument_of(self.seen_from))} && {command}"


def argument_of(path: Path) -> str:
    """Return a path as it can stand where options can, too."""
    text = one_line(str(path))
    return f"./{text}" if text.startswith("-") else text


@with_options
def gen_command(options: GenOptions) -> int:
    """Write tests for an agent: a model plans them, files are made of templates.

    What is asked and what it costs is recorded as a run.
    """
    if not options.output:
        # It would be the folder where one is, as for "$DIR" that is not set.
        raise typer.BadParameter("it names no folder", param_hint="--output")
    with ending_at_once(), put_off():
        from kindlm.cli.commands.generation import write_tests

    return write_tests(options)
