"""`kindlm gen`: write tests for an agent."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kindlm.cli.ending import ending_at_once
from kindlm.cli.options import DatabaseOption, VerboseOption
from kindlm.garbage import put_off


class FileFormat(StrEnum):
    """What files are written in."""

    PYTHON = "python"
    YAML = "yaml"


def gen_command(
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="URL",
            help="The agent. It is sent a few harmless messages. Default: that of kindlm.toml.",
            show_default=False,
        ),
    ] = None,
    description: Annotated[
        str | None,
        typer.Option(
            "--description",
            "-d",
            metavar="TEXT",
            help="What it is for, and which tools it has.",
            show_default=False,
        ),
    ] = None,
    system_prompt: Annotated[
        Path | None,
        typer.Option(
            "--system-prompt",
            metavar="FILE",
            help="The instructions that it works by.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=1, max=70, help="Tests to write.")
    ] = 10,
    categories: Annotated[
        str | None,
        typer.Option(
            "--categories",
            metavar="LIST",
            help="Some of happy, edge, adversarial, guardrail, multi-turn, tool-use, tone."
            " Default: all.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Where to write them.")
    ] = "tests/generated",
    form: Annotated[
        FileFormat, typer.Option("--format", help="What to write them in.")
    ] = FileFormat.PYTHON,
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider",
            metavar="NAME",
            help="Who writes them: openai, anthropic or ollama. Default: `llm` of kindlm.toml.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="The model's name.", show_default=False),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="For models that can answer alike twice.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that have the same names.")
    ] = False,
    db: DatabaseOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Write tests for an agent: a model plans them, files are made of templates.

    What is asked and what it costs is recorded as a run.
    """
    if not output:
        # It would be the folder where one is, as for "$DIR" that is not set.
        raise typer.BadParameter("it names no folder", param_hint="--output")
    with ending_at_once(), put_off():
        from kindlm.cli.commands.generation import GenOptions, write_tests

    options = GenOptions(
        agent=agent,
        description=description,
        system_prompt=system_prompt,
        count=count,
        categories=categories,
        output=Path(output),
        form=form.value,
        provider=provider,
        model=model,
        seed=seed,
        force=force,
        database=db,
        verbose=verbose,
    )
    raise typer.Exit(write_tests(options))
