"""The OpenAI Agents SDK, whose package is `agents`: agents, and what their runs return.

kindlm calls `Runner.run`. `to_input_list` carries the conversation over, and the next message goes
to the agent that answered last. A function may return the result of a run, streamed or not, or
yield the events of a streamed run. A handoff counts as a tool call, as it does for the model. An
agent that is called as a tool has its own run, which no result shows. Events without a call show
that there was none if they begin with the first event of a run: a function may leave events out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, ClassVar

from kindlm.agents.drafts import ReportedCalls
from kindlm.agents.frameworks import as_json, is_a, one_model, total
from kindlm.agents.http_request import all_messages
from kindlm.agents.reply_parts import compact_json
from kindlm.agents.reply_usage import read_counts, read_model
from kindlm.agents.tool_entries import parts_text, read_tool_use, reported_calls
from kindlm.plugins import AgentReply, AgentRequest, Framework, Usage
from kindlm.same_calls import merged_uses
from kindlm.strict_json import as_text

_PACKAGE = "agents"
_WAITS = "the agent waits for an approval of a tool call: the answer is incomplete"


class OpenAIAgents(Framework):
    """Talks to agents, and reads the results of their runs."""

    takes_system: ClassVar[bool] = True

    def __init__(self) -> None:
        self._last: Any = None

    def is_agent(self, value: Any) -> bool:
        """Return whether it is an agent of the SDK, and not of a user's package `agents`."""
        is_sdk = hasattr(sys.modules.get(_PACKAGE), "set_default_openai_client")
        return is_sdk and is_a(value, _PACKAGE, "AgentBase")

    async def send(self, agent: Any, request: AgentRequest) -> Any:
        messages = all_messages(request)
        if self._last is not None:
            agent, messages = self._last.last_agent, [*self._last.to_input_list(), messages[-1]]
        self._last = await sys.modules[_PACKAGE].Runner.run(agent, messages)
        return self._last

    async def read(self, result: Any, _sent: str) -> AgentReply | None:
        if is_a(result, _PACKAGE, "RunResultStreaming"):
            async for _ in result.stream_events():
                pass
        if is_a(result, _PACKAGE, "RunResultBase"):
            return _of_result(result)
        if isinstance(result, list) and any(is_a(it, _PACKAGE, *_EVENTS) for it in result):
            return _of_events(result)
        return None


_EVENTS = ("RunItemStreamEvent", "RawResponsesStreamEvent", "AgentUpdatedStreamEvent")


def _of_result(result: Any) -> AgentReply:
    agents = [result.last_agent, *(item.agent for item in result.new_items)]
    hidden = _hidden(result.new_items)
    usage = read_counts(as_json(result.context_wrapper.usage))
    return AgentReply(
        text="" if result.final_output is None else as_text(as_json(result.final_output)),
        raw=_raw(result.new_items),
        tool_uses=_calls(result.new_items).uses,
        usage=usage if usage.total else Usage(),  # 0 of both if the model reports none
        model=one_model(map(_model_of, agents)),
        reports_tools=not hidden,
        warnings=(*hidden, _WAITS) if result.interruptions else hidden,
    )


def _model_of(agent: Any) -> str | None:
    model = getattr(agent, "model", None)
    return model if isinstance(model, str) else getattr(model, "model", None)


def _of_events(events: Sequence[Any]) -> AgentReply:
    """Return the reply in the events of a streamed run."""
    items = [event.item for event in events if is_a(event, _PACKAGE, "RunItemStreamEvent")]
    ended = [
        event.data.response
        for event in events
        if is_a(event, _PACKAGE, "RawResponsesStreamEvent")
        and getattr(event.data, "type", "") == "response.completed"
    ]
    texts = [
        "".join(getattr(part, "text", "") for part in item.raw_item.content)
        for item in items
        if item.type == "message_output_item"
    ]
    hidden = _hidden(items)
    asked = (use for it in ended for use in reported_calls({"output": as_json(it.output)}, None))
    is_whole = any(is_a(event, _PACKAGE, "AgentUpdatedStreamEvent") for event in events)
    return AgentReply(
        text=texts[-1] if texts else (parts_text(as_json(ended[-1])) or "") if ended else "",
        raw=_raw(items),
        tool_uses=tuple(merged_uses(_calls(items).uses, list(asked))),
        usage=total([read_counts(as_json(it.usage)) for it in ended if it.usage is not None]),
        model=one_model(read_model(as_json(each)) for each in ended),
        reports_tools=False if hidden else is_whole or None,
        warnings=hidden,
    )


def _hidden(items: Sequence[Any]) -> tuple[str, ...]:
    """Return the warning about agents that were called as tools, if any were."""
    origins = [getattr(item, "tool_origin", None) for item in items]
    names = {getattr(origin, "agent_tool_name", None) for origin in origins}
    listed = ", ".join(sorted(filter(None, names)))
    warning = f"kindlm does not see the tool calls of agents that are used as tools: {listed}"
    return (warning,) if listed else ()


def _calls(items: Sequence[Any]) -> ReportedCalls:
    calls = ReportedCalls()
    for item in items:
        raw = as_json(item.raw_item)
        if item.type.endswith("_call_item"):
            calls.add_use(read_tool_use(raw))
        elif item.type in ("tool_call_output_item", "handoff_output_item"):
            output = as_json(getattr(item, "output", raw.get("output")))
            calls.answer(raw.get("call_id") or raw.get("id"), None, output)
    return calls


def _raw(items: Sequence[Any]) -> str:
    return compact_json([as_json(item.raw_item) for item in items])
