"""The parts of a stream of LangChain: pieces of several modes, events, and chunks of messages.

A piece may hold objects of LangChain, from a function, or their JSON, from the user's own server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kindlm.agents.drafts import Frame
from kindlm.agents.reply_parts import first_text
from kindlm.wires import content_text, object_or_empty, objects

_MODES = ("values", "updates", "messages", "custom", "debug", "tasks", "checkpoints")
_PARTS_OF_CALLS = ("tool_use", "input_json_delta", "tool_call_chunk")
"""Types of the parts of a chunk that `tool_call_chunks` repeats."""


def part(piece: Any) -> tuple[str, Any]:
    """Return the data of a stream's piece, and the name that LangGraph's server would give it.

    A graph with several modes, with `subgraphs=True` or with `version="v2"` adds the mode and the
    path of the subgraph. `astream_events` yields events.
    """
    path: Sequence[str] = ()
    match piece:
        case {"type": str(mode), "ns": place, "data": data} if _is_path(place):
            path = place
            if isinstance(data, dict) and (waits := piece.get("interrupts")):
                data = {**data, "__interrupt__": waits}
        case (place, str(mode), data) if mode in _MODES and _is_path(place):
            path = place
        case (place, data) if _is_path(place):
            path, mode = place, "message"
        case (str(mode), data) if mode in _MODES:
            pass
        case {"event": str(event), "run_id": _, "data": dict(about)} if event.startswith("on_"):
            return _event(event, piece, about)
        case _:
            mode, data = "message", piece
    match data:
        case (dict() as message, {"langgraph_node": _}):
            return "messages", message
        case (message, dict()) if hasattr(message, "content"):
            return "messages", message
    # An inner state also counts as changes: the calls of a subgraph may be nowhere else.
    mode = "updates" if path and mode in ("values", "message") else mode
    return "|".join((mode, *path)), data


def _is_path(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(name, str) for name in value)


def _event(kind: str, event: Mapping[str, Any], about: dict[str, Any]) -> tuple[str, Any]:
    """Return the part for an event of `astream_events`."""
    output = about.get("output")
    match kind:
        case "on_chat_model_stream":
            return "messages", about.get("chunk")
        case "on_chat_model_end":
            return "updates", {"": {"messages": [output]}}
        case "on_tool_end" | "on_tool_error":
            found = output.get("type") if isinstance(output, dict) else getattr(output, "type", "")
            if found != "tool":
                failed = {"status": "error"} if kind == "on_tool_error" else {}
                content = str(about.get("error")) if failed else output
                output = {"type": "tool", "name": event.get("name"), "content": content, **failed}
            return "updates", {"": {"messages": [output]}}
        case "on_chain_end" if not event.get("parent_ids") and isinstance(output, dict):
            return "values", output
        case "on_tool_start":
            # Its input may have what the graph adds to the arguments: the name alone is compared.
            return "custom", {"tool": event.get("name")}
        case "on_custom_event":
            return "custom", about
    return "metadata", None


def named(frames: Iterable[Frame]) -> list[Frame]:
    """Return the events of the user's own server with the names that LangGraph's would give them.

    Messages come first, as changes of a node, with their chunks put together.
    """
    messages, others = list[Mapping[str, Any]](), list[Frame]()
    for frame in frames:
        value = frame.value
        name, data = part(value) if isinstance(value, dict | list) else ("message", value)
        is_known = data is not value and not name.startswith("messages")
        if isinstance(data, dict) and (name == "messages" or is_chunk(data)):
            messages.append(data)
        elif is_known:
            others.append(Frame(name, frame.data, data))
        else:
            others.append(frame if frame.type == "error" else frame._replace(type="message"))
    wholes = ({"": {"messages": [whole]}} for whole in whole_messages(messages))
    return [*(Frame("updates", "", whole) for whole in wholes), *others]


def is_chunk(value: Mapping[str, Any]) -> bool:
    """Return whether an object is a chunk of a message of LangChain."""
    return str(value.get("type")).endswith("MessageChunk")


def whole_messages(pieces: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return messages, with the chunks of each id put together: agents may stream at once."""
    chunks = dict[Any, list[Mapping[str, Any]]]()
    for number, piece in enumerate(pieces):
        key = first_text(piece.get("id")) if is_chunk(piece) else number
        chunks.setdefault(key, []).append(piece)
    return [_whole(found) if is_chunk(found[0]) else found[0] for found in chunks.values()]


def _whole(chunks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the message of all its chunks; a call is put together from those of its index."""
    calls = list[dict[str, Any]]()
    places = dict[str, dict[str, Any]]()
    for piece in (it for chunk in chunks for it in objects(chunk.get("tool_call_chunks"))):
        place, call_id = piece.get("index"), first_text(piece.get("id"))
        name = first_text(piece.get("name")) or ""
        call = None if place is None else places.get(str(place))
        if call is None or not _continues(call, name, call_id):
            call = places[str(place)] = {"name": "", "args": "", "id": None}
            calls.append(call)
        call["name"] += name
        call["args"] += first_text(piece.get("args")) or ""
        call["id"] = call["id"] or call_id
    whole, usage = dict[str, Any](), dict[str, int]()
    for chunk in chunks:
        for key, value in chunk.items():
            if isinstance(value, list):
                known = whole.setdefault(key, [])
                whole[key] = known if isinstance(known, list) else []
                whole[key] += value
            elif isinstance(value, dict):
                whole[key] = {**object_or_empty(whole.get(key)), **value}
            elif value or key not in whole:
                whole[key] = value
        for key, count in object_or_empty(chunk.get("usage_metadata")).items():
            if isinstance(count, int):
                usage[key] = usage.get(key, 0) + count
    text = "".join(content_text(chunk.get("content")) for chunk in chunks)
    parts = (it for chunk in chunks for it in objects(chunk.get("content")))
    others = [it for it in parts if it.get("type") not in ("text", *_PARTS_OF_CALLS)]
    whole |= {"content": [{"type": "text", "text": text}, *others] if others else text}
    if usage:
        whole["usage_metadata"] = {**whole["usage_metadata"], **usage}
    if calls:
        whole |= {"tool_calls": calls, "invalid_tool_calls": [], "additional_kwargs": {}}
    whole.pop("tool_call_chunks", None)
    return whole


def _continues(call: Mapping[str, Any], name: str, call_id: str | None) -> bool:
    """Return whether a piece continues a call: it has its id, or without ids no other name."""
    if call_id and call["id"]:
        return bool(call_id == call["id"])
    return not (name and call["name"])
