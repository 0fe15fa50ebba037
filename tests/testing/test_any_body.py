"""Whatever the body is, it is answered or refused; the server never fails on it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm.testing.http1 import HttpRequest
from kindlm.testing.loopback import App
from kindlm.testing.script import load_script

HEADERS = {"authorization": "Bearer x", "anthropic-version": "2023-06-01"}
SCRIPT = {"rules": [{"when": {"user": "refund"}, "reply": {"text": "{{user}} {{system}}"}}]}
APP = App(load_script(SCRIPT))

CHAT = {
    "model": "gpt-4o",
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Refund ORD-1"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "lookup_order", "arguments": '{"order_id": "ORD-1"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"total": 5}'},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "lookup_order",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ],
    "tool_choice": {"type": "function", "function": {"name": "lookup_order"}},
    "response_format": {
        "type": "json_schema",
        "json_schema": {
            "name": "s",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"a": {}},
                "required": ["a"],
                "additionalProperties": False,
            },
        },
    },
    "temperature": 0.5,
    "max_tokens": 100,
    "stop": ["x"],
    "stream": True,
    "stream_options": {"include_usage": True},
}
MESSAGES = {
    "model": "claude-x",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be kind."}],
    "messages": [
        {"role": "user", "content": "Refund ORD-1"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "c1", "name": "lookup_order", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": '{"total": 5}'}],
                }
            ],
        },
    ],
    "tools": [{"name": "lookup_order", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "tool", "name": "lookup_order"},
    "stop_sequences": ["x"],
    "temperature": 0.5,
    "stream": True,
}
RESPONSES = {
    "model": "gpt-4o",
    "instructions": "Be kind.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Refund ORD-1"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "lookup_order", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": '{"total": 5}'},
    ],
    "tools": [{"type": "function", "name": "lookup_order", "parameters": {}, "strict": False}],
    "tool_choice": {"type": "function", "name": "lookup_order"},
    "text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}}},
    "max_output_tokens": 100,
    "stream": True,
}
EMBEDDINGS = {"model": "e", "input": ["a", "b"], "dimensions": 8, "encoding_format": "base64"}
ROUTES = [
    ("/v1/chat/completions", CHAT),
    ("/v1/responses", RESPONSES),
    ("/v1/messages", MESSAGES),
    ("/v1/embeddings", EMBEDDINGS),
]

LEFT_OUT = object()
ANYTHING = st.just(LEFT_OUT) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


def send(path: str, body: bytes) -> int:
    return APP.handle(HttpRequest("POST", path, HEADERS, body)).status


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside."""
    found = [path] if path else []
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in entries:
            found += places(inner, (*path, key))
    return found


@pytest.mark.parametrize(("path", "body"), ROUTES)
def test_the_whole_body_is_accepted(path, body):
    assert send(path, json.dumps(body).encode()) == 200


@examples(240)
@given(data=st.data(), route=st.sampled_from(ROUTES), value=ANYTHING)
def test_anything_in_any_place_is_answered_or_refused(data, route, value):
    path, template = route
    body = copy.deepcopy(template)
    *outer, last = data.draw(st.sampled_from(places(template)))
    owner: Any = body
    for key in outer:
        owner = owner[key]
    if value is LEFT_OUT:
        del owner[last]
    else:
        owner[last] = value
    assert send(path, json.dumps(body).encode()) in (200, 400)


@examples(80)
@given(route=st.sampled_from(ROUTES), body=st.binary())
def test_any_bytes_are_refused(route, body):
    assert send(route[0], body) == 400


def test_nesting_without_end_is_refused():
    assert send("/v1/messages", b"[" * 100_000) == 400
