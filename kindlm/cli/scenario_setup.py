"""What `kindlm init --template scenario` asks for, and what it makes of the answers."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import typer

from kindlm.cli.agent_url import agent_at
from kindlm.cli.console import is_interactive
from kindlm.cli.history import or_fail
from kindlm.cli.scaffold import quoted
from kindlm.errors import Err

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

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Setup:
    """Who judges, and the agent's URL, None for the one that comes along.

    `key` names a variable, None where no key is needed.
    """

    provider: str
    model: str
    key: str | None
    agent: str | None

    @property
    def template(self) -> str:
        """The folder of templates that fits."""
        return "scenario" if self.agent is None else "scenario-url"

    @property
    def values(self) -> Mapping[str, str]:
        """What is put in place of the marks of the template."""
        lines = [f"provider = {quoted(self.provider)}", f"model = {quoted(self.model)}"]
        if self.key is not None:
            lines += [f"api_key_env = {quoted(self.key)}"]
        marks = {"__LLM__": "\n".join(lines)}
        return marks if self.agent is None else {**marks, "__AGENT__": quoted(self.agent)}


def ask_setup(agent: str | None) -> Setup:
    """Return what a new project is set up with: asked on a terminal, else the usual.

    Never asks for a key, only for the name of its variable.
    """
    if agent is not None:
        or_fail(agent_at(agent))
    if not _is_asked():
        model, key = _MODELS[_DEFAULT]
        return Setup(_DEFAULT, model, key, agent)
    provider = _prompt(f"Who judges answers: {', '.join(_MODELS)}", _DEFAULT, _known_provider)
    model, key = _MODELS[provider]
    model = _prompt("Which model", model, _model)
    if key is not None:
        key = _prompt("Which environment variable holds the key", key, _variable)
    if agent is None:
        agent = _prompt("URL of your agent (none: a small one comes along)", "", _url) or None
    return Setup(provider, model, key, agent)


def offer_tests(setup: Setup, folder: Path) -> bool:
    """Offer to write tests for the agent at once; tell whether that was done."""
    if setup.agent is None or not _is_asked():
        return False
    if not typer.confirm(f"Let {setup.model} write tests for it now?", default=False, err=True):
        return False
    from kindlm.cli.generating import GenOptions, write_tests

    above = None if folder.resolve() == Path.cwd() else folder
    description = typer.prompt("What is it for, and which tools does it have", err=True)
    with chdir(folder):
        write_tests(GenOptions(description=description, seen_from=above))
    return True


def _is_asked() -> bool:
    """Tell whether somebody sits there who could answer."""
    return sys.stdin.isatty() and is_interactive(sys.stderr)


def _prompt(question: str, default: str, read: Callable[[str], str]) -> str:
    answer: str = typer.prompt(
        question, default=default, value_proc=read, err=True, show_default=bool(default)
    )
    return answer


def _known_provider(text: str) -> str:
    provider = text.strip().lower()
    if provider not in _MODELS:
        raise typer.BadParameter(f"One of {', '.join(_MODELS)}, please.")
    return provider


def _model(text: str) -> str:
    name = text.strip()
    if _LIKE_A_KEY.search(name):
        # As with the variable: what was typed is not repeated.
        raise typer.BadParameter("The name of a model, please, such as gpt-4o-mini; never the key.")
    return name


def _variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text.strip()):
        # What was typed is not repeated: it may be the key.
        raise typer.BadParameter(
            "The name of a variable, please, such as OPENAI_API_KEY; never the key."
        )
    return text.strip()


def _url(text: str) -> str:
    url = text.strip()
    found = agent_at(url) if url else None
    if isinstance(found, Err):
        raise typer.BadParameter(found.error.message)
    return url
