"""`kindlm gen`: write tests for an agent."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from kindlm.cli.ending import loading
from kindlm.cli.options import DatabaseOption, with_options
from kindlm.dataclass import dataclass
from kindlm.reports.untrusted import one_line

MAX_TESTS = 1_000
MOST_PLANNED = 70


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
            help="The agent; kindlm sends it a few harmless messages. Default: from kindlm.toml."
            " With --from-…: what the tests run on; also module:name or python:FILE:NAME.",
        ),
    ] = None
    description: Annotated[
        str | None,
        typer.Option(
            "--description", "-d", metavar="TEXT", help="What the agent does, and its tools."
        ),
    ] = None
    system_prompt: Annotated[
        Path | None,
        typer.Option(
            "--system-prompt", metavar="FILE", help="File with the system prompt of the agent."
        ),
    ] = None
    count: Annotated[
        int,
        typer.Option(
            "--count",
            "-n",
            metavar="N",
            min=1,
            max=MAX_TESTS,
            help="Number of tests to write; at most 70 if a model plans them.",
        ),
    ] = 10
    categories: Annotated[
        str | None,
        typer.Option(
            "--categories",
            metavar="LIST",
            help="Any of happy, edge, adversarial, guardrail, multi-turn, tool-use, tone."
            " Default: all.",
        ),
    ] = None
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Folder to write to.")
    ] = "tests/generated"
    form: Annotated[
        Literal["python", "yaml"], typer.Option("--format", help="Language of the tests.")
    ] = "python"
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider",
            metavar="NAME",
            help="Provider of the model, such as openai or groq. Default: from kindlm.toml.",
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="Name of the model."),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Seed, for models that support one."),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False
    from_trace: Annotated[
        Path | None,
        typer.Option(
            "--from-trace",
            metavar="FILE",
            help="Write a test for each trace in FILE: OTLP as JSON, JSON Lines or protobuf, or an"
            " export of Langfuse, LangSmith or Phoenix.",
        ),
    ] = None
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PACKAGE:NAME",
            help="Write tests from attacks of an installed package: garak, pyrit or agentdojo.",
        ),
    ] = None
    from_run: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--from-run", metavar="RUN EXECUTION", help="Write a test for a recorded execution."
        ),
    ] = None
    failed: Annotated[
        bool,
        typer.Option(
            "--failed",
            help="The recorded calls were wrong: write them as a comment, and a criterion to fill"
            " in.",
        ),
    ] = False
    keep_personal_data: Annotated[
        bool,
        typer.Option(
            "--keep-personal-data",
            help="Write personal data of recordings as it is. Secrets are always removed.",
        ),
    ] = False
    database: DatabaseOption = None
    seen_from: Path | None = None

    def command(self, command: str) -> str:
        """Return a command as the user can type it."""
        if self.seen_from is None:
            return command
        return f"cd {shlex.quote(one_line(str(self.seen_from)))} && {command}"


@with_options
def gen_command(options: GenOptions) -> int:
    """Generate tests of an agent with a model, from recordings, or from attacks.

    The model plans the tests, and kindlm writes the files from templates. The calls and their cost
    are recorded as a run. With an option --from…, no model is asked.
    """
    if not options.output:
        # It would be the folder where one is, as for "$DIR" that is not set.
        raise typer.BadParameter("it names no folder", param_hint="--output")
    is_recorded = options.from_trace is not None or options.from_run is not None
    if not is_recorded and (options.failed or options.keep_personal_data):
        name = "--failed" if options.failed else "--keep-personal-data"
        raise typer.BadParameter("it goes with --from-run or --from-trace", param_hint=name)
    if options.from_ is not None:
        from kindlm.cli.commands.gen_suites import write_attacks

        return write_attacks(options, options.from_)
    if is_recorded:
        from kindlm.cli.commands.gen_suites import write_recorded

        return write_recorded(options)
    if options.count > MOST_PLANNED:
        raise typer.BadParameter(f"a model plans at most {MOST_PLANNED}", param_hint="--count")
    with loading():
        from kindlm.cli.commands.generation import write_tests

    return write_tests(options)
