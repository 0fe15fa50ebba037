"""The body of a request to an HTTP agent: one of four forms, or a template.

| form | body |
|---|---|
| `message` | `{"message", "conversation_id"}`: the agent remembers the conversation |
| `messages` | `{"messages": [{"role", "content"}]}`: all that was said, the system text first |
| `query` | `{"query", "context", "enable_tracing"}`; `context` has what was said before, too |
| `route` | `{"message", "prompt", "route", "userId"}`, and beside these what `context` has |

In a `body` template, `{{message}}`, `{{messages}}`, `{{conversation_id}}` and `{{system}}` stand
for values: a string that is one placeholder becomes the value itself, inside a longer string texts
are inserted as they are, once. Nothing is ever inserted into JSON text, so no value can break it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from kindlm.ports import AgentRequest
from kindlm.strict_json import as_text
from kindlm.suggestions import hint_for
from kindlm.transcript import SYSTEM_NOT_SENT, Message, Role
from kindlm.values import filled, refuse

PLACEHOLDERS = ("message", "messages", "conversation_id", "system")

_PLACEHOLDER = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")


def make_body(request: AgentRequest, form: str, template: Any = None) -> Any:
    """Return the JSON body of a request, by the template if there is one."""
    text = last_user_text(request)
    if template is not None:
        values: dict[str, Any] = {
            "message": text,
            "messages": all_messages(request),
            "conversation_id": request.conversation,
            "system": system_text(request),
        }

        def fill(written: str) -> Any:
            if whole := _PLACEHOLDER.fullmatch(written):
                return values.get(whole[1], written)
            return _PLACEHOLDER.sub(lambda it: as_text(values.get(it[1], it[0])), written)

        return filled(template, fill)
    if form == "messages":
        return {"messages": all_messages(request)}
    if form == "query":
        return {"query": text, "context": context_with_history(request), "enable_tracing": True}
    if form == "route":
        same = {"route": "conversational", "userId": "test-user"}
        return {"message": text, "prompt": text, **same, **context_with_history(request)}
    return {"message": text, "conversation_id": request.conversation}


def says_system(form: str, template: Any) -> bool:
    """Tell whether a body has the system text."""
    if template is None:
        return form == "messages"
    return not {"messages", "system"}.isdisjoint(placeholders(template))


def request_warnings(
    request: AgentRequest,
    *,
    says_system: bool,
    says_context: bool = True,
    system_why: str = "only agents with `request: messages` get one",
    context_why: str = "only agents with `request: query` get one",
) -> tuple[str, ...]:
    """Return what parts of a request are not sent, and why."""
    warnings = []
    if system_text(request) and not says_system:
        warnings.append(f"{SYSTEM_NOT_SENT}: {system_why}")
    if any(message.prefill for message in request.messages):
        warnings.append("prefill was not sent: an agent writes its own answer")
    if request.context and not says_context:
        warnings.append(f"the context was not sent: {context_why}")
    return tuple(warnings)


def last_user_text(request: AgentRequest) -> str:
    """Return the message to answer."""
    users = [message.text for message in request.messages if message.role is Role.USER]
    return users[-1] if users else ""


def all_messages(request: AgentRequest) -> list[dict[str, str]]:
    """Return the whole conversation as `{"role", "content"}`, the system text first."""
    return [_said(message) for message in _spoken(request)]


def context_with_history(request: AgentRequest) -> dict[str, Any]:
    """Return the context of the message, with the earlier conversation if there is any."""
    talk = [message for message in _spoken(request) if message.role is not Role.SYSTEM]
    earlier = [_said(message) for message in talk[:-1]]
    history = {"conversation_history": earlier} if earlier else {}
    return {**(request.context or {}), **history}


def placeholders(template: Any) -> Iterator[str]:
    """Return the names of all placeholders of a template."""
    if isinstance(template, str):
        yield from _PLACEHOLDER.findall(template)
    elif isinstance(template, dict):
        for value in template.values():
            yield from placeholders(value)
    elif isinstance(template, list | tuple):
        for value in template:
            yield from placeholders(value)


def check_placeholders(template: Any) -> Any:
    """Refuse a template with an unknown placeholder; environment variables are already inserted."""
    for name in placeholders(template):
        if name not in PLACEHOLDERS and not name.startswith(("env.", "serve.")):
            hint = hint_for(name, PLACEHOLDERS, "Known")
            raise refuse(f"has the unknown placeholder {{{{{name}}}}}", hint)
    return template


def _spoken(request: AgentRequest) -> list[Message]:
    return [message for message in request.messages if not message.prefill]


def _said(message: Message) -> dict[str, str]:
    return {"role": message.role.value, "content": message.text}


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
