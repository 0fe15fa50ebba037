"""What a graph answers, as one JSON value or as server-sent events.

The events of a graph's own server say with their names what they are; those of other servers say
it with their `type`:

| `type` | what it says |
|---|---|
| `step` | a tool was called: `tool` or `action`, `parameters`, `content` |
| `message` | `content` is the next piece of the text; `tool_calls` and usage count, too |
| `metadata` | usage, cost, model |
| `error` | the agent failed |
| `ai`, `tool` | a message of LangChain |
| none | `messages`, or objects of nodes that have some: the state, or what changed in it |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kindlm.agents.agent_events import Heard
from kindlm.agents.chat_messages import read_messages
from kindlm.agents.event_framing import DONE, Event, json_value, parse_events
from kindlm.agents.langgraph_state import GraphReply, Sent
from kindlm.agents.reply_reading import AgentFailed
from kindlm.agents.reported_errors import error_text
from kindlm.agents.unreadable import MAX_EVENTS, UnreadableReply, refuse_more
from kindlm.strict_json import parse_json, unique_keys

_MESSAGES = frozenset({"ai", "human", "tool", "assistant", "user"})


def read_value(text: str, sent: Sent) -> Heard:
    """Read a state that is a JSON object, or is inside one; raise as `GraphReply.finished`."""
    try:
        value = parse_json(text, unique_keys)
    except ValueError as error:
        raise UnreadableReply(f"no JSON: {error}") from None
    if isinstance(value, list):
        value = {"messages": value}
    if not isinstance(value, dict):
        raise UnreadableReply("it is no JSON object")
    reply = GraphReply(sent)
    reply.add_state({**value, **_inner_state(value)})
    reply.add_steps(_steps(value))
    reply.add_steps(list(_pairs(value)))
    return reply.finished()


def read_stream(text: str, sent: Sent) -> Heard:
    """Read the events of a server of the user's; raise as `GraphReply.finished`."""
    reply = GraphReply(sent)
    for kind, value in _values(text):
        if kind == "error":
            raise AgentFailed(error_text(value))
        if isinstance(value, dict):
            _add_event(reply, value)
        else:
            reply.pieces.append(value)
    return reply.finished()


def read_run(text: str, sent: Sent) -> Heard:
    """Read the events of a run of LangGraph's own server; raise as `GraphReply.finished`."""
    reply = GraphReply(sent)
    for kind, value in _values(text):
        if kind == "error":
            raise AgentFailed(error_text(value))
        if isinstance(value, dict) and kind == "values":
            reply.add_state(value)
        elif isinstance(value, dict) and kind == "updates":
            if "messages" in value:
                reply.add_update({"": value})
            else:
                reply.add_update(value)
    return reply.finished()


def _add_event(reply: GraphReply, event: Mapping[str, Any]) -> None:
    match event.get("type"):
        case "step":
            if event.get("tool") or event.get("action"):
                reply.add_step(event)
        case "message":
            (message,) = read_messages({**event, "type": "ai"})
            reply.pieces.append(message.text)
            reply.add_messages({**event, "type": "ai"})
        case "metadata":
            reply.about.update(event)
        case "error":
            raise AgentFailed(error_text(event))
        case str(kind) if kind in _MESSAGES:
            reply.add_messages(event)
        case _ if "messages" in event:
            reply.add_state(event)
        case _:
            reply.add_update(event)


def _values(text: str) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Return the objects and texts of a stream, with the names of their events."""
    read = 0
    for number, event in enumerate(parse_events(text), start=1):
        for data in _data(event):
            if data == DONE:
                return
            read += 1
            refuse_more(read, MAX_EVENTS, "events")
            value = json_value(data, f"event {number}")
            if isinstance(value, dict | str):
                yield event.type, value
            elif value is None and data != "null":
                yield event.type, data


def _data(event: Event) -> list[str]:
    """Return what an event holds.

    That is one value; or one in each line, where there are no empty lines between the events.
    """
    lines = event.data.split("\n")
    whole = all((line.startswith("{") and line.endswith("}")) or line == DONE for line in lines)
    return lines if whole else [event.data]


def _inner_state(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state where the answer is an object around it."""
    if "messages" in value:
        return {}
    inner = (value.get(key) for key in ("output", "result", "values", "state"))
    return next((part for part in inner if isinstance(part, dict) and "messages" in part), {})


def _steps(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    steps = value.get("steps")
    listed = steps if isinstance(steps, list) else ()
    return [step for step in listed if isinstance(step, dict)]


def _pairs(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    pairs = value.get("intermediate_steps")
    for pair in pairs if isinstance(pairs, list) else ():
        if isinstance(pair, dict):
            yield pair
        elif isinstance(pair, list) and len(pair) == 2:
            action, observation = pair
            yield {"action": action, "output": observation}
