"""Conversations with a server that refuses what the real APIs refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from checked_server import TypedLoopbackServer

from kindlm.errors import Err, ErrorCode, Ok
from kindlm.ports import ResponseSchema, ToolDefinition
from kindlm.suite import ModelParams
from kindlm.transcript import FinishReason, Message, Role

TOOLS = (
    ToolDefinition("lookup", "Finds an order", {"type": "object", "properties": {"id": {}}}),
    ToolDefinition("refund", None, {}),
)
SCHEMA = {
    "type": "object",
    "properties": {"mood": {"type": "string"}},
    "required": ["mood"],
    "additionalProperties": False,
}
ODD_TEXTS = {
    "control": "".join(map(chr, range(1, 32))) + "\x7f\x85 control characters",
    "surrogate": "lone surrogates \ud800 and \udfff",
    "huge": "word " * 200_000,
}
SCRIPT = {
    "models": ["gpt-4o", "claude", {"name": "thinker", "reasoning": True}],
    "keys": ["sk-planted-0123456789abcdef"],
    "rules": [
        {"when": {"structured": "mood"}, "reply": {"json": {"mood": "good"}}},
        {
            "when": {"notCalled": ["lookup"], "offered": ["lookup"]},
            "reply": {
                "text": "Let me see.",
                "toolCalls": [
                    {"name": "lookup", "arguments": {"id": "A1"}},
                    {"name": "refund", "arguments": {}},
                ],
            },
        },
        *(
            {"when": {"user": f"Say {name}"}, "reply": {"text": text}}
            for name, text in ODD_TEXTS.items()
        ),
        {"reply": {"text": "Done."}},
    ],
}
USER = Message(Role.USER, "Refund A1")


@pytest.fixture(scope="module")
def server() -> Iterator[TypedLoopbackServer]:
    with TypedLoopbackServer(SCRIPT) as running:
        yield running


def ask(api, server, *requests):
    async def run():
        client = api.client(server.url)
        try:
            return [await client.complete(request) for request in requests]
        finally:
            await client.aclose()

    return asyncio.run(run())


def model_of(api) -> str:
    return {"openai": "gpt-4o", "anthropic": "claude"}[api.type]


def test_a_round_of_parallel_tool_calls_is_accepted(api, server, make_request):
    model = model_of(api)
    (first,) = ask(api, server, make_request(USER, tools=TOOLS, model=model))
    assert isinstance(first, Ok)
    calls = first.value.tool_calls
    assert [call.name for call in calls] == ["lookup", "refund"]
    assert first.value.finish_reason is FinishReason.TOOL_CALLS
    history = (
        Message(Role.SYSTEM, "Be kind."),
        USER,
        Message(Role.ASSISTANT, first.value.text, tool_calls=calls),
        *(Message(Role.TOOL, "{}", tool_call_id=c.id, tool_name=c.name) for c in calls),
    )
    (second,) = ask(api, server, make_request(*history, tools=TOOLS, model=model))
    assert isinstance(second, Ok), second
    assert second.value.text == "Done."
    assert second.value.finish_reason is FinishReason.STOP


def test_structured_output_comes_as_json_text(api, server, make_request):
    wanted = ResponseSchema("mood", SCHEMA)
    request = make_request(USER, response_schema=wanted, model=model_of(api))
    (result,) = ask(api, server, request)
    assert isinstance(result, Ok), result
    assert result.value.text.replace(" ", "") == '{"mood":"good"}'
    assert result.value.tool_calls == ()


def test_a_model_that_takes_no_temperature_is_found_out(api, server, make_request):
    before = len(server.requests)
    results = ask(api, server, *[make_request(USER, model="thinker")] * 4)
    statuses = [logged.status for logged in server.requests[before:]]
    assert len(statuses) == 4
    assert statuses[0] == 400
    assert statuses[-1] == 200
    for result, status in zip(results, statuses, strict=True):
        if status == 400:
            assert isinstance(result, Err)
            assert result.error.details["resend"] is True
        else:
            assert isinstance(result, Ok), result
            assert any("temperature" in warning for warning in result.value.warnings)


def test_an_unknown_model_and_a_wrong_key_have_their_codes(api, server, make_request):
    (unknown,) = ask(api, server, make_request(USER, model="nobody"))
    assert isinstance(unknown, Err)
    assert unknown.error.code is ErrorCode.PROVIDER_API_ERROR
    assert unknown.error.details["status"] == 404

    async def run():
        client = api.client(server.url, key="sk-wrong-key-123456")
        try:
            return await client.complete(make_request(USER, model=model_of(api)))
        finally:
            await client.aclose()

    refused = asyncio.run(run())
    assert isinstance(refused, Err)
    assert refused.error.code is ErrorCode.PROVIDER_AUTH_ERROR
    assert "sk-wrong-key-123456" not in repr(refused.error)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"cut": "before"}, ErrorCode.PROVIDER_NETWORK_ERROR),
        ({"cut": "headers"}, ErrorCode.PROVIDER_NETWORK_ERROR),
        ({"cut": "body"}, ErrorCode.PROVIDER_NETWORK_ERROR),
        ({"stallMs": 60_000}, ErrorCode.PROVIDER_TIMEOUT),
        ({"latencyMs": 60_000}, ErrorCode.PROVIDER_TIMEOUT),
    ],
    ids=str,
)
def test_faults_have_their_codes(api, server, make_request, fault, code):
    timeout_s = 0.3 if code is ErrorCode.PROVIDER_TIMEOUT else 20.0
    server.use_faults([fault])
    try:
        request = make_request(USER, model=model_of(api), timeout_s=timeout_s)
        (result,) = ask(api, server, request)
    finally:
        server.use_faults([])
    assert isinstance(result, Err)
    assert result.error.code is code


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_texts_arrive(api, server, make_request, text):
    params = ModelParams(max_tokens=1_000_000)
    asks = Message(Role.USER, f"Say {text}")
    (result,) = ask(api, server, make_request(asks, model=model_of(api), params=params))
    assert isinstance(result, Ok), result
    said = Message(Role.ASSISTANT, result.value.text)
    assert len(said.text) == len(ODD_TEXTS[text])
    (again,) = ask(api, server, make_request(asks, said, USER, model=model_of(api)))
    assert isinstance(again, Ok), again
