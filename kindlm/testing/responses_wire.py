"""The wire format of OpenAI's Responses.

A server remembers its responses: requests may continue one by `previous_response_id`, or refer to
its items by id. Keys, headers and errors are those of Chat Completions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kindlm.dataclass import replace
from kindlm.strict_json import json_or_text
from kindlm.testing.node import Node, ScriptError
from kindlm.testing.openai_wire import CHAT, CREATED, misread, refusal_of
from kindlm.testing.scripted_talk import (
    Refusal,
    Reply,
    TalkRequest,
    Turn,
    TurnsBuilder,
    WireFormat,
    server_sent,
    shape,
    usage_of,
    words_of,
)

if TYPE_CHECKING:
    from kindlm.testing.script import ModelSpec

_MOVED = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
}
"""Parameters of Chat Completions, and their names in Responses."""

_UNSUPPORTED = ("background", "conversation", "prompt")
"""Parameters that this server does not support, and cannot ignore."""

_TEXTS = ("input_text", "output_text", "refusal", "text", "summary_text")
_ECHOED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""Keys of the request that a response repeats, with their defaults."""

_MOST_REMEMBERED = 10_000


def responses_wire() -> WireFormat:
    """Return the format for one server."""
    responses = _Responses()
    return replace(CHAT, read=responses.read, write=responses.write)


class _Responses:
    """Reads requests and writes responses; remembers the items of both by response id."""

    def __init__(self) -> None:
        self._stored: dict[str, list[Any]] = {}
        self._items: dict[str, Any] = {}

    def read(
        self,
        _headers: Mapping[str, str],
        body: dict[str, Any],
        raw_body: bytes,
        model: ModelSpec | None,
    ) -> TalkRequest | Refusal:
        """Return the conversation of a request, or its error; see `WireFormat.read`."""
        for name in ("temperature", "top_p") if model is not None and model.reasoning else ():
            if body.get(name) not in (None, 1):
                message = f"Unsupported parameter: '{name}' is not supported with this model."
                return refusal_of(message, name, "unsupported_parameter")
        for name in filter(body.__contains__, _MOVED):
            message = f"Unsupported parameter: '{name}'. In the Responses API, it is "
            return refusal_of(f"{message}'{_MOVED[name]}'.", name, "unsupported_parameter")
        for name in filter(body.get, _UNSUPPORTED):
            return refusal_of(f"This server does not know '{name}'.", name)
        previous = body.get("previous_response_id")
        if previous is not None and (not isinstance(previous, str) or previous not in self._stored):
            message = f"Previous response with id '{previous}' not found."
            return refusal_of(message, "previous_response_id", "previous_response_not_found")
        try:
            return self._conversation(Node(body, "request"), raw_body)
        except ScriptError as error:
            return misread(error)

    def _conversation(self, request: Node, raw_body: bytes) -> TalkRequest:
        body, content = request.value, request.entry("input")
        if isinstance(content.value, str):
            items = [{"role": "user", "content": content.value}]
        else:
            items = [self._item(item) for item in content.items()]
        earlier = self._stored.get(body.get("previous_response_id"), [])
        system, turns = _turns(Node([*earlier, *items], "request.input"))
        instructions = request.optional("instructions", Node.text, "")
        tools = [_tool_name(tool) for tool in request.members("tools")]
        choice = request.optional("tool_choice", lambda node: node, Node("auto", ""))
        forced = choice.entry("name").text() if isinstance(choice.value, dict) else None
        if forced is None:
            choice.choice("none", "auto", "required")
        form = request.optional("text", lambda node: node.optional("format", _structured))
        conversation = TalkRequest(
            raw_body=raw_body,
            model=request.entry("model").text(),
            system="\n".join(filter(None, (instructions, system))),
            turns=turns,
            offered=() if choice.value == "none" else tuple(tools),
            structured=form,
            forced_tool=forced,
            parallel=request.optional("parallel_tool_calls", Node.flag, default=True),
            max_tokens=request.optional("max_output_tokens", partial(Node.integer, minimum=16)),
            stream=request.optional("stream", Node.flag, default=False),
        )
        if request.optional("store", Node.flag, default=True):
            self._stored[_id(conversation)] = [*earlier, *items]
            if len(self._stored) > _MOST_REMEMBERED:
                del self._stored[next(iter(self._stored))]
        return conversation

    def _item(self, item: Node) -> Any:
        """Return an item of the input, or the item that it refers to."""
        if item.optional("type", Node.text) != "item_reference":
            return item.value
        item_id = item.entry("id").text()
        if item_id not in self._items:
            item.fail(f"Item with id '{item_id}' not found.")
        return self._items[item_id]

    def write(self, conversation: TalkRequest, reply: Reply) -> tuple[bytes, ...]:
        """Return the response, or the events of its stream."""
        text, reply = shape(reply, conversation)
        request = json.loads(conversation.raw_body)
        output = _output(conversation, reply, text)
        reason = "max_output_tokens" if reply.finish == "length" else None
        response = {
            "id": _id(conversation),
            "object": "response",
            "created_at": CREATED,
            "status": "completed" if reason is None else "incomplete",
            "background": False,
            "error": None,
            "incomplete_details": None if reason is None else {"reason": reason},
            "model": conversation.model,
            "output": output,
            "service_tier": "default",
            **{key: request.get(key, default) for key, default in _ECHOED.items()},
        }
        if reply.reports_usage:
            usage = usage_of(conversation, reply, text or "")
            response["usage"] = {
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.input_tokens + usage.output_tokens,
            }
        if response["id"] in self._stored:
            self._stored[response["id"]] += output
            self._items |= {item["id"]: item for item in output}
        if conversation.stream:
            events = enumerate(_events(response))
            return tuple(server_sent({**event, "sequence_number": n}) for n, event in events)
        return (json.dumps(response).encode("ascii"),)


def _id(conversation: TalkRequest) -> str:
    return f"resp_{conversation.fingerprint}"


def _tool_name(tool: Node) -> str:
    kind: str = tool.entry("type").text()
    return tool.entry("name").text() if kind in ("function", "custom") else kind


def _structured(node: Node) -> str | None:
    kind = node.entry("type").choice("text", "json_object", "json_schema")
    return node.entry("name").text() if kind == "json_schema" else None


def _turns(items: Node) -> tuple[str, tuple[Turn, ...]]:
    """Return the system text and the turns; each tool call needs a result after it."""
    system, turns = list[str](), TurnsBuilder()
    waiting = dict[str, tuple[str, Any]]()
    for item in items.items():
        kind = item.optional("type", Node.text, "message")
        if kind in ("function_call", "custom_tool_call"):
            arguments = item.entry("arguments" if kind == "function_call" else "input").text()
            call_id, name = item.entry("call_id").text(), item.entry("name").text()
            waiting[call_id] = name, json_or_text(arguments)
            turns.add_assistant()
        elif kind in ("function_call_output", "custom_tool_call_output"):
            call_id = item.entry("call_id").text()
            if call_id not in waiting:
                item.fail(f"No tool call found for function call output with call_id {call_id}.")
            turns.add_call(*waiting.pop(call_id), _text(item.entry("output")))
        elif kind == "message":
            role = item.entry("role").choice("user", "assistant", "system", "developer")
            text = _text(item.entry("content"))
            if role == "user":
                turns.add_user(text)
            elif role == "assistant":
                turns.add_assistant()
            else:
                system.append(text)
    if waiting:
        items.fail(f"No tool output found for function call {next(iter(waiting))}.")
    return "\n".join(system), turns.build()


def _text(content: Node) -> str:
    if isinstance(content.value, str):
        return content.value
    parts = [part for part in content.items() if part.entry("type").value in _TEXTS]
    return "\n".join(
        part.entry("refusal" if part.value["type"] == "refusal" else "text").text()
        for part in parts
    )


def _output(conversation: TalkRequest, reply: Reply, text: str | None) -> list[dict[str, Any]]:
    output = list[dict[str, Any]]()
    if text is not None:
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
        output.append(
            {
                "id": f"msg_{conversation.fingerprint}",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [part],
            }
        )
    for position, call in enumerate(reply.calls):
        number = f"{conversation.fingerprint[:20]}{position:04}"
        output.append(
            {
                "id": f"fc_{number}",
                "type": "function_call",
                "status": "completed",
                "call_id": f"call_{number}",
                "name": call.name,
                "arguments": call.arguments_text,
            }
        )
    return output


def _events(response: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream: the empty response, its items in pieces, the response."""
    opening = {**response, "status": "in_progress", "output": []}
    opening |= {"incomplete_details": None, "usage": None}
    yield {"type": "response.created", "response": opening}
    yield {"type": "response.in_progress", "response": opening}
    for index, item in enumerate(response["output"]):
        place = {"output_index": index}
        is_call = item["type"] == "function_call"
        empty: dict[str, Any] = {"arguments": ""} if is_call else {"content": []}
        begun = {**item, "status": "in_progress", **empty}
        yield {"type": "response.output_item.added", **place, "item": begun}
        yield from _call_events(item, place) if is_call else _text_events(item, place)
        yield {"type": "response.output_item.done", **place, "item": item}
    yield {"type": f"response.{response['status']}", "response": response}


def _call_events(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    place = {**place, "item_id": item["id"]}
    arguments = item["arguments"]
    middle = len(arguments) // 2
    kind = "response.function_call_arguments"
    for delta in (arguments[:middle], arguments[middle:]):
        yield {"type": f"{kind}.delta", **place, "delta": delta}
    yield {"type": f"{kind}.done", **place, "name": item["name"], "arguments": arguments}


def _text_events(item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    place = {**place, "item_id": item["id"], "content_index": 0}
    part = item["content"][0]
    yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
    for word in words_of(part["text"]):
        yield {"type": "response.output_text.delta", **place, "delta": word, "logprobs": []}
    yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": part}
