"""What providers share: a request on its way out, an answer on its way in, JSON between.

A format is two pure functions, kept apart from everything that touches a network. Bodies
that come in are untrusted: whatever cannot be read is an `UnreadableReply`, never a crash.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.ports import ModelRequest, ToolDefinition
from kindlm.suite import ModelParams
from kindlm.transcript import Message, ToolCall, Usage
from kindlm.wires.answer import WireAnswer

TO_THINK = "max_tokens.to_think"
"""What is remembered of a model whose answer to a question of ours was cut off: it may think."""

TOKENS_TO_THINK = 25_000
"""As much as OpenAI advises to leave: https://platform.openai.com/docs/guides/reasoning."""


@dataclass(slots=True)
class ApiRequest:
    """A request in a provider's format, for a model that is known to refuse some parameters.

    Attributes:
        model: the model's name at its provider.
        refused: what the model is known to refuse.
        body: the JSON body.
        warnings: what the user wrote and this format cannot say, or what was left out.
        ours: names in `body` that the user did not ask for: if a model refuses one of them, the
            request may be sent again without it.
        plainer: those of `ours` that have a plainer form, each with what is remembered in place of
            its name when this one is refused.
        is_tight: whether it leaves a model that thinks no tokens for that, and may be sent again
            with `TO_THINK` if the answer is cut off.
    """

    model: str
    refused: frozenset[str]
    body: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    ours: set[str] = field(default_factory=set)
    plainer: dict[str, str] = field(default_factory=dict)
    is_tight: bool = False

    def to_remember(self, refused: Iterable[str]) -> frozenset[str]:
        """Return what is to be known of a model that refused some of `ours`."""
        return frozenset(self.plainer.get(name, name) for name in refused)

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

    def add_temperature(self, params: ModelParams) -> None:
        """Send the temperature, which is the user's if it is written in the model's `params`."""
        is_users = "temperature" in params.written or params.temperature is None
        (self.add if is_users else self.add_ours)("temperature", params.temperature)

    def warn_refused(self, name: str) -> None:
        """Tell that a parameter was left out because the model does not take it."""
        self.warnings.append(f"`{name}` was not sent: {self.model} does not take it")


@dataclass(frozen=True, slots=True)
class ApiFormat:
    """The format of a model API.

    Attributes:
        path: where requests go, relative to the SDK's base URL.
        encode: makes the request, without the parameters that this model is known to refuse.
        decode: reads a body that is a JSON object, or raises `UnreadableReply`.
        usage: reads the tokens that such a body reports, whatever else is wrong with it.
    """

    path: str
    encode: Callable[[ModelRequest, frozenset[str]], ApiRequest]
    decode: Callable[[Mapping[str, Any], ModelRequest], WireAnswer]
    usage: Callable[[Mapping[str, Any]], Usage]


def written_arguments(call: ToolCall) -> str:
    """Return the arguments of a call as a model writes them: no spaces, text as it is."""
    if call.malformed is not None:
        return call.malformed
    return json.dumps(call.arguments, ensure_ascii=False, separators=(",", ":"))


def function_tool(tool: ToolDefinition) -> dict[str, Any]:
    """Return a tool as OpenAI defined it, and Ollama took over."""
    described = {} if tool.description is None else {"description": tool.description}
    function = {"name": tool.name, **described, "parameters": tool_parameters(tool)}
    return {"type": "function", "function": function}


def prefill_of(request: ModelRequest) -> str:
    """Return the text that an answer begins with; the model does not repeat it."""
    last = request.messages[-1] if request.messages else None
    return last.text if last is not None and last.prefill else ""


def spoken(request: ModelRequest) -> list[Message]:
    """Return the messages without a prefill that was answered: that answer begins with it."""
    return [each for each in request.messages[:-1] if not each.prefill] + [*request.messages[-1:]]


def tool_parameters(tool: ToolDefinition) -> dict[str, Any]:
    """Return a tool's parameters as a schema of type object, which both APIs demand."""
    if not tool.parameters:
        return {"type": "object", "properties": {}}
    return {"type": "object", **tool.parameters}
