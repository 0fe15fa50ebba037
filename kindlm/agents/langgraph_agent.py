"""The `langgraph` adapter: graphs behind a server of the user's, or behind LangGraph's own.

In the modes `standard` and `streaming` a message is one POST with `{"messages": [{"role",
"content"}]}`, the keys of its context, and what was said before as `conversation_history`. In the
mode `cloud` a conversation is a thread, and a message is a run in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit, urlunsplit

from kindlm.agents import failures
from kindlm.agents.agent_events import Heard
from kindlm.agents.event_framing import is_sse, parse_events
from kindlm.agents.failures import Who, bad_option
from kindlm.agents.http_exchange import EVENT_STREAM, HttpExchange, HttpReply
from kindlm.agents.http_request import context_with_history, last_user_text, request_warnings
from kindlm.agents.http_target import HttpTarget, http_target, unknown_option
from kindlm.agents.json_values import lookup
from kindlm.agents.langgraph_replies import read_run, read_stream, read_value
from kindlm.agents.langgraph_state import Sent
from kindlm.agents.reply_reading import AgentFailed, UnreadableReply, agent_reply
from kindlm.agents.stream_ends import end_of
from kindlm.agents.user_code import read_aside
from kindlm.errors import Err, KindlmError, Ok, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.strict_json import parse_json
from kindlm.suggestions import hint_for
from kindlm.suite import AgentTarget

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


_ASSISTANT = "assistant_id"
_HISTORY = "conversation_history"
_THREADS_HINT = "Check that LangGraph's own server is at the `endpoint`; else set `mode: standard`"


class Threads:
    """The thread of one conversation; it is made with the first message."""

    def __init__(self, settings: GraphSettings, exchange: HttpExchange) -> None:
        self._settings = settings
        self._exchange = exchange
        self._base = _base(settings.target.endpoint)
        self._thread: str | None = None

    async def run(self, request: AgentRequest) -> Result[HttpReply]:
        """Send a message, and return what the run streams; its latency includes a new thread's."""
        try:
            async with asyncio.timeout(request.timeout_s):
                return await self._run(request)
        except TimeoutError:
            return Err(failures.of_timeout(self._settings.target.who, request.timeout_s))

    def leave(self, request: AgentRequest) -> None:
        """Leave a thread in which a run failed: nobody knows what is in it.

        A new one is told what was said before. Where a graph takes no messages it can't be told,
        and the thread goes on.
        """
        if self._settings.input_key is None or _HISTORY not in context_with_history(request):
            self._thread = None

    async def _run(self, request: AgentRequest) -> Result[HttpReply]:
        waited_ms, is_new = 0.0, self._thread is None
        if is_new:
            made = await self._make(request)
            if isinstance(made, Err):
                return made
            waited_ms = made.value
        assert self._thread is not None
        context = request.context or {}
        body = {
            "assistant_id": context.get(_ASSISTANT) or self._settings.assistant,
            "input": run_input(request, self._settings.input_key, is_new=is_new),
            "stream_mode": ["values", "updates"],
            "on_disconnect": "cancel",  # nobody would hear the rest of it
        }
        if self._settings.config is not None:
            body["config"] = self._settings.config
        url = f"{self._base}/threads/{quote(self._thread, safe='')}/runs/stream"
        answer = await self._exchange.post(body, request.timeout_s, url)
        if isinstance(answer, Err):
            return answer
        return Ok(replace(answer.value, latency_ms=answer.value.latency_ms + waited_ms))

    async def _make(self, request: AgentRequest) -> Result[float]:
        """Make a thread; return how long that took in milliseconds."""
        about = {"metadata": {"conversation_id": request.conversation}}
        answer = await self._exchange.post(about, request.timeout_s, f"{self._base}/threads")
        if isinstance(answer, Err):
            return answer
        got = answer.value
        try:
            thread = lookup(parse_json(got.text), "thread_id")
        except ValueError:
            thread = None
        if not isinstance(thread, str) or not thread:
            who, reason = self._settings.target.who, "it has no `thread_id`"
            return Err(failures.of_reply(who, reason, got.text, got.status, _THREADS_HINT))
        self._thread = thread
        return Ok(got.latency_ms)


def run_input(request: AgentRequest, key: str | None, *, is_new: bool) -> dict[str, Any]:
    """Return the input of a run: the message, and beside it the values of its context.

    A thread knows what was said in it; one that is new is told.
    """
    beside = context_with_history(request)
    earlier = beside.pop(_HISTORY, [])
    beside.pop(_ASSISTANT, None)
    text = last_user_text(request)
    if key is not None:
        return {key: text, **beside}
    return {"messages": [*(earlier if is_new else ()), {"role": "user", "content": text}], **beside}


def _base(endpoint: str) -> str:
    """Return the address of the server; the endpoint may name the threads on it."""
    parts = urlsplit(endpoint)
    path = parts.path.partition("/threads")[0].rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


_ACCEPT = "text/event-stream, application/json;q=0.9, */*;q=0.8"
_HINT = "Check the agent's `endpoint` and `mode`, and what its server answers"


def langgraph_agent(
    target: AgentTarget, environ: Mapping[str, str], root: Path
) -> Result[GraphAgent]:
    """Make an agent for one conversation."""
    del environ, root  # all it needs stands in the target
    settings = graph_settings(target)
    return settings if isinstance(settings, Err) else Ok(GraphAgent(settings.value))


class GraphAgent:
    """Implements `ports.Agent`."""

    def __init__(self, settings: GraphSettings) -> None:
        self._settings = settings
        streams = settings.mode is not Mode.STANDARD
        self._exchange = HttpExchange(settings.target, _ACCEPT if streams else None)
        self._threads = Threads(settings, self._exchange)

    async def __aenter__(self) -> Self:
        """Begin a conversation; nothing is connected before its first message."""
        await self._exchange.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Let go of the connections."""
        await self._exchange.__aexit__(*exception)

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message; see `ports.Agent`."""
        if self._settings.mode is not Mode.CLOUD:
            answer = await self._exchange.post(_body(request), request.timeout_s)
            return answer if isinstance(answer, Err) else await self._read(request, answer.value)
        answer = await self._threads.run(request)
        result = answer if isinstance(answer, Err) else await self._read(request, answer.value)
        if isinstance(result, Err):
            self._threads.leave(request)
        return result

    async def _read(self, request: AgentRequest, got: HttpReply) -> Result[AgentReply]:
        who = self._settings.target.who
        try:
            heard = await read_aside(got.text, partial(self._heard, request, got))
        except AgentFailed as failure:
            return Err(failures.of_report(who, str(failure), got.text, got.status))
        except UnreadableReply as error:
            return Err(failures.of_reply(who, error, got.text, got.status, _HINT))
        warnings = (*request_warnings(request, says_system=False), *heard.warnings)
        return Ok(agent_reply(heard.told, got.text, got.latency_ms, warnings))

    def _heard(self, request: AgentRequest, got: HttpReply) -> Heard:
        """Read an answer as what it is, whatever was asked for."""
        in_cloud = self._settings.mode is Mode.CLOUD
        has_history = "conversation_history" in context_with_history(request)
        values = (
            run_input(request, self._settings.input_key, is_new=False)
            if in_cloud
            else _body(request)
        )
        sent = Sent(last_user_text(request), values, has_history)
        if got.kind != EVENT_STREAM and not is_sse(got.text):
            return read_value(got.text, sent)
        heard = (read_run if in_cloud else read_stream)(got.text, sent)
        end_of(parse_events(got.text)).check(has_end=got.has_end)
        return heard


def _body(request: AgentRequest) -> dict[str, Any]:
    """Return what is sent to a server of the user's."""
    said = [{"role": "user", "content": last_user_text(request)}]
    return {"messages": said, **context_with_history(request)}
