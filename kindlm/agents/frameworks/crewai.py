"""CrewAI: crews and agents, and what their runs return.

docs/how-to/python-agents.md says what crews and agents get, and how the conversation is carried
over.

Each message runs on a copy of the crew, since a run fills its inputs into the texts of the crew.
Tool calls, tokens and the model are read from CrewAI's events, since results count the tokens of
all runs of a model together.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

from kindlm.agents.crewai_agent import read_crew
from kindlm.agents.drafts import ReportedCall, ReportedCalls
from kindlm.agents.frameworks import as_json, is_a, one_model, total
from kindlm.agents.http_request import all_messages, context_with_history, last_user_text
from kindlm.agents.reply_parts import compact_json
from kindlm.agents.reply_usage import read_counts
from kindlm.agents.user_code import in_thread
from kindlm.dataclass import replace
from kindlm.plugins import AgentReply, AgentRequest, Framework, Usage

_PACKAGE = "crewai"
_HISTORY = "conversation_history"
_STARTED = ("CrewKickoffStartedEvent", "LiteAgentExecutionStartedEvent")
_ASKED = "LLMCallCompletedEvent"
_BEGUN = "ToolUsageStartedEvent"
_DONE = "ToolUsageFinishedEvent"
_FAILED = "ToolUsageErrorEvent"
_EVENTS: ContextVar[list[Any] | None] = ContextVar("kindlm_crewai_events", default=None)


class CrewAI(Framework):
    """Talks to crews and agents, and reads their results."""

    takes_context: ClassVar[bool] = True

    def __init__(self) -> None:
        self._events: Sequence[Any] | None = None  # of the last run, in order

    def is_agent(self, value: Any) -> bool:
        return is_a(value, _PACKAGE, "Crew", "BaseAgent", "LiteAgent")

    async def send(self, agent: Any, request: AgentRequest) -> Any:
        bus, events = _bus(), list[Any]()
        _EVENTS.set(events)
        if is_a(agent, _PACKAGE, "Crew"):
            result = await in_thread(agent.copy().kickoff, _inputs(agent, request))
        else:
            messages = [each for each in all_messages(request) if each["role"] != "system"]
            result = await in_thread(agent.kickoff, messages)
        if is_a(result, _PACKAGE, "CrewStreamingOutput"):
            result = await in_thread(_drained, result)
        await in_thread(bus.flush)
        self._events = sorted(events, key=lambda event: event.emission_sequence or 0)
        return result

    async def read(self, result: Any, _sent: str) -> AgentReply | None:
        if self._events is not None:
            return _of_run(result, self._events)
        if is_a(result, _PACKAGE, "CrewOutput"):
            # It counts the tokens of all runs of its models together.
            return replace(_of_value(as_json(result)), usage=Usage())
        if is_a(result, _PACKAGE, "LiteAgentOutput"):
            value = as_json(result)
            return _of_value({**value, "tasks_output": [{"messages": value.pop("messages")}]})
        return None


@cache
def _bus() -> Any:
    """Return CrewAI's event bus, after subscribing to events of tools and models.

    Handlers run in the context of the code that emits an event, and so in that of a conversation.
    """
    module = import_module("crewai.events")
    for kind in (*_STARTED, _ASKED, _BEGUN, _DONE, _FAILED):
        module.crewai_event_bus.on(getattr(module, kind))(_collect)
    return module.crewai_event_bus


def _collect(source: Any, event: Any) -> None:
    del source
    events = _EVENTS.get()
    if events is not None:
        events.append(event)


def _drained(stream: Any) -> Any:
    """Return the result of a crew with `stream=True`, which runs while its pieces are read."""
    for _ in stream:
        pass
    return stream.result


def _inputs(crew: Any, request: AgentRequest) -> dict[str, Any]:
    inputs = {_HISTORY: "", **context_with_history(request)}
    open_names = crew.fetch_inputs() - inputs.keys()
    name = open_names.pop() if len(open_names) == 1 else "query"
    return {name: last_user_text(request), **inputs}


def _of_run(result: Any, events: Sequence[Any]) -> AgentReply:
    asked = [event for event in events if is_a(event, _PACKAGE, _ASKED)]
    return AgentReply(
        text=result.raw,
        raw=compact_json(as_json(result)),
        tool_uses=_calls(events).uses,
        usage=total([read_counts(event.usage) for event in asked]),
        model=one_model(each.model for each in asked),
        # Without a start event, no events arrive at all.
        reports_tools=any(is_a(event, _PACKAGE, *_STARTED) for event in events) or None,
    )


def _calls(events: Sequence[Any]) -> ReportedCalls:
    """Return the calls; simultaneous calls may end in any order."""
    calls, running = ReportedCalls(), list[tuple[Any, ReportedCall]]()
    for event in events:
        failed = is_a(event, _PACKAGE, _FAILED)
        if is_a(event, _PACKAGE, _BEGUN):
            running.append((event, calls.add(event.tool_name, None, as_json(event.tool_args))))
            continue
        is_end = failed or is_a(event, _PACKAGE, _DONE)
        if is_end and (index := _ended_call(running, event)) is not None:
            call = running.pop(index)[1]
            call.answer(str(event.error) if failed else as_json(event.output), failed=failed)
    return calls


def _ended_call(running: Sequence[tuple[Any, ReportedCall]], ended: Any) -> int | None:
    """Return the index of the call that ended, by its name and arguments, else by its event id.

    The id alone is not enough: CrewAI confuses simultaneous calls. Nor are the arguments: those of
    a ReAct agent's call are text at the start.
    """
    begun = [event for event, _ in running]
    alike = [(event.tool_name, event.tool_args) for event in begun]
    if (ended.tool_name, ended.tool_args) in alike:
        return alike.index((ended.tool_name, ended.tool_args))
    ids = [event.event_id for event in begun]
    return ids.index(ended.started_event_id) if ended.started_event_id in ids else None


def _of_value(value: Any) -> AgentReply:
    raw = compact_json(value)
    return replace(read_crew(raw), raw=raw)
