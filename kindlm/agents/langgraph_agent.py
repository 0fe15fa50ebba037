"""The `langgraph` adapter: graphs behind a server of the user's, or behind LangGraph's own.

In the modes `standard` and `streaming` a message is one POST with `{"messages": [{"role",
"content"}]}`, the keys of its context, and what was said before as `conversation_history`. In the
mode `cloud` a conversation is a thread, and a message is a run in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

from kindlm.agents import failures
from kindlm.agents.agent_events import Heard
from kindlm.agents.event_framing import is_sse
from kindlm.agents.http_exchange import EVENT_STREAM, HttpExchange, HttpReply
from kindlm.agents.http_request import context_with_history, last_user_text, request_warnings
from kindlm.agents.langgraph_options import GraphSettings, Mode, graph_settings
from kindlm.agents.langgraph_replies import read_run, read_stream, read_value
from kindlm.agents.langgraph_state import Sent
from kindlm.agents.langgraph_threads import Threads, run_input
from kindlm.agents.reading_aside import read_aside
from kindlm.agents.reply_reading import AgentFailed, UnreadableReply, agent_reply
from kindlm.agents.sse import parse_events
from kindlm.agents.stream_ends import end_of
from kindlm.errors import Err, Ok, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.suite import AgentTarget

__all__ = ["GraphAgent", "langgraph_agent"]

_ACCEPT = "text/event-stream, application/json;q=0.9, */*;q=0.8"
_HINT = "Check the agent's `endpoint` and `mode`, and what its server answers"


def langgraph_agent(
    target: AgentTarget, environ: Mapping[str, str], root: Path
) -> Result[GraphAgent]:
    """Make an agent for one conversation; see langgraph_options for its options."""
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
