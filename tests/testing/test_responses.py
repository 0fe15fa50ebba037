"""OpenAI's Responses through its SDK: what is remembered, what is refused, how answers end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

USER = {"role": "user", "content": "Hi"}
CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "{}"}
REMEMBERS = {
    "rules": [
        {"when": {"said": "Ada", "user": "name"}, "reply": {"text": "You are Ada."}},
        {"when": {"calledThisTurn": "look"}, "reply": {"text": "Seen: {{results.look}}"}},
        {"when": {"user": "look"}, "reply": {"toolCalls": [{"name": "look"}]}},
        {"reply": {"text": "Hello {{system}}"}},
    ]
}


def body(*items: Any, **changes: Any) -> dict[str, Any]:
    return {"model": "gpt-4o", "input": list(items) or [USER], **changes}


def test_a_response_continues_the_one_that_it_names(serve, responses_agent):
    agent = responses_agent(serve(REMEMBERS).url)
    first = agent.create(input="I am Ada", instructions="Be kind.")
    second = agent.create(input="What is my name?", previous_response_id=first.id)
    third = agent.create(input="And yours?", previous_response_id=second.id)

    assert (first.output_text, second.output_text) == ("Hello Be kind.", "You are Ada.")
    assert third.output_text == "Hello "  # instructions are those of one request


def test_items_are_found_by_their_ids(serve, responses_agent):
    agent = responses_agent(serve(REMEMBERS).url)
    call = agent.create(input="look").output[0]
    reference = {"type": "item_reference", "id": call.id}
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "a cat"}

    reply = agent.create(input=[{"role": "user", "content": "look"}, reference, output])

    assert reply.output_text == "Seen: a cat"


def test_what_is_not_stored_is_not_remembered(serve, responses_agent):
    agent = responses_agent(serve(REMEMBERS).url)
    first = agent.create(input="I am Ada", store=False)

    refused = agent.post(body(previous_response_id=first.id))

    error = refused.body["error"]
    assert (refused.status, error["code"]) == (400, "previous_response_not_found")


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        ({"input": "Hi"}, "request"),
        ({"model": "m"}, "request"),
        (body({"role": "robot", "content": "x"}), "input[0].role"),
        (body(USER, OUTPUT), "input[1]"),
        (body(USER, CALL), "input"),
        (body(USER, {**CALL, "arguments": {}}, OUTPUT), "input[1].arguments"),
        (body({"type": "item_reference", "id": "fc_9"}), "input[0]"),
        (body(max_output_tokens=15), "max_output_tokens"),
        (body(max_tokens=20), "max_tokens"),
        ({"model": "m", "messages": [USER]}, "messages"),
        (body(response_format={"type": "json_object"}), "response_format"),
        (body(tools=[{"type": "function", "function": {"name": "look"}}]), "tools[0]"),
        (body(tool_choice="sometimes"), "tool_choice"),
        (body(conversation="conv_1"), "conversation"),
        (body(text={"format": {"type": "json_schema", "schema": {}}}), "text.format"),
    ],
)
def test_a_wrong_request_is_refused_with_its_place(serve, responses_agent, sent, param):
    refused = responses_agent(serve(REMEMBERS).url).post(sent)

    assert (refused.status, refused.body["error"]["type"]) == (400, "invalid_request_error")
    assert refused.body["error"]["param"] == param


def test_an_answer_that_is_cut_is_incomplete(serve, responses_agent):
    usage = {"inputTokens": 1000, "outputTokens": 50}
    reply = {"text": "x " * 100, "usage": usage}
    agent = responses_agent(serve({"rules": [{"reply": reply}]}).url)

    cut = agent.create(input="Hi", max_output_tokens=16)

    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (len(cut.output_text), cut.usage.total_tokens) == (64, 1050)


def test_each_event_has_the_type_that_the_sdk_knows(serve, key):
    reply = {"text": "Two  words", "toolCalls": [{"name": "look", "arguments": {"a": 1}}]}
    server = serve({"rules": [{"reply": reply}]})

    async def events() -> list[Any]:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key) as client:
            stream = await client.responses.create(model="gpt-4o", input="Hi", stream=True)
            return [event async for event in stream]

    heard = asyncio.run(events())

    for event in heard:
        type(event).model_validate(event.model_dump(), strict=True)
    assert [event.sequence_number for event in heard] == list(range(len(heard)))
    last: Response = heard[-1].response
    assert "".join(e.delta for e in heard if e.type == "response.output_text.delta") == "Two  words"
    assert [item.type for item in last.output] == ["message", "function_call"]
    assert last.output[1].arguments == '{"a": 1}'
