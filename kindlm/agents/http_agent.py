"""The `http` adapter: agents that take JSON by POST and answer with JSON, text or a stream."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

from kindlm.agents import failures
from kindlm.agents.http_exchange import EVENT_STREAM, HttpExchange, HttpReply
from kindlm.agents.http_options import HttpSettings, http_settings
from kindlm.agents.http_request import form_warnings, make_body
from kindlm.agents.reading_aside import read_aside
from kindlm.agents.reply_reading import (
    AgentFailed,
    Reading,
    Told,
    UnreadableReply,
    agent_reply,
    read_reply,
)
from kindlm.agents.sse import parse_events
from kindlm.agents.stream_reading import read_stream
from kindlm.agents.web_pages import is_page
from kindlm.errors import Err, Ok, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.strict_json import parse_json
from kindlm.suite import AgentTarget

__all__ = ["HttpAgent", "http_agent"]


def http_agent(target: AgentTarget, environ: Mapping[str, str], root: Path) -> Result[HttpAgent]:
    """Make an agent for one conversation; see http_options for its options."""
    del environ, root  # all it needs stands in the target
    settings = http_settings(target)
    return settings if isinstance(settings, Err) else Ok(HttpAgent(settings.value))


class HttpAgent:
    """Implements `ports.Agent`."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._exchange = HttpExchange(settings.target)

    async def __aenter__(self) -> Self:
        """Begin a conversation; nothing is connected before its first message."""
        await self._exchange.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Let go of the connections."""
        await self._exchange.__aexit__(*exception)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message; see `ports.Agent`."""
        settings = self._settings
        body = make_body(request, settings.form, settings.template)
        answer = await self._exchange.post(body, request.timeout_s)
        if isinstance(answer, Err):
            return answer
        got = answer.value
        if is_page(got.text):
            return Err(failures.of_page(settings.target.who, got.text, got.status))
        try:
            told = await read_aside(got.text, partial(_read, got, settings.reading))
        except AgentFailed as failure:
            return Err(failures.of_report(settings.target.who, str(failure), got.text, got.status))
        except UnreadableReply as error:
            return Err(failures.of_reply(settings.target.who, str(error), got.text, got.status))
        warnings = form_warnings(request, settings.form, settings.template)
        return Ok(agent_reply(told, got.text, got.latency_ms, warnings))


def _read(answer: HttpReply, reading: Reading) -> Told:
    if answer.kind == EVENT_STREAM:
        return read_stream(parse_events(answer.text), reading)
    value = _value(answer)
    if not answer.kind.startswith("text/"):
        return read_reply(value, reading)
    told = read_reply(value, Reading() if isinstance(value, str) else reading)
    # What is sent as text and holds no answer is one itself: some agents are to answer with JSON.
    is_text = told.is_whole and not told.tool_uses
    return read_reply(answer.text, Reading()) if is_text else told


def _value(answer: HttpReply) -> Any:
    """Return the JSON value; a body that does not say to be JSON may be bare text, such as 42.

    Many servers send JSON as something else: what frameworks make of a text is often `text/html`.
    """
    is_json = answer.kind.endswith("json")
    try:
        value = parse_json(answer.text)
    except ValueError as error:
        if is_json:
            raise UnreadableReply(f"no JSON: {error}") from None
        return answer.text
    as_told = dict | list if answer.kind.startswith("text/") else dict | list | str
    return value if is_json or isinstance(value, as_told) else answer.text
