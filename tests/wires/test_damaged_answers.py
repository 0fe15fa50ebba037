"""A call in an answer of a model is read, or the answer is none, whatever is damaged in it.

Each answer has a call of `refund`, whose name the damage leaves in place.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from damage import HOW, damage, places

from kindlm.wires import Wire
from kindlm.wires.reading import read_answer

FUNCTION = {"name": "refund", "arguments": '{"id": 7}'}
CALL = {"index": 0, "id": "c1", "type": "function", "function": FUNCTION}
ITEM = {"type": "function_call", "id": "f1", "call_id": "c1", **FUNCTION}
SAID = {"type": "message", "content": [{"type": "output_text", "text": "Done."}]}
RESPONSE = {"object": "response", "status": "completed", "output": [ITEM, SAID]}
TEXT = {"type": "text", "text": "Done."}
USE = {"type": "tool_use", "id": "c1", "name": "refund", "input": {"id": 7}}
GIVEN = {"type": "input_json_delta", "partial_json": '{"id": 7}'}
WHOLE: dict[Wire, Any] = {
    "chat": {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Done.", "tool_calls": [CALL]},
                "finish_reason": "tool_calls",
            }
        ]
    },
    "responses": RESPONSE,
    "anthropic": {"role": "assistant", "content": [TEXT, USE], "stop_reason": "tool_use"},
}
STREAMS: dict[Wire, list[Any]] = {
    "chat": [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Done."}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [CALL]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ],
    "responses": [
        {"type": "response.created", "response": {"status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "item": {**ITEM, "arguments": ""}},
        {"type": "response.output_item.done", "item": ITEM},
        {"type": "response.completed", "response": RESPONSE},
    ],
    "anthropic": [
        {"type": "message_start", "message": {"role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": TEXT},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {**USE, "input": {}}},
        {"type": "content_block_delta", "index": 1, "delta": GIVEN},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ],
}


def lost(wire: Wire, answer: Any, *, is_stream: bool) -> list[str]:
    """Return the damages of an answer with which it is read without its call."""
    found = []
    for path in places(answer):
        for how in HOW:
            damaged = copy.deepcopy(answer)
            damage(damaged, path, how)
            if "refund" not in json.dumps(damaged):
                continue
            body = json.dumps(damaged)
            if is_stream:
                body = "".join(f"data: {json.dumps(event)}\n\n" for event in damaged)
            read = read_answer(wire, "text/event-stream" if is_stream else "", body)
            names = [call.name for call in read.tool_calls]
            if read.error is None and read.complete and "refund" not in names:
                found.append(f"{path}: {how}")
    return found


@pytest.mark.parametrize("wire", WHOLE)
def test_a_call_in_a_damaged_answer_is_not_lost(wire: Wire) -> None:
    assert lost(wire, WHOLE[wire], is_stream=False) == []


@pytest.mark.parametrize("wire", STREAMS)
def test_a_call_in_a_damaged_stream_is_not_lost(wire: Wire) -> None:
    assert lost(wire, STREAMS[wire], is_stream=True) == []
