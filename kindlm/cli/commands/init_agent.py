"""`kindlm init --agent`: the first test of an agent of the user, in the form that fits it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import typer

from kindlm.cli.console import ask, is_asked, note
from kindlm.cli.scaffold import create_project, quoted
from kindlm.errors import DOCS
from kindlm.values import url_meant

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
"""Kinds of agents that are objects in Python, and where each may be."""

_SERVICES = {
    "fastapi": ("python -m uvicorn main:app --port {{serve.agent.port}}", "Uvicorn running"),
    "node": ("node server.mjs", "listening"),
    "http": ("./agent", "listening"),
}
"""Kinds of agents that are services: how each may be started, what it prints when it is ready."""

_PROGRAM = "program"

KINDS = (*_OBJECTS, *_SERVICES, _PROGRAM)

ASK = "ask"
"""The kind that stands for the question which one it is."""

_FORM = (
    '# request: messages # for an agent that takes {"messages": [...]} instead of'
    ' {"message": "..."}'
)

_PLACE = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*"
_MESSAGE, _TOOL = "Where is my order A1?", "lookup_order"


_FirstTest: TypeAlias = tuple[str, Mapping[str, str]]
"""What is written: a template and its values."""


def write_first_test(folder: Path, kind: str, *, force: bool) -> str:
    """Write the first test of an agent, and return the command that runs it.

    `kind` is one of `KINDS`, `ASK`, the URL of an agent that is running, or the place of an object,
    such as `shop.agent:graph`. What is
    not known is asked on a terminal.
    """
    if kind == ASK:
        if not is_asked():
            raise typer.BadParameter(f"name its kind: {', '.join(KINDS)}", param_hint="--agent")
        kind = ask(f"What is your agent: {', '.join(KINDS)}", "python", one_of(KINDS))
    if kind in _SERVICES:
        test = _of_service(*_SERVICES[kind])
    elif kind == _PROGRAM:
        test = _of_program()
    elif kind in _OBJECTS:
        test = _of_object(_asked("Where is it, as module:name", _OBJECTS[kind], _read_place))
    elif "://" in kind:
        test = _at_url(kind)
    elif re.fullmatch(_PLACE, kind):
        test = _of_object(kind)
    elif (url := url_meant(kind)) is not None:
        raise typer.BadParameter(f"write the whole URL: {url}", param_hint="--agent")
    else:
        raise typer.BadParameter(
            f"one of {', '.join(KINDS)}; a place such as shop.agent:graph; or a URL such as"
            " http://127.0.0.1:8000/chat."
            f" For an MCP server, begin with the suite in {DOCS}/how-to/agents/#mcp",
            param_hint="--agent",
        )
    template, values = test
    written = create_project(folder, template, overwrite=force, values=values)
    note(f"Wrote {', '.join(str(path) for path in written)}.")
    if not is_asked():
        note(f"Edit {written[0]} where your agent differs from what was assumed.")
    return "kindlm test test_agent.py" if template == "agent-object" else "kindlm test"


def _of_object(place: str) -> _FirstTest:
    module, _, name = place.partition(":")
    values = {"__MODULE__": module, "__OBJECT__": name, **_expected()}
    return "agent-object", values


def _of_service(command: str, line: str) -> _FirstTest:
    command = _asked("Which command starts it, on the port in PORT", command, _command)
    line = _asked("What does it print once it takes requests", line, str.strip)
    path = _asked("Which path takes messages", "/chat", _read_path)
    values = {
        '"__COMMAND__"': quoted(command),
        '"__READY__"': quoted(line),
        '"__ENDPOINT__"': quoted(f"http://127.0.0.1:{{{{serve.agent.port}}}}{path}"),
        **_expected(),
    }
    return "agent-service", values


def _at_url(url: str) -> _FirstTest:
    message = _asked("A message for it", _MESSAGE, str.strip)
    word = _asked("A word that its answer must contain", "order", str.strip)
    from kindlm.config.left_out import protocol_of

    spoken = protocol_of(url)
    values = {
        '"__URL__"': quoted(url),
        "# __FORM__": _FORM
        if spoken is None
        else f"protocol: {spoken}\n  # body: {{ model: my-agent }} # keys that each request needs",
        '"__MESSAGE__"': quoted(message),
        '"__WORD__"': quoted(word),
    }
    return "agent-url", values


def _of_program() -> _FirstTest:
    command = _asked("Which command answers a message", "./agent {{message}}", _command)
    return "agent-program", {'"__COMMAND__"': quoted(command), **_expected()}


def _expected() -> dict[str, str]:
    message = _asked("A message that needs a tool", _MESSAGE, str.strip)
    return {
        '"__MESSAGE__"': quoted(message),
        '"__TOOL__"': quoted(_asked("Which tool must it call", _TOOL, str.strip)),
    }


def _asked(question: str, default: str, read: Callable[[str], str]) -> str:
    if is_asked():
        return ask(question, default, read)
    note(f"{question}? Assumed: {default}")
    return default


def answer(form: str, wanted: str) -> Callable[[str], str]:
    """Return what reads an answer of a form; another one is not repeated: it may be a key."""

    def read(text: str) -> str:
        if not re.fullmatch(form, text.strip()):
            raise typer.BadParameter(f"{wanted}.")
        return text.strip()

    return read


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """Return what reads one of some names."""
    return answer("|".join(map(re.escape, names)), f"One of {', '.join(names)}, please")


_read_place = answer(_PLACE, "A module and a name in it, please, such as shop.agent:graph")
_read_path = answer(r"/[\w./~-]*", "A path, please, such as /chat")


def _command(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise typer.BadParameter(f"A command, please: {error}.") from None
    if not words:
        raise typer.BadParameter("A command, please, such as node server.mjs.")
    return text.strip()
