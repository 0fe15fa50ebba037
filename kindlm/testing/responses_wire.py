"""The wire format of OpenAI's Responses.

A server remembers its responses: requests may continue one by `previous_response_id`, or refer to
its items by id. Keys, headers and errors are those of Chat Completions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from kindlm.strict_json import json_or_text
from kindlm.testing.http1 import HttpRequest
from kindlm.testing.node import Node
from kindlm.testing.openai_wire import CREATED, Chat, has_schema, offered, refuse_unsupported
from kindlm.testing.script import ModelSpec, Reply
from kindlm.testing.scripted_talk import (
    Refusal,
    TalkRequest,
    Turns,
    halves,
    server_sent,
    shape,
    text_of,
    usage_of,
    words_of,
)

_OF_CHAT = ("messages", "max_tokens", "max_completion_tokens", "response_format")
_NOT_IGNORED = (*_OF_CHAT, "background", "conversation", "prompt")
"""Parameters that this server does not support, and cannot ignore."""

_TEXTS = ("input_text", "output_text", "refusal", "text", "summary_text")
_ECHOED: dict[str, Any] = {
    "instructions": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "tool_choice": "auto",
    "tools": [],
}
"""Keys of the request that a response repeats, with their defaults."""

_MOST_REMEMBERED = 10_000


class Responses(Chat):
    """Remembers the items of requests and responses by response id."""

    def __init__(self) -> None:
        self._stored: dict[str, list[Any]] = {}

    def read(self, request: HttpRequest, body: Node, model: ModelSpec | None) -> TalkRequest:
        sampling = ("temperature", "top_p") if model is not None and model.reasoning else ()
        refuse_unsupported(body, (name for name in sampling if body.value.get(name) != 1))
        refuse_unsupported(body, filter(body.value.get, _NOT_IGNORED))
        previous = body.optional("previous_response_id", Node.text)
        if previous is not None and previous not in self._stored:
            message = f"Previous response with id '{previous}' not found."
            raise Refusal(400, message, "previous_response_id", "previous_response_not_found")
        content = body.entry("input")
        if isinstance(content.value, str):
            items = [{"role": "user", "content": content.value}]
        else:
            items = [self._item(item) for item in content.items()]
        items = [*self._stored.get(previous or "", []), *items]
        system, turns = _turns(Node(items, "request.input"))
        instructions = body.optional("instructions", Node.text, "")
        conversation = TalkRequest(
            raw_body=request.body,
            model=body.entry("model").text(),
            system="\n".join(filter(None, (instructions, system))),
            turns=turns,
            offered=offered(body, map(_tool_name, body.members("tools"))),
            structured=body.optional("text", lambda node: node.optional("format", _structured)),
            parallel=body.optional("parallel_tool_calls", Node.flag, default=True),
            max_tokens=body.optional("max_output_tokens", partial(Node.integer, minimum=16)),
            stream=body.optional("stream", Node.flag, default=False),
        )
        if body.optional("store", Node.flag, default=True):
            self._stored[_id(conversation)] = items
            if len(self._stored) > _MOST_REMEMBERED:
                del self._stored[next(iter(self._stored))]
        return conversation

    def _item(self, item: Node) -> Any:
        """Return an item of the input, or the item that it refers to."""
        if item.optional("type", Node.text) != "item_reference":
            return item.value
        item_id = item.entry("id").text()
        stored = (each for items in self._stored.values() for each in items)
        found = next((each for each in stored if each.get("id") == item_id), None)
        return found or item.fail(f"Item with id '{item_id}' not found.")

    def write(self, conversation: TalkRequest, reply: Reply) -> tuple[bytes, ...]:
        text, reply = shape(reply, conversation)
        request = json.loads(conversation.raw_body)
        output = _output(conversation, reply, text)
        reason = "max_output_tokens" if reply.finish == "length" else None
        response = {
            "id": _id(conversation),
            "object": "response",
            "created_at": CREATED,
            "status": "completed" if reason is None else "incomplete",
            "error": None,
            "incomplete_details": None if reason is None else {"reason": reason},
            "model": conversation.model,
            "output": output,
            **{key: request.get(key, default) for key, default in _ECHOED.items()},
        }
        if (usage := usage_of(conversation, reply, text)) is not None:
            response["usage"] = {
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.input_tokens + usage.output_tokens,
            }
        if response["id"] in self._stored:
            self._stored[response["id"]] += output
        if conversation.stream:
            events = enumerate(_events(response))
            return tuple(server_sent({**event, "sequence_number": n}) for n, event in events)
        return (json.dumps(response).encode("ascii"),)


def _id(conversation: TalkRequest) -> str:
    return f"resp_{conversation.fingerprint}"


def _tool_name(tool: Node) -> str:
    kind: str = tool.entry("type").text()
    return tool.entry("name").text() if kind in ("function", "custom") else kind


def _structured(form: Node) -> str | None:
    return form.entry("name").text() if has_schema(form) else None


def _turns(items: Node) -> tuple[str, Turns]:
    """Return the system text and the turns; each tool call needs a result after it."""
    system, turns = list[str](), Turns()
    for item in items.items():
        kind = item.optional("type", Node.text, "message")
        if kind in ("function_call", "custom_tool_call"):
            arguments = item.entry("arguments" if kind == "function_call" else "input").text()
            call_id, name = item.entry("call_id").text(), item.entry("name").text()
            turns.add_call(item, call_id, name, json_or_text(arguments))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            turns.add_result(
                item, item.entry("call_id").text(), text_of(item.entry("output"), _TEXTS)
            )
        elif kind == "message":
            role = item.entry("role").choice("user", "assistant", "system", "developer")
            text = text_of(item.entry("content"), _TEXTS)
            if role == "user":
                turns.add_user(text)
            elif role == "assistant":
                turns.add_assistant()
            else:
                system.append(text)
    turns.check()
    return "\n".join(system), turns


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
        place = {"output_index": index, "item_id": item["id"]}
        is_call = item["type"] == "function_call"
        empty: dict[str, Any] = {"arguments": ""} if is_call else {"content": []}
        begun = {**item, "status": "in_progress", **empty}
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        if is_call:
            kind, arguments = "response.function_call_arguments", item["arguments"]
            for delta in halves(arguments):
                yield {"type": f"{kind}.delta", **place, "delta": delta}
            yield {"type": f"{kind}.done", **place, "name": item["name"], "arguments": arguments}
        else:
            yield from _text_events(item["content"][0], {**place, "content_index": 0})
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{response['status']}", "response": response}


def _text_events(part: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
    for word in words_of(part["text"]):
        yield {"type": "response.output_text.delta", **place, "delta": word, "logprobs": []}
    yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": part}
