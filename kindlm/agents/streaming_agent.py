"""The `tapescope` and `streaming` adapters: agents that answer with a stream of events.

The body is `{"message", "prompt", "route", "userId"}` with the keys of the message's context
beside these or instead of them, and what was said before as `conversation_history`. The answer is
JSON Lines or server-sent events, whichever it says or looks like: see agent_events for what they
mean. With `streaming: false` it is one JSON value, read like that of the http adapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kindlm.agents.agent_events import Heard, hear
from kindlm.agents.event_streams import EventStream, hear_events
from kindlm.agents.http_exchange import EVENT_STREAM, HttpReply, HttpTarget, is_page
from kindlm.agents.http_request import context_with_history, last_user_text
from kindlm.agents.reply_parts import UnreadableReply
from kindlm.agents.reply_reading import QUERY_TEXT_KEYS, Reading, read_reply
from kindlm.agents.served import PageCame, Served, ServedAgent, Streams
from kindlm.errors import Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.strict_json import parse_json, unique_keys
from kindlm.wires.sse import is_sse

_ACCEPT = "application/x-ndjson, text/event-stream, application/json;q=0.9, */*;q=0.8"


class Streaming(Served):
    """Agents that answer with a stream of events."""

    other_names: ClassVar[Mapping[str, str]] = {"tapescope": "tapescope", "jsonl": "tapescope"}

    streaming: Streams = None

    def agent(self, server: HttpTarget) -> StreamingAgent:
        """Return what talks to a server."""
        return StreamingAgent(server, streams=self.streaming is not False)


class StreamingAgent(ServedAgent):
    """Implements `ports.Agent`."""

    def __init__(self, server: HttpTarget, *, streams: bool) -> None:
        super().__init__(server, _ACCEPT if streams else None)
        self._read = _heard if streams else _read

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message; see `ports.Agent`."""
        answer = await self._exchange.post(_body(request), request)
        return await self.reply(request, answer, self._read)


def _body(request: AgentRequest) -> dict[str, Any]:
    text = last_user_text(request)
    return {
        "message": text,
        "prompt": text,
        "route": "conversational",
        "userId": "test-user",
        **context_with_history(request),
    }


def _heard(answer: HttpReply) -> Heard:
    in_frames = answer.kind == EVENT_STREAM or is_sse(answer.text)
    stream = EventStream(answer.text, in_frames, answer.has_end)
    # Bare text may begin with a tag: with events after it, it is a part of an answer.
    if is_page(answer.text) and all(isinstance(piece, str) for piece in stream.pieces()):
        raise PageCame
    return hear_events(stream, Reading(), lambda: hear(stream.pieces()))


def _read(answer: HttpReply) -> Heard:
    try:
        value = parse_json(answer.text, unique_keys)
    except ValueError as error:
        raise UnreadableReply(f"no JSON: {error}") from None
    return Heard(read_reply(value, Reading(QUERY_TEXT_KEYS, may_lack_text=True)))
