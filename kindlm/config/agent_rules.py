"""Live agents: which adapters there are, and what their addresses look like."""

from __future__ import annotations

import re

from pydantic_core import PydanticCustomError

from kindlm.config.diagnostics import Reporter, hint_for, suggest
from kindlm.config.places import Path, dotted
from kindlm.config.raw import Raw, items
from kindlm.config.values import check_url
from kindlm.errors import ErrorCode

__all__ = ["ADAPTERS", "AGENT_KEYS", "check_agents"]

ADAPTERS = ("http", "python")
"""What `adapter` can be."""

AGENT_KEYS = ("id", "adapter", "type", "endpoint", "url", "headers")
"""What all agents have; `type` and `url` are other names of the keys before them."""

_OTHER_NAMES = ("type", "url")
_FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def check_agents(raw: Raw, reporter: Reporter) -> None:
    """Report adapters that are unknown, and addresses that lead nowhere."""
    for path, agent in items(raw, "agents"):
        for key, other in (("adapter", "type"), ("endpoint", "url")):
            if key in agent and other in agent:
                reporter.error(
                    (*path, other),
                    f"`{key}` and `{other}` in {dotted(path)} mean the same",
                    "Remove one of them",
                    reason="schema",
                    at_key=True,
                )
        _check_slips(path, agent, reporter)
        key = "adapter" if "adapter" in agent else "type"
        adapter = agent.get(key)
        if isinstance(adapter, str) and adapter and adapter not in ADAPTERS:
            reporter.error(
                (*path, key),
                f'Unknown adapter "{adapter}"',
                hint_for(adapter, ADAPTERS, "Known adapters"),
                reason="unknown_adapter",
                code=ErrorCode.PROVIDER_NOT_FOUND,
                value=adapter,
            )
        _check_endpoint(path, agent, adapter, reporter)


def _check_slips(path: Path, agent: Raw, reporter: Reporter) -> None:
    """Report slips of the keys that all agents have: any other key is an option of its adapter."""
    for key in agent:
        absent = [own for own in AGENT_KEYS if own not in agent and own not in _OTHER_NAMES]
        meant = suggest(key, absent)
        if meant is not None and key not in _OTHER_NAMES:
            reporter.error(
                (*path, key),
                f'Unknown key "{key}" in {dotted(path)}',
                f'Did you mean "{meant}"?',
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
