"""The `tapescope` and `streaming` adapters: agents that answer with a stream of events.

The body is `{"message", "prompt", "route", "userId"}` with the keys of the message's context
beside these or instead of them, and what was said before as `conversation_history`. The answer is
JSON Lines or server-sent events, whichever it says or looks like: see agent_events for what they
mean. With `streaming: false` it is one JSON value, read like that of the http adapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from pydantic import model_validator

from kindlm.agents.agent_events import EventsDraft
from kindlm.agents.drafts import Heard
from kindlm.agents.event_streams import hear_events
from kindlm.agents.http_agent import HttpAgent, check_body, speaking
from kindlm.agents.http_exchange import EVENT_STREAM, HttpReply, HttpTarget
from kindlm.agents.http_request import (
    BodyTemplate,
    context_with_history,
    form_warnings,
    last_user_text,
    make_body,
    placeholders,
)
from kindlm.agents.protocols import ProtocolName, protocol_named
from kindlm.agents.reply_reading import QUERY_TEXT_KEYS, Reading, read_reply
from kindlm.agents.served import Served, Streams
from kindlm.ports import AgentRequest
from kindlm.wires.answer import parse_body
from kindlm.wires.sse import is_sse

_ACCEPT = "application/x-ndjson, text/event-stream, application/json;q=0.9, */*;q=0.8"


class Streaming(Served):
    """Agents that answer with a stream of events."""

    other_names: ClassVar[Mapping[str, str]] = {"tapescope": "tapescope", "jsonl": "tapescope"}

    streaming: Streams = None
    protocol: ProtocolName = None
    body: BodyTemplate = None

    _body_of_protocol = model_validator(mode="after")(check_body)

    def agent(self, server: HttpTarget) -> HttpAgent:
        """Return what talks to a server."""
        streams = self.streaming is not False
        if self.protocol is not None:
            return speaking(self.protocol, server, self.body, stream=streams)
        return HttpAgent(
            server,
            lambda request, _: _body(request, self.body),
            _heard if streams else _read,
            partial(form_warnings, form="query", template=self.body),
            _ACCEPT if streams else None,
        )

    def sends_system_text(self) -> bool:
        """Tell whether the form of the body has the system text."""
        if self.protocol is not None and protocol_named(self.protocol).says_system:
            return True
        return not {"messages", "system"}.isdisjoint(placeholders(self.body))


def _body(request: AgentRequest, template: Any) -> Any:
    if template is not None:
        return make_body(request, "", template)
    text = last_user_text(request)
    return {
        "message": text,
        "prompt": text,
        "route": "conversational",
        "userId": "test-user",
        **context_with_history(request),
    }


def _heard(answer: HttpReply) -> Heard:
    return hear_events(
        answer.text,
        Reading(),
        has_end=answer.has_end,
        is_sse=answer.kind == EVENT_STREAM or is_sse(answer.text),
        otherwise=EventsDraft(),
    )


def _read(answer: HttpReply) -> Heard:
    return Heard(read_reply(parse_body(answer.text), Reading(QUERY_TEXT_KEYS, may_lack_text=True)))
