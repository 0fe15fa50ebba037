"""LangChain and LangGraph: runnables, compiled graphs and agents, messages and states.

| agent | what it gets | what is carried over to the next message |
|---|---|---|
| a graph with a checkpointer | the message; `thread_id` is the conversation's id | its own thread |
| another graph | `{"messages": […]}` | the messages of its last state |
| a chat model, or a sequence that begins with one | a list of messages | what was said |
| another runnable | the text; `session_id` is the conversation's id | its own session |

It runs by `ainvoke`, with a callback handler that hears of the tools and models that run, also in
graphs within tools or nodes: messages need not report them. A state shows all tool calls that its
messages hold after the message that was sent, if a model of LangChain answered. Messages without
the one that was sent show no other calls than their own: some may have been left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

from kindlm.agents.chat_messages import holds_message, read_messages, summarize
from kindlm.agents.drafts import ReportedCall, ReportedCalls
from kindlm.agents.frameworks import as_json, is_a
from kindlm.agents.http_request import all_messages, last_user_text
from kindlm.agents.langgraph_replies import Sent, read_pieces, read_value
from kindlm.agents.reply_parts import compact_json
from kindlm.dataclass import replace
from kindlm.plugins import AgentReply, AgentRequest, Framework
from kindlm.same_calls import uses_together
from kindlm.transcript import UNNAMED

_PACKAGE = "langchain_core"


class LangChain(Framework):
    """Talks to runnables, and reads messages, states, and pieces of both."""

    takes_system: ClassVar[bool] = True

    def __init__(self) -> None:
        self._said: list[Any] = []
        self._heard: _Heard | None = None

    def is_agent(self, value: Any) -> bool:
        """Tell whether it is a runnable; graphs are."""
        return is_a(value, _PACKAGE, "Runnable")

    async def send(self, agent: Any, request: AgentRequest) -> Any:
        """Invoke the runnable; return its state or its output."""
        first = not self._said
        new = all_messages(request) if first else all_messages(request)[-1:]
        ids = {"thread_id": request.conversation, "session_id": request.conversation}
        self._heard = _Heard()
        config = {"configurable": ids, "callbacks": [_handler()(self._heard)]}
        is_graph = is_a(agent, "langgraph", "Pregel")
        if is_graph and agent.checkpointer:
            self._said = new
            return await agent.ainvoke({"messages": new}, config)
        messages = [*self._said, *new]
        if is_graph:
            state = await agent.ainvoke({"messages": messages}, config)
            told = state.get("messages") if isinstance(state, dict) else None
            self._said = list(told or messages)
            return state
        if is_a(getattr(agent, "first", agent), _PACKAGE, "BaseChatModel"):
            answer = await agent.ainvoke(messages, config)
            self._said = [*messages, answer]
            return answer
        return await agent.ainvoke(last_user_text(request), config)

    async def read(self, result: Any, sent: str) -> AgentReply | None:
        """Return the reply in a state, messages or pieces of a stream, and in what was heard."""
        reply = self._read(result, sent)
        heard, self._heard = self._heard, None
        if heard is None:
            if reply is None or _is_answered(result):
                return reply
            return replace(reply, reports_tools=None)
        if reply is None and isinstance(result, str):
            reply = AgentReply(result, raw=result)
        return None if reply is None else heard.added_to(reply)

    def _read(self, result: Any, text: str) -> AgentReply | None:
        seen = () if self._heard is None else self._heard.calls.uses
        sent = Sent(text, has_history=True, seen=seen)
        if isinstance(result, list) and not all(map(_is_message, result)):
            pieces = as_json(list(_whole(result)))
            return replace(read_pieces(pieces, sent), raw=compact_json(pieces))
        if isinstance(result, dict):
            state = as_json(result)
            return replace(read_value(state, sent), raw=compact_json(state))
        if not (isinstance(result, list) or _is_message(result)):
            return None
        messages = as_json(_put_together(result if isinstance(result, list) else [result]))
        reply = replace(read_value(messages, sent), raw=compact_json(messages))
        return reply if holds_message(messages, text) else replace(reply, reports_tools=None)


@dataclass(slots=True)
class _Heard:
    """The tools that ran for a message, in the order they started, and the answers of models."""

    calls: ReportedCalls = field(default_factory=ReportedCalls)
    runs: dict[Any, ReportedCall] = field(default_factory=dict)
    answers: list[Any] = field(default_factory=list)

    def added_to(self, reply: AgentReply) -> AgentReply:
        """Return a reply with what its messages leave out.

        If no model of LangChain answered, another one may have called tools unnoticed.
        """
        uses = tuple(uses_together(self.calls.uses, reply.tool_uses))
        said = summarize(read_messages(as_json(self.answers)))
        is_known = len(said.models) == 1
        return replace(
            reply,
            tool_uses=uses,
            usage=said.usage if self.answers else reply.usage,
            model=said.models[0] if is_known and reply.model is None else reply.model,
            reports_tools=reply.reports_tools if self.answers else None,
        )


@cache
def _handler() -> Any:
    """Return the callback class that LangChain calls when tools and models run, in any thread."""
    base = import_module("langchain_core.callbacks").BaseCallbackHandler

    class Handler(base):  # type: ignore[misc, valid-type]
        run_inline = True  # in the order of events

        def __init__(self, heard: _Heard) -> None:
            self._heard = heard

        def on_tool_start(
            self, serialized: Any, input_str: str, *, run_id: Any, inputs: Any = None, **more: Any
        ) -> None:
            name = (serialized or {}).get("name") or more.get("name") or UNNAMED
            arguments = input_str if inputs is None else as_json(inputs)
            made = self._heard.calls.add(name, more.get("tool_call_id"), arguments)
            self._heard.runs[run_id] = made

        def on_tool_end(self, output: Any, *, run_id: Any, **more: Any) -> None:
            del more
            if (made := self._heard.runs.get(run_id)) is not None:
                made.answer(as_json(getattr(output, "content", output)))

        def on_tool_error(self, error: BaseException, *, run_id: Any, **more: Any) -> None:
            del more
            if (made := self._heard.runs.get(run_id)) is not None:
                made.answer(str(error), failed=True)

        def on_llm_end(self, response: Any, **more: Any) -> None:
            del more
            answers = [getattr(each[0], "message", None) for each in response.generations if each]
            self._heard.answers += [answer for answer in answers if answer is not None]

    return Handler


def _is_message(value: Any) -> bool:
    return is_a(value, _PACKAGE, "BaseMessage")


def _is_answered(value: Any) -> bool:
    """Return whether a result holds an answer of a model of LangChain.

    Code that calls a model in another way, and writes the answer itself, may call tools.
    """
    if is_a(value, _PACKAGE, "AIMessage"):
        has_run = str(value.id).startswith(("run-", "lc_run-"))
        return bool(value.response_metadata or value.usage_metadata or has_run)
    held = value.values() if isinstance(value, dict) else value
    return isinstance(value, dict | list | tuple) and any(map(_is_answered, held))


def _whole(pieces: list[Any]) -> Iterator[Any]:
    """Yield the pieces of a stream as changes of nodes; those of one message are merged."""
    plain = [
        piece[0] if isinstance(piece, tuple) and _is_message(piece[0]) else piece
        for piece in pieces
    ]
    for piece in _put_together(plain):
        yield {"": {"messages": [piece]}} if _is_message(piece) else piece


def _put_together(messages: list[Any]) -> list[Any]:
    """Return messages with their parts merged: consecutive ones with one id."""
    whole: list[Any] = []
    for message in messages:
        is_part = is_a(message, _PACKAGE, "BaseMessageChunk")
        before = whole[-1] if whole and is_a(whole[-1], _PACKAGE, "BaseMessageChunk") else None
        if is_part and before is not None and before.id == message.id:
            whole[-1] = before + message
        else:
            whole.append(message)
    return whole
