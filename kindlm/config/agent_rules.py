"""Live agents: which adapters there are, and what their addresses look like."""

from __future__ import annotations

import re

from pydantic_core import PydanticCustomError

from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Path, dotted
from kindlm.config.raw import Raw, items
from kindlm.errors import ErrorCode
from kindlm.suggestions import hint_for
from kindlm.values import check_url

OPTIONS = {
    "crewai": ("headers",),
    "http": ("headers", "request", "body", "responsePath", "toolCallsPath"),
    "langgraph": ("headers", "mode", "streaming", "assistantId", "inputKey", "graphConfig"),
    "openai-assistants": ("headers", "assistantId"),
    "python": ("path", "responsePath", "toolCallsPath"),
    "streaming": ("headers", "streaming"),
    "subprocess": (
        *("command", "oneShot", "env", "cwd", "sandbox", "snapshot"),
        *("responsePath", "toolCallsPath"),
    ),
    "tapescope": ("headers", "streaming"),
}
"""What `adapter` can be, and the keys that it takes beside those of all agents."""

OTHER_NAMES = {"jsonl": "tapescope", "openai-assistant": "openai-assistants"}
"""Other names of adapters."""

OPTION_NAMES = tuple(dict.fromkeys(name for names in OPTIONS.values() for name in names))

_ELSEWHERE = ("standard", "streaming")
"""Modes of LangGraph in which there is no server of its own."""

_OF_CLOUD = ("assistantId", "inputKey", "graphConfig")
_NEEDS_NO_ENDPOINT = frozenset({"openai-assistants", "subprocess"})
_OF_LINES = ("responsePath", "toolCallsPath")
_FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def _main_name(adapter: object) -> str | None:
    """Return what an adapter is called that may be written by another name, None if it is none."""
    return OTHER_NAMES.get(adapter, adapter) if isinstance(adapter, str) else None


def check_agents(raw: Raw, reporter: Reporter) -> None:
    """Report adapters that are unknown, and addresses that lead nowhere."""
    for path, agent in items(raw, "agents"):
        check_agent(path, agent, reporter)


def check_agent(path: Path, agent: Raw, reporter: Reporter) -> None:
    """Report what is wrong with one agent, which stands at `path`, in the spelling of its file."""
    key = "adapter" if "adapter" in agent else "type"
    adapter = _main_name(agent.get(key))
    if adapter and adapter not in OPTIONS:
        from kindlm.plugins import Adapter, installed

        of_packages = installed(Adapter.group)
        if adapter in of_packages:
            if "://" in str(agent.get("endpoint", agent.get("url"))):
                _check_endpoint(path, agent, adapter, reporter)
            return
        reporter.error(
            (*path, key),
            f'Unknown adapter "{adapter}"',
            hint_for(adapter, (*OPTIONS, *of_packages), "Known adapters"),
            reason="unknown_adapter",
            code=ErrorCode.PROVIDER_NOT_FOUND,
            value=adapter,
        )
    _check_options(path, agent, adapter, reporter)
    if adapter == "subprocess":
        _check_program(path, agent, reporter)
    else:
        _check_endpoint(path, agent, adapter, reporter)


def _check_options(path: Path, agent: Raw, adapter: str | None, reporter: Reporter) -> None:
    # Of an unknown adapter nobody knows what it takes.
    taken = OPTIONS.get(adapter or "", OPTION_NAMES)
    spelling = reporter.spelling
    for name in OPTION_NAMES:
        if spelling.key(name) in agent and name not in taken:
            users = [user for user, options in OPTIONS.items() if name in options]
            where = f"for the adapter {adapter}"
            hint = f"Remove it: it is for {' and '.join(users)}"
            _meaningless(path, spelling.key(name), where, hint, reporter)
    mode = agent.get("mode")
    for name in _OF_CLOUD if adapter == "langgraph" and mode in _ELSEWHERE else ():
        if spelling.key(name) in agent:
            hint = f"Remove it, or write `{spelling.line('mode', 'cloud')}`"
            _meaningless(path, spelling.key(name), f"in the mode {mode}", hint, reporter)


def _check_program(path: Path, agent: Raw, reporter: Reporter) -> None:
    spelling = reporter.spelling
    if "command" not in agent:
        reporter.missing_key((*path, "command"))
    hint = "Remove it: `command` says what is started"
    meaningless = dict.fromkeys(("endpoint", "url"), ("for the adapter subprocess", hint))
    one_shot = spelling.key("oneShot")
    if agent.get(one_shot) is True:
        hint = "Remove it: what such a program prints is its text"
        of_lines = (spelling.key(name) for name in _OF_LINES)
        meaningless |= dict.fromkeys(of_lines, (f"with `{one_shot}`", hint))
    if agent.get("sandbox", "local") == "local":
        hint = f"Add `{spelling.line('sandbox', 'daytona')}`, or remove it"
        meaningless["snapshot"] = ("without a sandbox", hint)
    for key, (where, hint) in meaningless.items():
        if key in agent:
            _meaningless(path, key, where, hint, reporter)


def _meaningless(path: Path, key: str, where: str, hint: str, reporter: Reporter) -> None:
    message = f"`{key}` has no meaning {where}"
    reporter.error((*path, key), message, hint, reason="schema", at_key=True)


def _check_endpoint(path: Path, agent: Raw, adapter: str | None, reporter: Reporter) -> None:
    key = "url" if "url" in agent and "endpoint" not in agent else "endpoint"
    if key not in agent and adapter not in _NEEDS_NO_ENDPOINT:
        reporter.missing_key((*path, reporter.spelling.key(key)))
    endpoint = agent.get(key)
    if not isinstance(endpoint, str) or not endpoint:
        return
    if adapter == "python" and not _FACTORY.fullmatch(endpoint):
        reporter.error(
            (*path, key),
            f'"{endpoint}" does not name a function',
            "Write it as package.module:function",
            reason="endpoint",
        )
    if adapter != "python" and (adapter in OPTIONS or "://" in endpoint):
        try:
            check_url(endpoint)
        except PydanticCustomError as error:
            context = error.context or {}
            reporter.error(
                (*path, key),
                f"{dotted((*path, key))} {context.get('message')}",
                context.get("hint"),
                reason="endpoint",
                secret=context.get("secret", False),
            )
