"""`kindlm init`: create a project that runs at once, or with `--agent`, a test of your agent."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import chdir, suppress
from pathlib import Path
from typing import Literal

import typer

from kindlm.cli.console import ask, can_ask, note, or_fail
from kindlm.cli.new_project import create_project, quoted
from kindlm.cli.options import argument, flag, option
from kindlm.errors import DOCS, Err
from kindlm.values import is_url, url_meant

_MODELS = {
    "openai": ("gpt-4o-mini", "OPENAI_API_KEY"),
    "anthropic": ("claude-haiku-4-5", "ANTHROPIC_API_KEY"),
    "ollama": ("llama3.2", None),
}
"""Providers, each with a first model and the usual variable for its key."""

_LIKE_A_KEY = re.compile(
    r"\A(?:sk|pk|rk|gsk|xai|key|hf)[-_]|(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{24}"
)
"""The prefixes of API keys, or a long word of mixed letters and digits."""

_OBJECTS = {
    "langgraph": "agent:graph",
    "pydantic-ai": "agent:agent",
    "openai-agents": "agent:agent",
    "crewai": "agent:crew",
    "llamaindex": "agent:agent",
    "smolagents": "agent:agent",
    "google-adk": "agent:root_agent",
    "autogen": "agent:agent",
    "python": "agent:answer",
}
"""Kinds of agents that are Python objects, with the place of each in its framework's examples."""

_SERVICES = {
    "fastapi": ("python -m uvicorn main:app --port {{serve.agent.port}}", "Uvicorn running"),
    "node": ("node server.mjs", "listening"),
    "http": ("./agent", "listening"),
}
"""Kinds of agents that are services, with a command that starts it and its line when ready."""

_PROGRAM = "program"

KINDS = (*_OBJECTS, *_SERVICES, _PROGRAM)

_ASK = "ask"
"""The value of `--agent` without a value."""


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
    if agent is not None and template not in (None, "scenario"):
        hint = "leave --template out; a URL goes with --template scenario"
        raise typer.BadParameter(hint, param_hint="--agent")
    if agent is not None and (template or "://" in agent):
        from kindlm.scenarios.configuration import agent_at

        or_fail(agent_at(agent))
    if template == "scenario":
        _init_scenarios(folder, agent, force=force)
    elif agent is None:
        _write_project(folder, template or "basic", {}, force=force)
    else:
        _write_project(folder, *_first_test(agent), force=force, assumed=not can_ask())


def _init_scenarios(folder: Path, agent: str | None, *, force: bool) -> None:
    """Write a project with scenarios, and offer to generate tests for the user's agent.

    On a terminal, kindlm asks for the judge and the variable with its key, never for the key.
    """
    question = f"Who judges answers: {', '.join(_MODELS)}"
    provider = _asked(question, "openai", lambda text: _provider(text.lower()))
    model, key = _MODELS[provider]
    model = _asked("Which model", model, _model)
    if key is not None:
        key = _asked("Which environment variable holds the key", key, _variable)
    if agent is None and can_ask():
        agent = ask("URL of your agent (none: use a small bundled one)", "", _url) or None
    settings = {"provider": provider, "model": model, "api_key_env": key}
    lines = [f"{name} = {quoted(value)}" for name, value in settings.items() if value is not None]
    values = {"__LLM__": "\n".join(lines)}
    template = "scenario"
    if agent is not None:
        template = "scenario-url"
        values["__AGENT__"] = quoted(agent)
    _write_project(folder, template, values, force=force)
    if agent is not None and not (can_ask() and _offer_to_generate(model, folder)):
        command = _in_folder(folder, 'kindlm gen --description "what it is for"')
        note(f"More tests, written by a model: {command}")


def _write_project(
    folder: Path, template: str, values: Mapping[str, str], *, force: bool, assumed: bool = False
) -> None:
    """Write a project, and say how to go on; `assumed` answers may need an edit."""
    written = create_project(folder, template, values, overwrite=force)
    note(f"Wrote {', '.join(map(str, written))}.")
    if assumed:
        note(f"Edit {written[0]} where your agent differs from what was assumed.")
    command = "kindlm test test_agent.py" if template == "agent-object" else "kindlm test"
    note(f"Next: {_in_folder(folder, command)}")


def _in_folder(folder: Path, command: str) -> str:
    if folder.resolve() == Path.cwd():
        return command
    return f"cd {shlex.quote(str(folder))} && {command}"


def _offer_to_generate(model: str, folder: Path) -> bool:
    if not typer.confirm(f"Let {model} write tests for it now?", default=False, err=True):
        return False
    from kindlm.cli.commands.gen import GenOptions
    from kindlm.cli.commands.gen_run import write_tests

    description = typer.prompt("What is it for, and which tools does it have", err=True)
    with chdir(folder):
        note(f"In {Path.cwd()}:")
        write_tests(GenOptions(description=description))
    return True


def _model(text: str) -> str:
    name = text.strip()
    if _LIKE_A_KEY.search(name):
        # The error does not repeat the input, which may be a key.
        raise typer.BadParameter("The name of a model, please, such as gpt-4o-mini; never the key.")
    return name


def _url(text: str) -> str:
    from kindlm.scenarios.configuration import agent_at

    url = text.strip()
    found = agent_at(url) if url else None
    if isinstance(found, Err):
        raise typer.BadParameter(found.error.message)
    return url


_FORM = (
    '# request: messages # for an agent that takes {"messages": [...]} instead of'
    ' {"message": "..."}'
)

_PLACE = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*"
_MESSAGE, _TOOL = "Where is my order A1?", "lookup_order"


def _first_test(kind: str) -> tuple[str, dict[str, str]]:
    """Return the first test of an agent: its template and the values of this.

    `kind` is one of `KINDS`, `_ASK`, a URL, or the place of an object, such as `shop.agent:graph`.
    On a terminal, kindlm asks for details.
    """
    if kind != _ASK:
        kind = _agent(kind)
    elif can_ask():
        question = f"What is your agent: {', '.join(KINDS)}, its module:name, or its URL"
        kind = ask(question, "python", _agent)
    else:
        raise typer.BadParameter(f"name its kind: {', '.join(KINDS)}", param_hint="--agent")
    if kind in _SERVICES:
        command, line = _SERVICES[kind]
        question = "Which command starts it, on the port in PORT, or what is its URL if it runs"
        command = _asked(question, command, _command)
        if is_url(command):
            return _at_url(command)
        line = _asked("What does it print once it takes requests", line, str.strip)
        path = _asked("Which path takes messages", "/chat", _read_path)
        url = f"http://127.0.0.1:{{{{serve.agent.port}}}}{path}"
        return "agent-service", _marked(command=command, ready=line, endpoint=url) | _expected()
    if kind == _PROGRAM:
        command = _asked("Which command answers a message", "./agent {{message}}", _command)
        if is_url(command):
            return _at_url(command)
        return "agent-program", _marked(command=command) | _expected()
    if kind in _OBJECTS:
        kind = _asked("Where is it, as module:name", _OBJECTS[kind], _read_place)
    elif "://" in kind:
        return _at_url(kind)
    module, _, name = kind.replace(".py:", ":").partition(":")
    return "agent-object", {"__MODULE__": module, "__OBJECT__": name, **_expected()}


def _agent(text: str) -> str:
    """Return a kind, a place or a URL."""
    agent = text.strip()
    if "://" in agent:
        return _url(agent)
    if (kind := agent.lower()) in KINDS:
        return kind
    if re.fullmatch(_PLACE, agent):
        return agent
    if (url := url_meant(agent)) is not None:
        raise typer.BadParameter(f"Write the whole URL: {url}", param_hint="--agent")
    raise typer.BadParameter(
        f"Write one of {', '.join(KINDS)}; an object such as shop.agent:graph; or a URL such as"
        " http://127.0.0.1:8000/chat."
        f" For an MCP server, begin with the suite in {DOCS}/how-to/mcp/",
        param_hint="--agent",
    )


def _at_url(url: str) -> tuple[str, dict[str, str]]:
    message = _asked("A message for it", _MESSAGE, str.strip)
    word = _asked("A word that its answer must contain", "order", str.strip)
    from kindlm.config.long_form import protocol_of

    form = _FORM
    if (spoken := protocol_of(url)) is not None:
        form = f"protocol: {spoken}\n  # body: {{ model: my-agent }} # keys that each request needs"
    return "agent-url", _marked(url=url, message=message, word=word) | {"# __FORM__": form}


def _expected() -> dict[str, str]:
    message = _asked("A message that needs a tool", _MESSAGE, str.strip)
    return _marked(message=message, tool=_asked("Which tool must it call", _TOOL, str.strip))


def _marked(**texts: str) -> dict[str, str]:
    """Return texts by their marks in templates, such as `"__URL__"`."""
    return {f'"__{name.upper()}__"': quoted(text) for name, text in texts.items()}


def _asked(question: str, default: str, read: Callable[[str], str]) -> str:
    if can_ask():
        return ask(question, default, read)
    note(f"{question}? Assumed: {default}")
    return default


def _answer(form: str, wanted: str) -> Callable[[str], str]:
    """Return a parser of answers. Its errors do not repeat the answer, which may be a key."""

    def read(text: str) -> str:
        if not re.fullmatch(form, text.strip()):
            raise typer.BadParameter(f"{wanted}.")
        return text.strip()

    return read


_provider = _answer("|".join(_MODELS), f"One of {', '.join(_MODELS)}, please")
_read_place = _answer(_PLACE, "A module and a name in it, please, such as shop.agent:graph")
_read_path = _answer(r"/[\w./~-]*", "A path, please, such as /chat")
_variable = _answer(
    r"[A-Z_][A-Z0-9_]{0,63}",
    "The name of a variable, please, such as OPENAI_API_KEY; never the key",
)


def _command(text: str) -> str:
    """Return a command, or the URL that was typed instead of one."""
    if is_url(text.strip()):
        return _url(text)
    with suppress(ValueError):  # an unclosed quotation mark
        if shlex.split(text):
            return text.strip()
    raise typer.BadParameter("A command, please, such as node server.mjs.")
