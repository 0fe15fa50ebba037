"""The body of a request to an HTTP agent: one of four forms, or a template.

The forms are in docs/how-to/agents.md, `message`, `messages` and `query` under "http", and `route`
under "tapescope and streaming".

A `body` template has `{{message}}`, `{{messages}}`, `{{conversation_id}}` and `{{system}}`. A
string that is one placeholder becomes the value itself. Inside a longer string, kindlm inserts the
value as text, once. It never inserts into JSON text, so no value can break the JSON.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from kindlm.ports import AgentRequest
from kindlm.strict_json import as_text
from kindlm.suggestions import hint_for
from kindlm.transcript import SYSTEM_NOT_SENT, Role
from kindlm.values import filled, refuse

PLACEHOLDERS = ("message", "messages", "conversation_id", "system")

_NO_PLACE = "requests to this agent have no place for it"
_PLACEHOLDER = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")


def make_body(request: AgentRequest, form: str, template: Any = None) -> Any:
    """Return the JSON body of a request: the filled template, else the form."""
    text = last_user_text(request)
    if template is not None:
        values: dict[str, Any] = {
            "message": text,
            "messages": all_messages(request),
            "conversation_id": request.conversation,
            "system": system_text(request),
        }

        def fill(text: str) -> Any:
            if whole := _PLACEHOLDER.fullmatch(text):
                return values.get(whole[1], text)
            return _PLACEHOLDER.sub(lambda it: as_text(values.get(it[1], it[0])), text)

        return filled(template, fill)
    if form == "messages":
        return {"messages": all_messages(request)}
    if form == "query":
        return {"query": text, "context": context_with_history(request), "enable_tracing": True}
    if form == "route":
        fixed = {"route": "conversational", "userId": "test-user"}
        return {"message": text, "prompt": text, **fixed, **context_with_history(request)}
    return {"message": text, "conversation_id": request.conversation}


def request_warnings(
    request: AgentRequest, *, sends_system: bool, sends_context: bool = True
) -> tuple[str, ...]:
    """Return warnings about parts of a request that are not sent."""
    warnings = []
    if system_text(request) and not sends_system:
        warnings.append(f"{SYSTEM_NOT_SENT}: {_NO_PLACE}")
    if any(message.prefill for message in request.messages):
        warnings.append("prefill was not sent: an agent writes its own answer")
    if request.context and not sends_context:
        warnings.append(f"the context was not sent: {_NO_PLACE}")
    return tuple(warnings)


def last_user_text(request: AgentRequest) -> str:
    """Return the message to answer."""
    users = [message.text for message in request.messages if message.role is Role.USER]
    return users[-1] if users else ""


def all_messages(request: AgentRequest) -> list[dict[str, str]]:
    """Return the whole conversation as `{"role", "content"}`, the system text first."""
    return [
        {"role": message.role.value, "content": message.text}
        for message in request.messages
        if not message.prefill
    ]


def context_with_history(request: AgentRequest) -> dict[str, Any]:
    """Return the context of the message, with the earlier conversation if there is any."""
    messages = [message for message in all_messages(request) if message["role"] != "system"]
    earlier = messages[:-1]
    history = {"conversation_history": earlier} if earlier else {}
    return {**(request.context or {}), **history}


def placeholders(template: Any) -> list[str]:
    """Return the names of all placeholders of a template."""
    return _PLACEHOLDER.findall(repr(template))


def check_placeholders(template: Any, *, key: str | None = None) -> Any:
    """Refuse a template with an unknown placeholder; `key` is its key in the validated mapping."""
    for name in placeholders(template):
        if name not in PLACEHOLDERS and not name.startswith(("env.", "serve.")):
            hint = hint_for(name, PLACEHOLDERS, "Known")
            raise refuse(f"has the unknown placeholder {{{{{name}}}}}", hint, key=key)
    return template


def system_text(request: AgentRequest) -> str:
    """Return the system text, empty if there is none."""
    texts = [message.text for message in request.messages if message.role is Role.SYSTEM]
    return "\n\n".join(texts)


BodyTemplate = Annotated[
    Any,
    AfterValidator(check_placeholders),
    Field(
        examples=[{"input": {"text": "{{message}}"}}],
        description="Your own template of the JSON body (`http`, `streaming`), with {{message}}, "
        "{{messages}}, {{system}} and {{conversation_id}}. With `protocol`, an object whose keys "
        "are added to the body of the protocol.",
    ),
]
