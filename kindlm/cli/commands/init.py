"""`kindlm init`: a project that runs at once."""

from __future__ import annotations

import re
import shlex
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from kindlm.cli.commands.init_agent import KINDS, answer, one_of, write_first_test
from kindlm.cli.console import ask, is_asked, note, or_fail
from kindlm.cli.options import argument, flag, option
from kindlm.cli.scaffold import create_project, quoted
from kindlm.errors import Err, KindlmError, Ok, Result, misuse

if TYPE_CHECKING:
    from kindlm.config.target_schema import AgentConfig

_MODELS = {
    "openai": ("gpt-4o-mini", "OPENAI_API_KEY"),
    "anthropic": ("claude-haiku-4-5", "ANTHROPIC_API_KEY"),
    "ollama": ("llama3.2", None),
}
"""The providers, each with a model to begin with and the variable that usually holds the key."""

_DEFAULT = "openai"

_LIKE_A_KEY = re.compile(
    r"\A(?:sk|pk|rk|gsk|xai|key|hf)[-_]|(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{24}"
)
"""How keys begin, and a word that is too long and too mixed for a name."""


def init_command(
    folder: Path = argument("DIR", "Folder to write to.", default=Path()),
    template: Literal["basic", "agent", "compliance", "evalview", "scenario"] | None = option(
        "--template",
        "basic: one scripted test. agent: a bundled HTTP agent with tools."
        " compliance: the same agent, tested against a rule book."
        " evalview: EvalView test cases for an HTTP agent."
        " scenario: tests as Python functions, for your agent or a bundled one."
        " Default: basic.",
    ),
    agent: str | None = option(
        "--agent KIND|MODULE:NAME|URL",
        f"Create a test of your own agent: {', '.join(KINDS)}; an object such as"
        " shop.agent:graph; or a URL. Without a value, kindlm asks.",
    ),
    force: bool = flag("--force", "Overwrite existing files."),
) -> None:
    """Create a first suite, or a test of your own agent."""
    if template == "scenario":
        _init_scenarios(folder, agent, force=force)
    elif agent is None:
        _tell(folder, create_project(folder, template or "basic", overwrite=force))
    elif template is None:
        if "://" in agent:
            or_fail(agent_at(agent))
        command = write_first_test(folder, agent, force=force)
        note(f"Next: {_there(folder, command)}")
    else:
        hint = "leave --template out; a URL goes with --template scenario"
        raise typer.BadParameter(hint, param_hint="--agent")


def _init_scenarios(folder: Path, agent: str | None, *, force: bool) -> None:
    """Write a project with scenarios, and offer to write more tests for an agent of the user.

    Who judges is asked on a terminal, else the usual. A key is never asked for, only the name of
    its variable.
    """
    if agent is not None:
        or_fail(agent_at(agent))
    provider = _DEFAULT
    if asks := is_asked():
        question = f"Who judges answers: {', '.join(_MODELS)}"
        provider = ask(question, _DEFAULT, lambda text: one_of(_MODELS)(text.lower()))
    model, key = _MODELS[provider]
    if asks:
        model = ask("Which model", model, _model)
        if key is not None:
            key = ask("Which environment variable holds the key", key, _variable)
        if agent is None:
            agent = ask("URL of your agent (none: a small one comes along)", "", _url) or None
    settings = {"provider": provider, "model": model, "api_key_env": key}
    lines = [f"{name} = {quoted(value)}" for name, value in settings.items() if value is not None]
    values = {"__LLM__": "\n".join(lines)}
    template = "scenario"
    if agent is not None:
        template = "scenario-url"
        values["__AGENT__"] = quoted(agent)
    _tell(folder, create_project(folder, template, overwrite=force, values=values))
    if agent is not None and not (asks and _writes_tests(model, folder)):
        command = _there(folder, 'kindlm gen --description "what it is for"')
        note(f"More tests, written by a model: {command}")


def _tell(folder: Path, written: list[Path]) -> None:
    """Show what was written, and what to type next."""
    note(f"Wrote {', '.join(str(path) for path in written)}.")
    note(f"Next: {_there(folder, 'kindlm test')}")


def _there(folder: Path, command: str) -> str:
    """Return a command for a folder as it is typed from here."""
    if folder.resolve() == Path.cwd():
        return command
    return f"cd {shlex.quote(str(folder))} && {command}"


def _writes_tests(model: str, folder: Path) -> bool:
    """Offer to write tests for the agent at once; return whether that was done."""
    if not typer.confirm(f"Let {model} write tests for it now?", default=False, err=True):
        return False
    from kindlm.cli.commands.gen import GenOptions
    from kindlm.cli.commands.generation import write_tests

    above = None if folder.resolve() == Path.cwd() else folder
    description = typer.prompt("What is it for, and which tools does it have", err=True)
    with chdir(folder):
        write_tests(GenOptions(description=description, seen_from=above))
    return True


def _model(text: str) -> str:
    name = text.strip()
    if _LIKE_A_KEY.search(name):
        # As with the variable: what was typed is not repeated.
        raise typer.BadParameter("The name of a model, please, such as gpt-4o-mini; never the key.")
    return name


_variable = answer(
    r"[A-Z_][A-Z0-9_]{0,63}",
    "The name of a variable, please, such as OPENAI_API_KEY; never the key",
)


def _url(text: str) -> str:
    url = text.strip()
    found = agent_at(url) if url else None
    if isinstance(found, Err):
        raise typer.BadParameter(found.error.message)
    return url


def agent_at(url: str) -> Result[AgentConfig]:
    """Return the agent at a URL, or what is wrong with it.

    One with a secret is refused: it is written into files.
    """
    from kindlm.config.diagnostics import Reporter
    from kindlm.document import Document
    from kindlm.scenarios.configuration import agent_config
    from kindlm.secrecy import secret_parts
    from kindlm.spelling import TOML

    if any(secret_parts(url)):
        return Err(secret_in_url())
    reporter = Reporter("", Document(), TOML)
    config = agent_config({"type": "http", "url": url}, reporter)
    if config is not None:
        return Ok(config)
    first = reporter.diagnostics[0].error
    return Err(misuse(f"The URL of the agent is of no use: {first.message}.", first.hint))


def secret_in_url() -> KindlmError:
    """Return the error of a URL that would put a secret into a file."""
    return misuse(
        "The URL of the agent holds a secret, which would be written into a file.",
        "Name the agent in kindlm.toml, with ${env.NAME} for that.",
    )
