"""The `tapescope` and `streaming` adapters: agents that answer with a stream of events.

The body is `{"message", "prompt", "route", "userId"}` with the keys of the message's context
beside these or instead of them, and what was said before as `conversation_history`. The answer is
JSON Lines or server-sent events, whichever it says or looks like: see agent_events for what they
mean. With `streaming: false` it is one JSON value, read like that of the http adapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

from kindlm.agents import failures
from kindlm.agents.agent_events import Heard, hear
from kindlm.agents.event_framing import is_sse
from kindlm.agents.event_streams import EventStream, hear_events
from kindlm.agents.http_exchange import EVENT_STREAM, HttpExchange, HttpReply, is_page
from kindlm.agents.http_request import context_with_history, last_user_text, request_warnings
from kindlm.agents.http_target import HttpTarget, http_target, unknown_option
from kindlm.agents.reply_reading import (
    QUERY_TEXT_KEYS,
    AgentFailed,
    Reading,
    UnreadableReply,
    agent_reply,
    read_reply,
)
from kindlm.agents.user_code import read_aside
from kindlm.errors import Err, Ok, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.strict_json import parse_json, unique_keys
from kindlm.suite import AgentTarget

_OPTIONS = ("streaming",)
_ACCEPT = "application/x-ndjson, text/event-stream, application/json;q=0.9, */*;q=0.8"


def streaming_agent(
    target: AgentTarget, environ: Mapping[str, str], root: Path
) -> Result[StreamingAgent]:
    """Make an agent for one conversation."""
    del environ, root  # all it needs stands in the target
    checked = http_target(target)
    if isinstance(checked, Err):
        return checked
    streams = target.options.get("streaming", True)
    error = unknown_option(target, _OPTIONS)
    if error is None and not isinstance(streams, bool):
        error = failures.bad_option(checked.value.who, "`streaming` must be true or false")
    return Err(error) if error else Ok(StreamingAgent(checked.value, streams=streams))


class StreamingAgent:
    """Implements `ports.Agent`."""

    def __init__(self, target: HttpTarget, *, streams: bool) -> None:
        self._who = target.who
        self._exchange = HttpExchange(target, _ACCEPT if streams else None)
        self._streams = streams

    async def __aenter__(self) -> Self:
        """Begin a conversation; nothing is connected before its first message."""
        await self._exchange.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Let go of the connections."""
        await self._exchange.__aexit__(*exception)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message; see `ports.Agent`."""
        answer = await self._exchange.post(_body(request), request.timeout_s)
        if isinstance(answer, Err):
            return answer
        got = answer.value
        try:
            heard = await read_aside(got.text, partial(_heard if self._streams else _read, got))
        except _PageCame:
            return Err(failures.of_page(self._who, got.text, got.status))
        except AgentFailed as failure:
            return Err(failures.of_report(self._who, str(failure), got.text, got.status))
        except UnreadableReply as error:
            return Err(failures.of_reply(self._who, error, got.text, got.status))
        warnings = (*request_warnings(request, says_system=False), *heard.warnings)
        return Ok(agent_reply(heard.told, got.text, got.latency_ms, warnings))


class _PageCame(Exception):  # noqa: N818 - it names what arrived
    """An HTML page, and no event."""


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
        raise _PageCame
    return hear_events(stream, Reading(), lambda: hear(stream.pieces()))


def _read(answer: HttpReply) -> Heard:
    try:
        value = parse_json(answer.text, unique_keys)
    except ValueError as error:
        raise UnreadableReply(f"no JSON: {error}") from None
    return Heard(read_reply(value, Reading(QUERY_TEXT_KEYS, may_lack_text=True)))
