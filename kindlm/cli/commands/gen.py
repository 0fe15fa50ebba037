"""`kindlm gen`: write tests of an agent."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import typer

from kindlm.cli.ending import loading
from kindlm.cli.options import DATABASE, command_options, flag, given_again, option, with_options

MAX_TESTS = 1_000
MOST_PLANNED = 70


@command_options
class GenOptions:
    """The options of `kindlm gen`, as typed."""

    agent: str | None = option(
        "--agent URL",
        "The agent; kindlm sends it a few harmless messages. Default: from kindlm.toml."
        " With --from-…: what the tests run on; also module:name or python:FILE:NAME.",
    )
    description: str | None = option("--description -d TEXT", "What the agent does, and its tools.")
    system_prompt: Path | None = option(
        "--system-prompt FILE", "File with the system prompt of the agent."
    )
    count: int = option(
        "--count -n N",
        "Number of tests to write; at most 70 if a model plans them.",
        default=10,
        min=1,
        max=MAX_TESTS,
    )
    categories: str | None = option(
        "--categories LIST",
        "Any of happy, edge, adversarial, guardrail, multi-turn, tool-use, tone. Default: all.",
    )
    output: str = option("--output -o DIR", "Folder to write to.", default="tests/generated")
    form: Literal["python", "yaml"] = option("--format", "Language of the tests.", default="python")
    provider: str | None = option(
        "--provider NAME",
        "Provider of the model, such as openai or groq. Default: from kindlm.toml.",
    )
    model: str | None = option("--model NAME", "Name of the model.")
    seed: int | None = option("--seed N", "Seed, for models that support one.")
    force: bool = flag("--force", "Overwrite existing files.")
    from_trace: Path | None = option(
        "--from-trace FILE",
        "Write a test for each trace in FILE: OTLP as JSON, JSON Lines or protobuf, or an"
        " export of Langfuse, LangSmith or Phoenix.",
    )
    from_: str | None = option(
        "--from PACKAGE:NAME",
        "Write tests from attacks of an installed package: garak, pyrit or agentdojo.",
    )
    from_run: tuple[str, str] | None = option(
        "--from-run RUN EXECUTION", "Write a test for a recorded execution."
    )
    failed: bool = flag(
        "--failed",
        "The recorded calls were wrong: write them as a comment, and a criterion to fill in.",
    )
    keep_personal_data: bool = flag(
        "--keep-personal-data",
        "Write personal data of recordings as it is. Secrets are always removed.",
    )
    database: Path | None = DATABASE


@with_options
def gen_command(options: GenOptions) -> int:
    """Generate tests from a plan, a recording or attacks.

    A model makes the plan, and kindlm writes the files from templates. It records the calls and
    their cost as a run. With an option --from…, it asks no model.
    """
    if not options.output:
        # An unset "$DIR" must not stand for the current folder.
        raise typer.BadParameter("it names no folder", param_hint="--output")
    is_recorded = options.from_trace is not None or options.from_run is not None
    if not is_recorded and (options.failed or options.keep_personal_data):
        name = "--failed" if options.failed else "--keep-personal-data"
        raise typer.BadParameter("it requires --from-run or --from-trace", param_hint=name)
    if is_recorded and [*given_again(options, ["count"])]:
        raise typer.BadParameter("each recording becomes a test", param_hint="--count")
    asks_model = options.from_ is None and not is_recorded
    if asks_model and options.count > MOST_PLANNED:
        raise typer.BadParameter(f"a model plans at most {MOST_PLANNED}", param_hint="--count")
    with loading():
        from kindlm.cli.commands.gen_run import write_attacks, write_recorded, write_tests

    if options.from_ is not None:
        return write_attacks(options, options.from_)
    return write_recorded(options) if is_recorded else write_tests(options)
