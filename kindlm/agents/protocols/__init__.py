"""The protocols that agents over HTTP speak: what is sent, and how an answer is known.

What their answers say is read by their form, whether `protocol` is given or not. Where it is, an
answer in another form is an error, and requests have the form of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from kindlm.ports import AgentRequest
from kindlm.section import Maybe

Name: TypeAlias = Literal["chat", "responses", "anthropic", "ai-sdk", "ag-ui", "a2a", "a2a-0.3"]
ProtocolName = Annotated[
    Maybe[Name],
    Field(
        examples=["responses"],
        description="Protocol of the agent (`http`, `streaming`). Requests have its form, and an "
        "answer in another form is an error. Without it, requests have the form of the adapter, "
        "and kindlm recognises the form of answers.",
    ),
]

_MODULES = {
    "chat": ("model_apis", "CHAT"),
    "responses": ("model_apis", "RESPONSES"),
    "anthropic": ("model_apis", "ANTHROPIC"),
    "ai-sdk": ("ai_sdk", "AI_SDK"),
    "ag-ui": ("ag_ui", "AG_UI"),
    "a2a": ("a2a", "A2A"),
    "a2a-0.3": ("a2a", "A2A_0_3"),
}


def _is_no_json(_value: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol.

    Attributes:
        title: what answers in it are called, as `event_framing.StreamFormat` has it.
        body: makes the body of a request: of the request, whether a stream is asked for, and what
            the last answer asked to be sent back (`Heard.carried`).
        is_answer: tells whether a JSON value is an answer in it; by default no JSON is.
        headers: go with each request.
        says_system: whether a request has the system text.
        says_context: whether a request has the context of the message.
    """

    title: str
    body: Callable[[AgentRequest, bool, Any], dict[str, Any]]
    is_answer: Callable[[Any], bool] = _is_no_json
    headers: Mapping[str, str] = field(default_factory=dict)
    says_system: bool = True
    says_context: bool = False


def protocol_named(name: str) -> Protocol:
    """Return a protocol; its module is imported when it is asked for."""
    module, variable = _MODULES[name]
    found: Protocol = getattr(import_module(f"{__name__}.{module}"), variable)
    return found
