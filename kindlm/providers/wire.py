"""What the wire formats share: a request on its way out, a reply on its way in, JSON between.

A wire format is two pure functions, kept apart from everything that touches a network. Bodies
that come in are untrusted: whatever cannot be read is an `UnreadableReply`, never a crash.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kindlm.ports import ModelRequest, ToolDefinition
from kindlm.transcript import FinishReason, ToolCall, Usage

_MOST_TOKENS = 2**53


class UnreadableReply(ValueError):  # noqa: N818 - it names what arrived
    """A body that is no answer; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A request in a provider's format.

    Attributes:
        body: the JSON body.
        warnings: what the user wrote and this format cannot say, or what was left out.
        ours: names in `body` that the user did not ask for: if a model refuses one of them, the
            request may be sent again without it.
        plainer: those of `ours` that have a plainer form, each with what is remembered in place of
            its name when this one is refused.
    """

    body: dict[str, Any]
    warnings: tuple[str, ...] = ()
    ours: frozenset[str] = frozenset()
    plainer: Mapping[str, str] = field(default_factory=dict)

    def to_remember(self, refused: frozenset[str]) -> frozenset[str]:
        """Return what is to be known of a model that refused some of `ours`."""
        return frozenset(self.plainer.get(name, name) for name in refused)


@dataclass(slots=True)
class Draft:
    """A request in the making, for a model that is known to refuse the parameters `refused`."""

    model: str
    refused: frozenset[str]
    body: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    ours: set[str] = field(default_factory=set)
    plainer: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: Any) -> None:
        """Send what the user asked for, whatever the model thinks of it; None is nothing."""
        if value is not None:
            self.body[name] = value

    def add_ours(self, name: str, value: Any) -> None:
        """Send what the user did not ask for, unless the model refuses it."""
        if name in self.refused:
            self.warn_refused(name)
        else:
            self.body[name] = value
            self.ours.add(name)

    def warn_refused(self, name: str) -> None:
        """Tell that a parameter was left out because the model does not take it."""
        self.warnings.append(f"`{name}` was not sent: {self.model} does not take it")

    def finished(self) -> WireRequest:
        """Return the request."""
        return WireRequest(self.body, tuple(self.warnings), frozenset(self.ours), self.plainer)


@dataclass(frozen=True, slots=True)
class WireReply:
    """What a body says, in our words."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    finish_reason: FinishReason | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Wire:
    """A wire format.

    Attributes:
        path: where requests go, relative to the SDK's base URL.
        encode: makes the request, without the parameters that this model is known to refuse.
        decode: reads a body that is a JSON object, or raises `UnreadableReply`.
    """

    path: str
    encode: Callable[[ModelRequest, frozenset[str]], WireRequest]
    decode: Callable[[Mapping[str, Any], ModelRequest], WireReply]


def compact_json(value: Any) -> str:
    """Return JSON as the model APIs themselves write it: no spaces, text as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def tool_parameters(tool: ToolDefinition) -> dict[str, Any]:
    """Return a tool's parameters as a schema of type object, which both APIs demand."""
    if not tool.parameters:
        return {"type": "object", "properties": {}}
    return {"type": "object", **tool.parameters}


def token_count(value: Any) -> int | None:
    """Return a reported number of tokens, None for anything that can be none.

    A number that is negative, or larger than a database holds, was not counted by anybody.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < _MOST_TOKENS else None


def function_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the calls of a message as OpenAI and Ollama write them, also in OpenAI's older form.

    Older servers send no ids; their calls are numbered.

    Raises:
        UnreadableReply: what stands there is not a list of calls. It may be a forbidden call.
    """
    listed = message.get("tool_calls")
    if listed is not None and not isinstance(listed, list):
        raise UnreadableReply("its `tool_calls` is not a list")
    if not listed and message.get("function_call") is not None:
        listed = [{"function": message["function_call"]}]
    calls = []
    for index, call in enumerate(listed or ()):
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str):
            raise UnreadableReply(f"its tool call {index} has no function name")
        call_id = call.get("id")
        known = isinstance(call_id, str) and call_id
        calls.append(
            ToolCall.told(call_id if known else f"call_{index}", name, function.get("arguments"))
        )
    return tuple(calls)


def error_message(body: Any) -> str | None:
    """Find the human sentence in an error body; providers and proxies put it in various places."""
    if not isinstance(body, Mapping):
        return None
    error = body.get("error", body)
    if isinstance(error, Mapping):
        error = error.get("message", error.get("detail"))
    return error if isinstance(error, str) and error else None
