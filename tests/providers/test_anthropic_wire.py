"""Messages as JSON: what is sent, what is read."""

from __future__ import annotations

import json

import pytest

from kindlm.model_answers import object_in
from kindlm.ports import ResponseSchema, ToolDefinition
from kindlm.providers.anthropic_provider import decode, encode
from kindlm.providers.client import NEEDS_ROOM
from kindlm.suite import ModelParams
from kindlm.transcript import Extras, FinishReason, Message, Role, ToolCall, Usage
from kindlm.wires import UnreadableReply

USER = Message(Role.USER, "U")
SCHEMA = {"type": "object", "properties": {"score": {"type": "number"}}}


def test_parameters_are_sent_under_their_names(make_request):
    params = ModelParams(0.5, 2048, top_p=0.9, stop_sequences=("END",), seed=42)
    sent = encode(make_request(Message(Role.SYSTEM, "SYS"), USER, model="claude", params=params))
    assert sent.body == {
        "model": "claude",
        "max_tokens": 2048,
        "system": "SYS",
        "messages": [{"role": "user", "content": "U"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "stop_sequences": ["END"],
    }
    assert len(sent.warnings) == 1
    assert "seed" in sent.warnings[0]


def test_a_round_of_parallel_calls_is_answered_in_one_message(make_request):
    calls = (
        ToolCall("t1", "find", {"q": 1}),
        ToolCall("t2", "find", {}, malformed='["x"]'),
    )
    sent = encode(
        make_request(
            USER,
            Message(Role.ASSISTANT, "Let me see.", tool_calls=calls),
            Message(Role.TOOL, "1", tool_call_id="t1", tool_name="find"),
            Message(Role.TOOL, "2", tool_call_id="t2", tool_name="find"),
            Message(Role.ASSISTANT, "", tool_calls=(ToolCall("t3", "find", {}),)),
            Message(Role.TOOL, "3", tool_call_id="t3", tool_name="find"),
        )
    )
    assert sent.body["messages"] == [
        {"role": "user", "content": "U"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "t1", "name": "find", "input": {"q": 1}},
                {"type": "tool_use", "id": "t2", "name": "find", "input": ["x"]},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "1"},
                {"type": "tool_result", "tool_use_id": "t2", "content": "2"},
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t3", "name": "find", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t3", "content": "3"}],
        },
    ]


def test_a_prefill_is_the_last_message_and_begins_the_reply(make_request):
    request = make_request(USER, Message(Role.ASSISTANT, '{"a"', prefill=True))
    assert encode(request).body["messages"][-1] == {"role": "assistant", "content": '{"a"'}
    body = {"content": [{"type": "text", "text": ": 1}"}], "stop_reason": "end_turn"}
    assert decode(body, request).text == '{"a": 1}'


def test_a_prefill_that_was_answered_is_not_sent_again(make_request):
    request = make_request(
        USER,
        Message(Role.ASSISTANT, "{", prefill=True),
        Message(Role.ASSISTANT, "{}"),
        Message(Role.USER, "more"),
    )
    assert [message["content"] for message in encode(request).body["messages"]] == [
        "U",
        "{}",
        "more",
    ]


def test_tools_are_reported_with_their_schema(make_request):
    tools = (ToolDefinition("ping", None, {}), ToolDefinition("find", "Finds", SCHEMA))
    assert encode(make_request(USER, tools=tools)).body["tools"] == [
        {"name": "ping", "input_schema": {"type": "object", "properties": {}}},
        {"name": "find", "description": "Finds", "input_schema": SCHEMA},
    ]


def test_structured_output_is_a_tool_that_must_be_called(make_request):
    request = make_request(USER, response_schema=ResponseSchema("verdict", SCHEMA))
    sent = encode(request)
    assert sent.body["tools"] == [{"name": "verdict", "input_schema": SCHEMA}]
    assert sent.body["tool_choice"] == {"type": "tool", "name": "verdict"}
    block = {"type": "tool_use", "id": "t", "name": "verdict", "input": {"score": 0.5}}
    said = decode({"content": [block], "stop_reason": "tool_use"}, request)
    assert json.loads(said.text) == {"score": 0.5}
    assert said.own_calls == ()
    assert said.finish_reason is FinishReason.STOP
    second = block | {"id": "u", "input": {"score": 0}}
    said = decode({"content": [block, second], "stop_reason": "tool_use"}, request)
    with pytest.raises(ValueError, match="Extra data"):
        object_in(said.text)


def test_a_written_temperature_is_the_users(make_request):
    written = ModelParams(temperature=0.7, written=frozenset({"temperature"}))
    assert encode(make_request(USER, params=written)).defaults == frozenset()
    assert encode(make_request(USER)).defaults == {"temperature"}
    sent = encode(make_request(USER), frozenset({"temperature"}))
    assert "temperature" not in sent.body
    assert "temperature" in sent.warnings[0]


def test_blocks_of_unknown_types_are_left_out(make_request):
    content = [
        {"type": "thinking", "thinking": "hm", "text": "no"},
        {"type": "text", "text": "a"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "tool_use", "id": "t1", "name": "x", "input": {"n": 1}},
        {"type": "text", "text": "b", "citations": []},
        {"type": "tool_use", "id": "t2", "name": "y", "input": "raw"},
    ]
    said = decode({"content": content, "stop_reason": "tool_use", "model": "m"}, make_request())
    assert said.text == "ab"
    assert said.own_calls == (
        ToolCall("t1", "x", {"n": 1}),
        ToolCall("t2", "y", {}, malformed="raw"),
    )


def test_what_a_model_thought_goes_back_unchanged_in_its_place(make_request):
    call = {"type": "tool_use", "id": "t1", "name": "find", "input": {"q": 1}}
    content = [
        {"type": "redacted_thinking", "data": "c2VjcmV0"},
        {"type": "text", "text": "Let me see."},
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        {"type": "text", "text": "\n"},  # the API rejects a blank text block
        call,
    ]
    said = decode({"content": content, "stop_reason": "tool_use"}, make_request())
    asked = Message(Role.ASSISTANT, said.text, tool_calls=said.own_calls, echo=said.echo)
    ended = decode({"content": [content[2], content[1]], "stop_reason": "end_turn"}, make_request())
    answered = Message(Role.ASSISTANT, ended.text, echo=ended.echo)
    result = Message(Role.TOOL, "1", tool_call_id="t1", tool_name="find")
    sent = encode(make_request(USER, asked, result, answered, USER)).body["messages"]
    assert sent[1] == {"role": "assistant", "content": [*content[:3], call]}
    assert sent[3] == {"role": "assistant", "content": [content[2], content[1]]}


def test_only_an_answer_with_thoughts_goes_back_as_it_came(make_request):
    said = {"type": "text", "text": "a"}
    thought = {"type": "thinking", "thinking": "", "signature": "c2ln"}
    begun = make_request(USER, Message(Role.ASSISTANT, "{", prefill=True))
    assert decode({"content": [said], "stop_reason": "end_turn"}, make_request()).echo is None
    assert decode({"content": [thought, said], "stop_reason": "end_turn"}, begun).echo is None


def test_a_model_that_thinks_has_room_for_it_once_its_answer_to_us_was_cut_off(make_request):
    asked = make_request(USER, response_schema=ResponseSchema("verdict", SCHEMA))
    first, again = encode(asked), encode(asked, frozenset({NEEDS_ROOM}))
    assert (first.body["max_tokens"], first.is_tight) == (1024, True)
    assert (again.body["max_tokens"], again.is_tight) == (1024 + 25_000, False)
    users = encode(make_request(USER), frozenset({NEEDS_ROOM}))
    assert (users.body["max_tokens"], users.is_tight) == (1024, False)


def test_content_that_is_not_a_block_makes_the_reply_unreadable(make_request):
    with pytest.raises(UnreadableReply):
        decode({"content": [{"type": "text", "text": "a"}, "odd"]}, make_request())


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input_tokens": 10, "output_tokens": 5}, Usage(10, 5)),
        (
            {
                "input_tokens": 1,
                "cache_creation_input_tokens": 20,
                "cache_read_input_tokens": 300,
                "output_tokens": 5,
            },
            Usage(321, 5, Extras(cache_read=300, cache_written=20)),
        ),
        (
            {
                "input_tokens": 1,
                "cache_creation_input_tokens": 20,
                "cache_read_input_tokens": 0,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 5,
                    "ephemeral_1h_input_tokens": 15,
                },
                "output_tokens": 5,
            },
            Usage(21, 5, Extras(cache_written=20, written_1h=15)),
        ),
        (
            {
                "input_tokens": 1,
                "server_tool_use": {"web_search_requests": 2},
                "output_tokens": 5,
            },
            Usage(1, 5, Extras(searches=2)),
        ),
        (
            {
                "input_tokens": 1,
                "output_tokens": 5,
                "service_tier": "priority",
                "iterations": [
                    {"type": "compaction", "input_tokens": 20, "cache_read_input_tokens": 300}
                    | {"output_tokens": 40},
                    {"type": "message", "input_tokens": 1, "output_tokens": 5},
                ],
            },
            Usage(321, 45, Extras(cache_read=300, tier="priority")),
        ),
        (
            {
                "input_tokens": 1,
                "output_tokens": 5,
                "iterations": [{"type": "advisor_message", "model": "claude-opus-5"}],
            },
            Usage(1, 5, Extras(unpriced=True)),
        ),
        ({"input_tokens": 1, "cache_read_input_tokens": None, "output_tokens": 0}, Usage(1, 0)),
        ({"cache_read_input_tokens": 300}, Usage(None, None)),
        (None, Usage(None, None)),
    ],
)
def test_input_counts_what_the_cache_held(make_request, usage, expected):
    assert decode({"content": [], "usage": usage}, make_request()).usage == expected


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("tool_use", FinishReason.TOOL_CALLS),
        ("max_tokens", FinishReason.MAX_TOKENS),
        ("model_context_window_exceeded", FinishReason.MAX_TOKENS),
        ("refusal", FinishReason.CONTENT_FILTER),
        ("pause_turn", FinishReason.OTHER),
        (None, None),
    ],
)
def test_finish_reasons_have_one_vocabulary(make_request, reported, expected):
    assert (
        decode({"content": [], "stop_reason": reported}, make_request()).finish_reason is expected
    )


@pytest.mark.parametrize(
    "body",
    [{}, {"content": None}, {"content": "x"}, {"content": [{"type": "tool_use", "name": "x"}]}],
)
def test_another_shape_is_no_reply(make_request, body):
    with pytest.raises(UnreadableReply):
        decode(body, make_request())
