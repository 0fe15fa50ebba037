"""Chat Completions as JSON: what is sent, what is read."""

from __future__ import annotations

import pytest

from kindlm.ports import ResponseSchema
from kindlm.providers.openai_provider import decode, encode, is_reasoning_model
from kindlm.suite import ModelParams
from kindlm.transcript import FinishReason, Message, Role, ToolCall, Usage
from kindlm.wires import UnreadableReply

USER = Message(Role.USER, "U")
VERDICT = {
    "type": "object",
    "properties": {"score": {"type": "number", "minimum": 0, "maximum": 1}},
    "required": ["score"],
    "additionalProperties": False,
}


def test_parameters_are_sent_under_their_names(make_request):
    params = ModelParams(0.5, 2048, top_p=0.9, stop_sequences=("END",), seed=42)
    sent = encode(make_request(USER, params=params))
    assert sent.body == {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "U"}],
        "temperature": 0.5,
        "max_tokens": 2048,
        "top_p": 0.9,
        "stop": ["END"],
        "seed": 42,
    }
    assert sent.warnings == []


def test_what_the_model_said_goes_back_exactly(make_request):
    calls = (
        ToolCall("call_b", "find", {"q": "Œ 1", "n": 1.0}),
        ToolCall("call_a", "find", {}, malformed="{bad"),
        ToolCall("call_c", "find", {}, malformed="[1]"),
    )
    sent = encode(
        make_request(
            USER,
            Message(Role.ASSISTANT, "thinking", tool_calls=calls),
            Message(Role.TOOL, "null", tool_call_id="call_b", tool_name="find"),
            Message(Role.TOOL, '"x"', tool_call_id="call_a", tool_name="find"),
        )
    )
    _, assistant, first, second = sent.body["messages"]
    assert assistant["content"] == "thinking"
    assert [call["id"] for call in assistant["tool_calls"]] == ["call_b", "call_a", "call_c"]
    assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == [
        '{"q":"Œ 1","n":1.0}',
        "{bad",
        "[1]",
    ]
    assert first == {"role": "tool", "content": "null", "tool_call_id": "call_b"}
    assert second == {"role": "tool", "content": '"x"', "tool_call_id": "call_a"}


def test_a_prefill_is_a_warning(make_request):
    sent = encode(make_request(USER, Message(Role.ASSISTANT, "{", prefill=True)))
    assert sent.body["messages"] == [{"role": "user", "content": "U"}]
    assert "prefill" in sent.warnings[0]


@pytest.mark.parametrize("model", ["o1", "o4-mini-2025-04-16", "gpt-5.2-pro", "openai/gpt-5-mini"])
def test_a_reasoning_model_gets_its_own_limit_and_no_default_temperature(make_request, model):
    sent = encode(make_request(USER, model=model))
    assert is_reasoning_model(model)
    assert sent.body["max_completion_tokens"] == 1024
    assert sent.body.keys() == {"model", "messages", "max_completion_tokens"}
    assert "temperature" in sent.warnings[0]


@pytest.mark.parametrize(
    "model", ["gpt-4o", "gpt-4.1", "gpt-5-chat-latest", "gpt-oss-120b", "olmo-2", "phi-o1x"]
)
def test_other_models_get_both_parameters(make_request, model):
    sent = encode(make_request(USER, model=model))
    assert sent.body["max_tokens"] == 1024
    assert sent.body["temperature"] == 0.2


def test_a_temperature_that_was_written_is_sent_to_a_reasoning_model(make_request):
    params = ModelParams(temperature=1.0, written=frozenset({"temperature"}))
    sent = encode(make_request(USER, model="o3", params=params))
    assert sent.body["temperature"] == 1.0
    assert "temperature" not in sent.defaults


@pytest.mark.parametrize("refused", ["max_tokens", "max_completion_tokens"])
def test_a_refused_limit_goes_by_its_other_name_even_if_written(make_request, refused):
    params = ModelParams(max_tokens=7, written=frozenset({"max_tokens"}))
    sent = encode(make_request(USER, params=params), frozenset({refused}))
    (name,) = {"max_tokens", "max_completion_tokens"} - {refused}
    assert sent.body[name] == 7
    assert refused not in sent.body
    assert name not in sent.defaults


def test_what_a_reasoning_model_thinks_comes_on_top_of_an_answer_to_us(make_request):
    asked = {"model": "o3-mini", "response_schema": ResponseSchema("verdict", VERDICT)}
    assert encode(make_request(USER, **asked)).body["max_completion_tokens"] == 1024 + 25_000
    written = ModelParams(max_tokens=7, written=frozenset({"max_tokens"}))
    assert (
        encode(make_request(USER, params=written, model="o3-mini")).body["max_completion_tokens"]
        == 7
    )
    others = {**asked, "model": "gpt-4o"}
    assert encode(make_request(USER, **others)).body["max_tokens"] == 1024


def test_a_refusal_is_reported_as_one(make_request):
    message = {"content": None, "refusal": "I cannot help with that."}
    body = {"choices": [{"message": message, "finish_reason": "stop"}]}
    assert decode(body, make_request(USER)).finish_reason is FinishReason.CONTENT_FILTER
    body = {"choices": [{"message": {**message, "content": "{}"}, "finish_reason": "stop"}]}
    assert decode(body, make_request(USER)).finish_reason is FinishReason.STOP


def test_structured_output_is_strict_where_the_schema_allows(make_request):
    sent = encode(make_request(USER, response_schema=ResponseSchema("verdict", VERDICT)))
    assert sent.body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "verdict", "schema": VERDICT, "strict": True},
    }
    loose = {**VERDICT, "additionalProperties": True}
    sent = encode(make_request(USER, response_schema=ResponseSchema("verdict", loose)))
    assert "strict" not in sent.body["response_format"]["json_schema"]


def reply(message: dict[str, object], **more: object) -> dict[str, object]:
    return {"choices": [{"message": message, "finish_reason": "stop"}], **more}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None}, ""),
        ({}, ""),
        ({"content": ""}, ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab"),
        ({"content": [{"type": "refusal", "refusal": "no"}]}, "no"),
        ({"content": None, "refusal": "I can't."}, "I can't."),
        ({"content": [{"type": "image_url", "image_url": {}}, 7, None]}, ""),
    ],
)
def test_content_comes_in_many_shapes(make_request, message, text):
    assert decode(reply(message), make_request()).text == text


def test_parallel_tool_calls_keep_order_ids_and_odd_arguments(make_request):
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "a", "arguments": '{"x": 1}'}},
        {"id": "c2", "function": {"name": "b", "arguments": "[1, 2]"}},
        {"id": "c3", "function": {"name": "c", "arguments": '{"x": NaN}'}},
        {"id": "c4", "function": {"name": "d", "arguments": ""}},
        {"id": "c5", "function": {"name": "e", "arguments": {"x": 2}}},
        {"function": {"name": "f", "arguments": "{" * 100_000}},
        {"id": "c7", "function": {"name": "g", "arguments": '{"x": -1e400}'}},
    ]
    got = decode(reply({"content": None, "tool_calls": calls}), make_request()).tool_calls
    assert got == (
        ToolCall("c1", "a", {"x": 1}),
        ToolCall("c2", "b", {}, malformed="[1, 2]"),
        ToolCall("c3", "c", {}, malformed='{"x": NaN}'),
        ToolCall("c4", "d", {}),
        ToolCall("c5", "e", {"x": 2}),
        ToolCall("call_5", "f", {}, malformed="{" * 100_000),
        ToolCall("c7", "g", {}, malformed='{"x": -1e400}'),
    )


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 1, "completion_tokens": 2}, Usage(1, 2)),
        ({"prompt_tokens": 0, "completion_tokens": None}, Usage(0, None)),
        ({"prompt_tokens": True, "completion_tokens": "3"}, Usage(None, None)),
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, Usage(None, None)),
        (None, Usage(None, None)),
    ],
)
def test_usage_that_is_not_reported_is_unknown(make_request, usage, expected):
    assert decode(reply({}, usage=usage), make_request()).usage == expected


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ("stop", FinishReason.STOP),
        ("length", FinishReason.MAX_TOKENS),
        ("tool_calls", FinishReason.TOOL_CALLS),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("eos", FinishReason.OTHER),
        (None, None),
    ],
)
def test_finish_reasons_have_one_vocabulary(make_request, reported, expected):
    body = {"choices": [{"message": {"content": "x"}, "finish_reason": reported}]}
    assert decode(body, make_request()).finish_reason is expected


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"choices": []},
        {"choices": ["x"]},
        {"choices": [{}]},
        {"choices": [{"message": {"tool_calls": [{"id": "c"}]}}]},
        {"choices": [{"message": {"tool_calls": [None]}}]},
        {"choices": [{"message": {"content": "x", "tool_calls": {"name": "refund"}}}]},
        {"choices": [{"message": {"content": "x", "function_call": {"arguments": "{}"}}}]},
    ],
)
def test_another_shape_is_no_reply(make_request, body):
    with pytest.raises(UnreadableReply):
        decode(body, make_request())


@pytest.mark.parametrize("beside", [{}, {"tool_calls": None}, {"tool_calls": []}])
def test_a_call_in_the_older_form_is_a_call(make_request, beside):
    function = {"name": "refund", "arguments": '{"id": 1}'}
    message = {"content": None, "function_call": function, **beside}
    body = {"choices": [{"message": message, "finish_reason": "function_call"}]}
    assert decode(body, make_request()).tool_calls == (ToolCall("call_0", "refund", {"id": 1}),)
