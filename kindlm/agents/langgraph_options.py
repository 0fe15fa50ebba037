"""The settings of an agent of LangGraph, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from kindlm.agents.failures import Who, bad_option
from kindlm.agents.http_target import HttpTarget, http_target, unknown_option
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.suggestions import hint_for
from kindlm.suite import AgentTarget

__all__ = ["ASSISTANT", "GraphSettings", "Mode", "graph_settings"]

ASSISTANT = "agent"
"""The assistant that is asked where none is named."""

_OPTIONS = ("mode", "streaming", "assistantId", "inputKey", "graphConfig")
_PORT_OF_SERVER = 2024


class Mode(StrEnum):
    """How a graph is served: by a server of the user's, or by LangGraph's own."""

    STANDARD = "standard"
    STREAMING = "streaming"
    CLOUD = "cloud"


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """How a graph is talked to; the last three are for LangGraph's own server."""

    target: HttpTarget
    mode: Mode
    assistant: str = ASSISTANT
    input_key: str | None = None
    config: Mapping[str, Any] | None = None


def graph_settings(target: AgentTarget) -> Result[GraphSettings]:
    """Check a target and return its settings."""
    checked = http_target(target)
    if isinstance(checked, Err):
        return checked
    error = unknown_option(target, _OPTIONS) or _wrong_option(checked.value.who, target.options)
    if error is not None:
        return Err(error)
    options = target.options
    return Ok(
        GraphSettings(
            checked.value,
            _mode(target),
            options.get("assistantId", ASSISTANT),
            options.get("inputKey"),
            options.get("graphConfig"),
        )
    )


def _mode(target: AgentTarget) -> Mode:
    """Return the mode that is written, else the one that the address speaks for."""
    written = target.options.get("mode")
    if written is not None:
        return Mode(written)
    parts = urlsplit(target.endpoint)
    if parts.port == _PORT_OF_SERVER or "/threads" in parts.path:
        return Mode.CLOUD
    return Mode.STREAMING if target.options.get("streaming") else Mode.STANDARD


def _wrong_option(who: Who, options: Mapping[str, Any]) -> KindlmError | None:
    mode = options.get("mode")
    if mode is not None and mode not in tuple(Mode):
        return bad_option(who, f"`mode` is {mode!r}", hint_for(str(mode), tuple(Mode), "Known"))
    if not isinstance(options.get("streaming", False), bool):
        return bad_option(who, "`streaming` must be true or false")
    for name in ("assistantId", "inputKey"):
        text = options.get(name)
        if text is not None and not (isinstance(text, str) and text):
            return bad_option(who, f"`{name}` must be a text")
    if not isinstance(options.get("graphConfig", {}), dict):
        return bad_option(who, "`graphConfig` must be an object")
    return None
