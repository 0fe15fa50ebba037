"""How replies follow from what the server is sent, alike through all wire formats."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from openai import AsyncOpenAI

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
WEATHER = {
    "rules": [
        {
            "name": "report",
            "when": {"called": ["weather", "tides"]},
            "reply": {
                "text": "{{results.weather.degrees}} degrees in {{arguments.weather.city}}, "
                "tide {{results.tides.0|unknown}}."
            },
        },
        {
            "name": "ask",
            "when": {"user": {"matches": r"weather in (?P<city>\w+)"}, "offered": "weather"},
            "reply": {
                "toolCalls": [
                    {"name": "weather", "arguments": {"city": "{{city}}", "days": 3}},
                    {"name": "tides"},
                ]
            },
        },
        {"name": "else", "reply": {"text": "You said: {{user}}"}},
    ]
}


def test_parallel_calls_and_their_results_make_the_reply(serve, converse):
    server = serve(WEATHER)
    tools = {"weather": {"degrees": 21.5}, "tides": ["high", "low"]}
    calls, text = converse(server.url, "You know.", "The weather in Oslo?", tools)
    assert [(call["name"], call["arguments"]) for call in calls] == [
        ("weather", {"city": "Oslo", "days": 3}),
        ("tides", {}),
    ]
    assert text == "21.5 degrees in Oslo, tide high."
    assert [entry.rule for entry in server.requests] == ["ask", "report"]
    others = {"weather": {"degrees": -3}, "tides": "no tides here"}
    _, text = converse(server.url, "", "weather in Bern", others)
    assert text == "-3 degrees in Bern, tide unknown."
    calls, text = converse(server.url, "", "weather in Oslo", {"other": {}})
    assert (calls, text) == ([], "You said: weather in Oslo")


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_the_same_request_gets_the_same_answer(echo, path):
    first, again, other = (
        echo.post(path, **extra).body for extra in ({}, {}, {"metadata": {"a": "b"}})
    )
    assert first == again
    assert json.loads(first)["id"] != json.loads(other)["id"]


LOOKED = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hello world"},
    {
        "role": "assistant",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "c", "content": '{"count": 2, "flag": true, "no": null}'},
]


@pytest.mark.parametrize(
    ("when", "is_met"),
    [
        ({"user": "HELLO"}, True),
        ({"user": ["nothing", "world"]}, True),
        ({"user": {"all": ["hello", "nothing"]}}, False),
        ({"user": {"none": ["world"]}}, False),
        ({"user": {"matches": "^hello"}}, True),
        ({"system": "rude"}, False),
        ({"model": ["gpt-*", "claude-*"]}, True),
        ({"model": "o3"}, False),
        ({"asks": "judge"}, False),
        ({"notCalled": "look"}, False),
        ({"offered": "look"}, False),
        ({"notOffered": "look"}, True),
        ({"called": "look", "calledThisTurn": "look", "system": "kind"}, True),
        ({"results": {"look.count": 2}}, True),
        ({"results": {"look.count": True}}, False),
        ({"results": {"look.flag": 1}}, False),
        ({"results": {"look.flag": None}}, False),
        ({"results": {"look.no": None}}, True),
        ({"results": {"look.flag.x": {"exists": False}, "look.flag": {"exists": True}}}, True),
    ],
)
def test_conditions(asked, when, is_met):
    rules = [{"when": when, "reply": {"text": "met"}}, {"reply": {"text": "not met"}}]
    message = asked({"rules": rules}).message(model="gpt-4o", messages=LOOKED)
    assert message["content"] == ("met" if is_met else "not met")


def test_values_are_put_in_once(echo):
    assert echo.message("{{system}}")["content"] == "You said: {{system}}"


def test_a_missing_value_is_reported_as_a_mistake_of_the_script(asked):
    app = asked({"rules": [{"name": "lost", "reply": {"text": "{{results.look.x}}"}}]})
    refused = app.post(CHAT)
    assert refused.status == 500
    assert b"rule 'lost': there is no value for {{results.look.x}}" in refused.body


def test_without_a_rule_it_says_so(asked):
    assert "no rule" in asked({}).message()["content"]


def test_limits_and_stop_texts_end_the_reply(echo):
    messages = [{"role": "user", "content": "one two three four five six"}]

    def answer(path: str, **limits: Any) -> Any:
        said = {"input": messages} if path == RESPONSES else {"messages": messages}
        return json.loads(echo.post(path, **said, **limits).body)

    short = answer(CHAT, max_tokens=2)["choices"][0]
    assert (short["finish_reason"], short["message"]["content"]) == ("length", "You said")
    stopped = answer(CHAT, stop=["three"])["choices"][0]
    assert (stopped["finish_reason"], stopped["message"]["content"]) == (
        "stop",
        "You said: one two ",
    )
    short = answer(MESSAGES, max_tokens=2)
    assert (short["stop_reason"], short["content"][0]["text"]) == ("max_tokens", "You said")
    stopped = answer(MESSAGES, stop_sequences=["three"])
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "three")
    nothing = answer(MESSAGES, max_tokens=0)
    assert (nothing["content"], nothing["stop_reason"]) == ([], "max_tokens")
    messages[0]["content"] *= 5
    cut = answer(RESPONSES, max_output_tokens=16)
    assert (cut["status"], cut["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )


def test_a_prefill_is_continued(echo):
    prefilled = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "You said"}]
    answer = json.loads(echo.post(MESSAGES, messages=prefilled).body)
    assert answer["content"][0]["text"] == ": Hi"


def test_reported_usage(asked):
    usage = {"inputTokens": 1000, "outputTokens": 50}
    app = asked({"rules": [{"reply": {"text": "x", "usage": usage}}]})
    for path in (CHAT, RESPONSES):
        assert json.loads(app.post(path).body)["usage"]["total_tokens"] == 1050
    assert json.loads(app.post(MESSAGES).body)["usage"]["input_tokens"] == 1000
    missing = asked({"rules": [{"reply": {"text": "x", "usage": "missing"}}]})
    assert "usage" not in json.loads(missing.post(CHAT).body)


def test_one_call_at_a_time_if_asked(asked):
    app = asked({"rules": [{"reply": {"toolCalls": [{"name": "a"}, {"name": "b"}]}}]})
    calls = app.message(parallel_tool_calls=False)["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["a"]


STREAMED = {
    "rules": [
        {
            "reply": {
                "text": "Two  words",
                "toolCalls": [{"name": "look", "arguments": {"a": [1, "x"]}}],
            }
        }
    ]
}


def test_answers_stream_as_the_sdks_read_them(serve, key):
    from anthropic import AsyncAnthropic

    server = serve(STREAMED)
    hi: Any = [{"role": "user", "content": "Hi"}]

    async def streams() -> Any:
        openai = AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key)
        anthropic = AsyncAnthropic(base_url=server.url, api_key=key)
        async with openai, anthropic:
            async with openai.chat.completions.stream(
                model="gpt-4o", messages=hi, stream_options={"include_usage": True}
            ) as chunks:
                completion = await chunks.get_final_completion()
            async with anthropic.messages.stream(
                model="claude-x", max_tokens=99, messages=hi
            ) as events:
                message = await events.get_final_message()
            heard = await openai.responses.create(model="gpt-4o", input="Hi", stream=True)
            return completion, message, [event async for event in heard]

    completion, message, heard = asyncio.run(streams())
    said = completion.choices[0].message
    assert said.content == "Two  words"
    assert json.loads(said.tool_calls[0].function.arguments) == {"a": [1, "x"]}
    assert completion.usage.completion_tokens > 0
    assert (message.content[0].text, message.content[1].input) == ("Two  words", {"a": [1, "x"]})
    assert message.stop_reason == "tool_use"
    for event in heard:
        type(event).model_validate(event.model_dump(), strict=True)
    assert [event.sequence_number for event in heard] == list(range(len(heard)))
    assert "".join(e.delta for e in heard if e.type == "response.output_text.delta") == "Two  words"
    assert heard[-1].response.output[1].arguments == '{"a": [1, "x"]}'


def test_a_response_is_remembered_with_its_items(asked):
    app = asked(
        {
            "rules": [
                {"when": {"said": "Ada", "user": "name"}, "reply": {"text": "You are Ada."}},
                {"when": {"calledThisTurn": "look"}, "reply": {"text": "{{results.look}}"}},
                {"when": {"user": "look"}, "reply": {"toolCalls": [{"name": "look"}]}},
                {"reply": {"text": "Hello {{system}}"}},
            ]
        }
    )

    def create(given: Any, **options: Any) -> Any:
        return json.loads(app.post(RESPONSES, input=given, **options).body)

    def text(response: Any) -> str:
        return str(response["output"][0]["content"][0]["text"])

    first = create("I am Ada", instructions="Be kind.")
    second = create("What is my name?", previous_response_id=first["id"])
    third = create("And yours?", previous_response_id=second["id"])
    assert (text(first), text(second)) == ("Hello Be kind.", "You are Ada.")
    assert text(third) == "Hello "  # instructions are those of one request
    call = create("look")["output"][0]
    reference = {"type": "item_reference", "id": call["id"]}
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "a cat"}
    assert text(create([{"role": "user", "content": "look"}, reference, output])) == "a cat"
    unstored = create("I am Bob", store=False)
    error = app.refused(RESPONSES, previous_response_id=unstored["id"])
    assert error["code"] == "previous_response_not_found"


def test_embeddings_are_near_where_words_are_common(serve, key):
    server = serve({})

    async def embed(**options: Any) -> list[list[float]]:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key) as client:
            reply = await client.embeddings.create(
                model="text-embedding-3-small",
                input=["the cat sat", "the cat slept", "ORD-1234 refunded"],
                **options,
            )
            return [entry.embedding for entry in reply.data]

    def dot(left: list[float], right: list[float]) -> float:
        return sum(a * b for a, b in zip(left, right, strict=True))

    one, near, far = asyncio.run(embed(encoding_format="float"))
    assert dot(one, one) == pytest.approx(1)
    assert dot(one, near) > dot(one, far)
    assert asyncio.run(embed())[1] == pytest.approx(near)  # base64 on the wire
