"""LangChain and LangGraph: runnables, compiled graphs and agents, messages and states.

docs/how-to/python-agents.md says what each kind of runnable gets, and how the conversation is
carried over.

kindlm calls `ainvoke` with a callback handler, which observes all tools and models that run, also
in graphs within tools or nodes. If a model of LangChain answered, the messages after the one that
was sent show all tool calls. Without the sent message, earlier messages may be missing, and with
them tool calls. The same holds for a state or a stream without any message of the user.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

from kindlm.agents.chat_messages import holds_message, read_messages
from kindlm.agents.drafts import ReportedCall, ReportedCalls
from kindlm.agents.frameworks import as_json, is_a
from kindlm.agents.http_request import all_messages, last_user_text
from kindlm.agents.langgraph_parts import part
from kindlm.agents.langgraph_replies import Sent, read_parts, read_value
from kindlm.agents.reply_parts import compact_json
from kindlm.agents.reply_usage import spent_together
from kindlm.dataclass import replace
from kindlm.plugins import AgentReply, AgentRequest, Framework
from kindlm.same_calls import merged_uses
from kindlm.transcript import UNNAMED

_PACKAGE = "langchain_core"
_GRAPHS = "langgraph"


class LangChain(Framework):
    """Talks to runnables, and reads messages, states, and pieces of both."""

    takes_system: ClassVar[bool] = True

    def __init__(self) -> None:
        self._messages: list[Any] = []
        self._observed: _Observed | None = None

    def is_agent(self, value: Any) -> bool:
        return is_a(value, _PACKAGE, "Runnable")

    async def send(self, agent: Any, request: AgentRequest) -> Any:
        first = not self._messages
        new = all_messages(request) if first else all_messages(request)[-1:]
        ids = {"thread_id": request.conversation, "session_id": request.conversation}
        self._observed = _Observed()
        config = {"configurable": ids, "callbacks": [_handler()(self._observed)]}
        is_graph = is_a(agent, _GRAPHS, "Pregel")
        if is_graph and agent.checkpointer:
            self._messages = new
            return await agent.ainvoke({"messages": new}, config)
        messages = [*self._messages, *new]
        if is_graph:
            state = await agent.ainvoke({"messages": messages}, config)
            after = state.get("messages") if isinstance(state, dict) else None
            self._messages = list(after or messages)
            return state
        if is_a(getattr(agent, "first", agent), _PACKAGE, "BaseChatModel"):
            answer = await agent.ainvoke(messages, config)
            self._messages = [*messages, answer]
            return answer
        return await agent.ainvoke(last_user_text(request), config)

    async def read(self, result: Any, sent: str) -> AgentReply | None:
        """Return the reply in a state, in messages or in a stream, with what callbacks observed."""
        if isinstance(result, list) and not all(map(_is_message, result)):
            result = list(map(part, result))
        reply = self._read(result, sent)
        observed, self._observed = self._observed, None
        if observed is None:
            if reply is None or (_is_answered(result) and _is_whole(result)):
                return reply
            return replace(reply, reports_tools=bool(reply.tool_uses) or None)
        if reply is None and isinstance(result, str):
            reply = AgentReply(result, raw=result)
        return None if reply is None else observed.added_to(reply)

    def _read(self, result: Any, text: str) -> AgentReply | None:
        seen = () if self._observed is None else self._observed.calls.uses
        sent = Sent(text, has_history=True, seen=seen)
        if isinstance(result, list) and not all(map(_is_message, result)):
            parts = as_json(list(_as_updates(result)))
            return replace(read_parts(parts, sent), raw=compact_json([data for _, data in parts]))
        if isinstance(result, dict):
            state = as_json(result)
            return replace(read_value(state, sent), raw=compact_json(state))
        if not (isinstance(result, list) or _is_message(result)):
            return None
        messages = as_json(_merged(result if isinstance(result, list) else [result]))
        reply = replace(read_value(messages, sent), raw=compact_json(messages))
        return reply if holds_message(messages, text) else replace(reply, reports_tools=None)


@dataclass(slots=True)
class _Observed:
    """The tools that ran for a message, in the order they started, and the answers of models."""

    calls: ReportedCalls = field(default_factory=ReportedCalls)
    runs: dict[Any, ReportedCall] = field(default_factory=dict)
    answers: list[Any] = field(default_factory=list)

    def added_to(self, reply: AgentReply) -> AgentReply:
        """Return a reply, completed by what was observed.

        If no model of LangChain answered, another model may have called tools unobserved.
        """
        answers = read_messages(as_json(self.answers))
        spent = spent_together([answer.spent for answer in answers])
        return replace(
            reply,
            tool_uses=tuple(merged_uses(self.calls.uses, reply.tool_uses)),
            usage=spent.usage if self.answers else reply.usage,
            model=reply.model or spent.model,
            reports_tools=reply.reports_tools if self.answers else None,
        )


@cache
def _handler() -> Any:
    """Return the callback class that LangChain calls when tools and models run, in any thread."""
    base = import_module("langchain_core.callbacks").BaseCallbackHandler

    class Handler(base):  # type: ignore[misc, valid-type]
        run_inline = True  # keeps the order of events

        def __init__(self, observed: _Observed) -> None:
            self._observed = observed

        def on_tool_start(
            self, serialized: Any, input_str: str, *, run_id: Any, inputs: Any = None, **more: Any
        ) -> None:
            name = (serialized or {}).get("name") or more.get("name") or UNNAMED
            arguments = input_str if inputs is None else as_json(inputs)
            call = self._observed.calls.add(name, more.get("tool_call_id"), arguments)
            self._observed.runs[run_id] = call

        def on_tool_end(self, output: Any, *, run_id: Any, **more: Any) -> None:
            del more
            if (call := self._observed.runs.get(run_id)) is not None:
                call.answer(as_json(_result(output, call.id)))

        def on_tool_error(self, error: BaseException, *, run_id: Any, **more: Any) -> None:
            del more
            if (call := self._observed.runs.get(run_id)) is not None:
                call.answer(str(error), failed=True)

        def on_llm_end(self, response: Any, **more: Any) -> None:
            del more
            answers = [getattr(each[0], "message", None) for each in response.generations if each]
            self._observed.answers += [answer for answer in answers if answer is not None]

    return Handler


def _is_message(value: Any) -> bool:
    return is_a(value, _PACKAGE, "BaseMessage")


def _is_answered(value: Any) -> bool:
    """Return whether a result contains an answer of a model of LangChain.

    A message without the marks of a model may be from code that calls tools in another way.
    """
    if is_a(value, _PACKAGE, "AIMessage"):
        has_run = str(value.id).startswith(("run-", "lc_run-"))
        return bool(value.response_metadata or value.usage_metadata or has_run)
    held = value.values() if isinstance(value, dict) else value
    return isinstance(value, dict | list | tuple) and any(map(_is_answered, held))


def _is_whole(result: Any) -> bool:
    """Return whether a state, or one in a stream, has a message of the user.

    For messages without a state, `_read` decides.
    """
    parts = [("", result)] if isinstance(result, dict) else result
    if not isinstance(parts, list) or all(map(_is_message, parts)):
        return True
    states = [
        data.get("messages", ())
        for name, data in parts
        if isinstance(data, dict) and "|" not in name
    ]
    return any(is_a(it, _PACKAGE, "HumanMessage") for state in states for it in state)


def _result(output: Any, call_id: str) -> Any:
    """Return the result of a tool; a `Command` has it in a message among its changes."""
    if is_a(output, _GRAPHS, "Command"):
        changes = output.update if isinstance(output.update, dict) else {}
        messages = changes.get("messages") or ()
        same = (it for it in messages if getattr(it, "tool_call_id", None) == call_id)
        output = next(same, None)
    return getattr(output, "content", output)


def _as_updates(parts: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the messages of a stream as changes of a node, with merged chunks; then the rest."""
    for message in _merged([data for _, data in parts if _is_message(data)]):
        yield "updates", {"": {"messages": [message]}}
    yield from (each for each in parts if not _is_message(each[1]))


def _merged(messages: list[Any]) -> list[Any]:
    """Return messages, with the chunks of each id merged: agents may stream at the same time."""
    merged: list[Any] = []
    places: dict[Any, int] = {}
    for message in messages:
        if not is_a(message, _PACKAGE, "BaseMessageChunk"):
            merged.append(message)
        elif message.id in places:
            merged[places[message.id]] += message
        else:
            places[message.id] = len(merged)
            merged.append(message)
    return merged
