"""The `langgraph` adapter: graphs behind the user's own server, or behind LangGraph's server.

The section "langgraph" of docs/how-to/agents.md has the modes and their requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias
from urllib.parse import quote, urlsplit

from pydantic import Field

from kindlm.agents.agent_failures import AgentFailure
from kindlm.agents.drafts import ParsedAnswer, assemble
from kindlm.agents.event_framing import frames_of
from kindlm.agents.http_request import (
    BodyTemplate,
    context_with_history,
    last_user_text,
    make_body,
    placeholders,
    request_warnings,
)
from kindlm.agents.langgraph_parts import named
from kindlm.agents.langgraph_replies import RunDraft, Sent, read_value
from kindlm.agents.reply_parts import first_text, lookup
from kindlm.agents.served import AssistantId, HttpReply, HttpTarget, Served, ServedAgent, Streams
from kindlm.dataclass import replace
from kindlm.errors import Err, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.section import Maybe, Text
from kindlm.spelling import Spelling
from kindlm.strict_json import parse_json
from kindlm.wires import parse_body

_PORT_OF_SERVER = 2024
_ACCEPT = "text/event-stream, application/json;q=0.9, */*;q=0.8"
_ASSISTANT = "assistant_id"
_HISTORY = "conversation_history"
_THREADS_HINT = (
    "Check that LangGraph's own server is at the endpoint; else set its `mode` to standard"
)


Mode: TypeAlias = Literal["standard", "streaming", "cloud"]


class Graph(Served):
    """Options of graphs behind the user's own server, or behind LangGraph's server."""

    hint: ClassVar[str] = "Check the agent's URL and `mode`, and what its server answers"
    refused_hint: ClassVar[str | None] = (
        "Check the agent's URL, its `mode`, which is `cloud` for LangGraph's own server, and its "
        "`assistantId`; write a `body` if your server takes other keys than `messages`"
    )
    refused: ClassVar[frozenset[int]] = Served.refused | {404, 405}

    mode: Maybe[Mode] = Field(default=None, examples=["cloud"])
    """How the graph is served (`langgraph`): by your server with one JSON value (`standard`) or a
    stream (`streaming`), or by LangGraph's own server (`cloud`). By default `cloud` if `endpoint`
    has the port 2024 or `/threads` in its path, else `streaming` with `streaming: true`, else
    `standard`."""
    streaming: Streams = None
    body: BodyTemplate = None
    assistant_id: AssistantId = None
    input_key: Maybe[Text] = Field(default=None, examples=["question"])
    """Input key for the message (`langgraph` in the mode `cloud`), if the graph takes no
    `messages`."""
    graph_config: Maybe[dict[str, Any]] = Field(default=None, examples=[{"recursion_limit": 50}])
    """The `config` of the graph's runs (`langgraph` in the mode `cloud`)."""

    def agent(self, server: HttpTarget) -> ServedAgent:
        mode, parts = self.mode, urlsplit(server.endpoint)
        if mode is None and (parts.port == _PORT_OF_SERVER or "/threads" in parts.path):
            mode = "cloud"
        mode = mode or ("streaming" if self.streaming else "standard")
        options = self.model_copy(update={"mode": mode})
        return (ThreadAgent if mode == "cloud" else ServedAgent)(server, options)

    def body_for(self, request: AgentRequest, _carried: Any) -> Any:
        if self.body is not None:
            return make_body(request, "", self.body)
        messages = [{"role": "user", "content": last_user_text(request)}]
        return {"messages": messages, **context_with_history(request)}

    def sends_system_text(self) -> bool:
        return not {"messages", "system"}.isdisjoint(placeholders(self.body))

    def not_sent(self, request: AgentRequest) -> tuple[str, ...]:
        sends_system, sends_context = self.sends_system_text(), self.body is None
        return request_warnings(request, sends_system=sends_system, sends_context=sends_context)

    def accepts(self) -> str | None:
        return None if self.mode == "standard" else _ACCEPT

    def parse(self, answer: HttpReply, request: AgentRequest) -> ParsedAnswer:
        """Read one JSON value or a stream, by what the answer is rather than by the mode."""
        has_history = _HISTORY in context_with_history(request)
        sent = Sent(last_user_text(request), has_history)
        if not answer.is_stream:
            return ParsedAnswer(read_value(parse_body(answer.text), sent))
        frames, end = frames_of(answer.text, is_sse=True, may_lack_empty_lines=True)
        parts = frames if self.mode == "cloud" else named(frames)
        draft, check_end = RunDraft(sent), partial(end.check, has_end=answer.has_end)
        parsed = assemble(draft, parts, check_end)
        if (
            self.mode == "cloud"
            or draft.states
            or {it.type for it in parts} <= {"message", "error"}
        ):
            return parsed
        # The server may have selected pieces and events: without a state, calls may be missing.
        shown = bool(parsed.reply.tool_uses) or None
        return replace(parsed, reply=replace(parsed.reply, reports_tools=shown))

    def without_meaning(self, spelling: Spelling) -> Iterator[tuple[str, str, str]]:
        if self.mode in ("standard", "streaming"):
            hint = f"Remove it, or write `{spelling.line('mode', 'cloud')}`"
            for key in ("assistantId", "inputKey", "graphConfig"):
                yield key, f"in the mode {self.mode}", hint
        if self.mode == "cloud":
            hint = f"Remove it, or write `{spelling.line('inputKey', 'question')}`"
            yield "body", "in the mode cloud", hint


class ThreadAgent(ServedAgent):
    """Implements `ports.Agent`: the first message of a conversation creates its thread."""

    def __init__(self, server: HttpTarget, options: Graph) -> None:
        super().__init__(server, options)
        self._graph = options
        # Users may write the endpoint with the path `/threads`.
        parts = urlsplit(server.endpoint)
        path = parts.path.partition("/threads")[0].rstrip("/")
        self._base = parts._replace(path=path, query="", fragment="").geturl()
        self._thread: str | None = None

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message; see `ports.Agent`.

        After a failed run, the content of its thread is unknown: the next message creates a new
        thread with the earlier messages. A graph with an `input_key` takes no messages, so its
        thread is kept.
        """
        result = await super().send(request)
        is_replaceable = self._graph.input_key is None or _HISTORY not in context_with_history(
            request
        )
        if isinstance(result, Err) and is_replaceable:
            self._thread = None
        return result

    async def answer_to(self, request: AgentRequest) -> HttpReply:
        """Send a message, and return the stream of the run; its latency includes a new thread."""
        context, options, is_new = request.context or {}, self._graph, self._thread is None
        body = {
            "assistant_id": context.get(_ASSISTANT) or options.assistant_id or "agent",
            "input": run_input(request, options.input_key, is_new=is_new),
            "stream_mode": ["values", "updates"],
            "stream_subgraphs": True,  # calls within a subgraph may be nowhere else
            "on_disconnect": "cancel",  # nothing reads the rest
        }
        if options.graph_config is not None:
            body["config"] = options.graph_config
        spent_ms = await self._create_thread(request) if is_new else 0.0
        url = f"{self._base}/threads/{quote(str(self._thread), safe='')}/runs/stream"
        answer = await self.post(body, request, url)
        return replace(answer, latency_ms=answer.latency_ms + spent_ms)

    async def _create_thread(self, request: AgentRequest) -> float:
        """Create a thread; returns the latency in milliseconds."""
        body = {"metadata": {"conversation_id": request.conversation}}
        # The headers carry a trace, and the creation of a thread is not part of the answer.
        bare = replace(request, headers={})
        answer = await self.post(body, bare, f"{self._base}/threads")
        try:
            thread = first_text(lookup(parse_json(answer.text), "thread_id"))
        except ValueError:
            thread = None
        if thread is None:
            reason = "it has no `thread_id`"
            failure = self._who.unreadable(reason, answer.text, answer.status, _THREADS_HINT)
            raise AgentFailure(failure)
        self._thread = thread
        return answer.latency_ms


def run_input(request: AgentRequest, key: str | None, *, is_new: bool) -> dict[str, Any]:
    """Return the input of a run: the message, and the values of its context.

    A thread keeps its own messages; a new thread gets the conversation so far.
    """
    beside = context_with_history(request)
    earlier = beside.pop(_HISTORY, [])
    beside.pop(_ASSISTANT, None)
    text = last_user_text(request)
    if key is not None:
        return {key: text, **beside}
    return {"messages": [*(earlier if is_new else ()), {"role": "user", "content": text}], **beside}
