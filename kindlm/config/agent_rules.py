"""Live agents: which adapters there are, and what their addresses look like."""

from __future__ import annotations

import re

from pydantic_core import PydanticCustomError

from kindlm.config.diagnostics import Reporter
from kindlm.config.places import Path, dotted
from kindlm.config.raw import Raw, items
from kindlm.config.values import check_url
from kindlm.errors import ErrorCode
from kindlm.suggestions import hint_for

__all__ = ["OPTIONS", "OPTION_NAMES", "check_agents"]

OPTIONS = {
    "http": ("headers", "request", "body", "responsePath", "toolCallsPath"),
    "openai-assistants": ("headers",),
    "python": ("path", "responsePath", "toolCallsPath"),
    "streaming": ("headers",),
    "tapescope": ("headers",),
}
"""What `adapter` can be, and the keys that it takes beside those of all agents."""

OPTION_NAMES = tuple(dict.fromkeys(name for names in OPTIONS.values() for name in names))

_FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def check_agents(raw: Raw, reporter: Reporter) -> None:
    """Report adapters that are unknown, and addresses that lead nowhere."""
    for path, agent in items(raw, "agents"):
        key = "adapter" if "adapter" in agent else "type"
        adapter = agent.get(key)
        if isinstance(adapter, str) and adapter and adapter not in OPTIONS:
            reporter.error(
                (*path, key),
                f'Unknown adapter "{adapter}"',
                hint_for(adapter, OPTIONS, "Known adapters"),
                reason="unknown_adapter",
                code=ErrorCode.PROVIDER_NOT_FOUND,
                value=adapter,
            )
        _check_options(path, agent, adapter, reporter)
        _check_endpoint(path, agent, adapter, reporter)


def _check_options(path: Path, agent: Raw, adapter: object, reporter: Reporter) -> None:
    # Of an unknown adapter nobody knows what it takes.
    taken = OPTIONS.get(adapter, OPTION_NAMES) if isinstance(adapter, str) else OPTION_NAMES
    for key in OPTION_NAMES:
        if key in agent and key not in taken:
            users = [name for name, options in OPTIONS.items() if key in options]
            reporter.error(
                (*path, key),
                f"`{key}` has no meaning for the adapter {adapter}",
                f"Remove it: it is for {' and '.join(users)}",
                reason="schema",
                at_key=True,
            )


def _check_endpoint(path: Path, agent: Raw, adapter: object, reporter: Reporter) -> None:
    key = "endpoint" if "endpoint" in agent else "url"
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
    if adapter == "http":
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
