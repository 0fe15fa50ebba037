"""How replies follow from what the server is sent, alike through both wire formats."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

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
            "name": "closed",
            "when": {"called": "weather", "results": {"weather.error": {"exists": True}}},
            "reply": {"text": "No weather: {{results.weather.error}}"},
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


def answers(**results: Any) -> Any:
    return lambda name, arguments: results[name]


def test_parallel_calls_and_their_results_make_the_reply(serve, speak):
    server = serve(WEATHER)
    simulate = answers(weather={"degrees": 21.5}, tides=["high", "low"])
    calls, text = speak(server.url).converse(
        "You know.", "The weather in Oslo?", ["weather", "tides"], simulate
    )
    assert [(call["name"], call["arguments"]) for call in calls] == [
        ("weather", {"city": "Oslo", "days": 3}),
        ("tides", {}),
    ]
    assert text == "21.5 degrees in Oslo, tide high."
    assert [entry.rule for entry in server.requests] == ["ask", "report"]


def test_another_tool_answer_makes_another_reply(serve, speak):
    agent = speak(serve(WEATHER).url)
    simulate = answers(weather={"degrees": -3}, tides="no tides here")
    _, text = agent.converse("", "weather in Bern", ["weather", "tides"], simulate)
    assert text == "-3 degrees in Bern, tide unknown."


def test_a_tool_that_is_not_offered_leads_another_way(serve, speak):
    calls, text = speak(serve(WEATHER).url).converse("", "weather in Oslo", ["other"], answers())
    assert (calls, text) == ([], "You said: weather in Oslo")


def test_the_same_request_gets_the_same_answer(serve, speak):
    agent = speak(serve(WEATHER).url)
    first, again, other = (
        agent.create(messages=[{"role": "user", "content": text}]) for text in ("a", "a", "b")
    )
    assert first == again
    assert first.id != other.id


@pytest.mark.parametrize(
    ("when", "is_met"),
    [
        ({"user": "HELLO"}, True),
        ({"user": ["nothing", "world"]}, True),
        ({"user": {"all": ["hello", "nothing"]}}, False),
        ({"user": {"none": ["world"]}}, False),
        ({"user": {"matches": "^hello"}}, True),
        ({"system": "kind"}, True),
        ({"system": "rude"}, False),
        ({"userTurns": 1}, True),
        ({"userTurns": 2}, False),
        ({"model": ["gpt-*", "claude-*"]}, True),
        ({"model": "o3"}, False),
        ({"asks": "judge"}, False),
        ({"notOffered": "look"}, False),
        ({"notCalled": "look"}, False),
        ({"called": "look", "calledThisTurn": "look"}, True),
        ({"results": {"look.count": {"min": 2, "max": 3}}}, True),
        ({"results": {"look.count": {"min": 3}}}, False),
        ({"results": {"look.count": True}}, False),
        ({"results": {"look.flag": 1}}, False),
        ({"results": {"look.flag": True}}, True),
        ({"results": {"look.name": {"contains": "ORD"}}}, True),
        ({"results": {"look.name.x": {"exists": False}}}, True),
    ],
)
def test_conditions(serve, speak, when, is_met):
    looked = {"count": 2, "flag": True, "name": "an order"}
    script = {
        "rules": [
            {"when": {"notCalled": "look"}, "reply": {"toolCalls": [{"name": "look"}]}},
            {"when": {"called": "look", **when}, "reply": {"text": "met"}},
            {"reply": {"text": "not met"}},
        ]
    }
    _, text = speak(serve(script).url).converse(
        "Be kind.", "Hello world", ["look"], answers(look=looked)
    )
    assert text == ("met" if is_met else "not met")


def test_wires_can_be_distinguished(serve, speak):
    script = {
        "rules": [
            {"when": {"wire": "openai"}, "reply": {"text": "openai"}},
            {"when": {"wire": "anthropic"}, "reply": {"text": "anthropic"}},
        ]
    }
    assert speak(serve(script).url).answer("Which?") == speak.wire


def test_values_are_put_in_once(echo, speak):
    assert speak(echo.url).answer("{{system}}") == "You said: {{system}}"


def test_a_missing_value_is_reported_as_a_mistake_of_the_script(serve, openai_agent):
    script = {"rules": [{"name": "lost", "reply": {"text": "{{results.look.x}}"}}]}
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    refused = openai_agent(serve(script).url).post(body)
    assert refused.status == 500
    assert "'lost'" in refused.body["error"]["message"]
    assert "results.look.x" in refused.body["error"]["message"]


def test_without_a_rule_it_says_so(serve, speak):
    assert "no rule" in (speak(serve({}).url).answer("Hi") or "")


def test_limits_and_stop_texts_end_the_reply(echo, openai_echo, anthropic_echo):
    messages = [{"role": "user", "content": "one two three four five six"}]
    short = openai_echo.create(messages=messages, max_tokens=2).choices[0]
    assert (short.finish_reason, short.message.content) == ("length", "You said")
    stopped = openai_echo.create(messages=messages, stop=["three"]).choices[0]
    assert (stopped.finish_reason, stopped.message.content) == ("stop", "You said: one two ")
    short = anthropic_echo.create(messages=messages, max_tokens=2)
    assert (short.stop_reason, short.content[0].text) == ("max_tokens", "You said")
    stopped = anthropic_echo.create(messages=messages, stop_sequences=["three"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "three")


def test_a_prefill_is_continued(anthropic_echo):
    prefilled = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "You said"}]
    assert anthropic_echo.create(messages=prefilled).content[0].text == ": Hi"


def test_reported_finish_and_usage(serve, openai_agent, anthropic_agent):
    usage = {"inputTokens": 1000, "outputTokens": 50}
    script = {"rules": [{"reply": {"text": "x", "finish": "content_filter", "usage": usage}}]}
    url, messages = serve(script).url, [{"role": "user", "content": "Hi"}]
    completion = openai_agent(url).create(messages=messages)
    assert completion.choices[0].finish_reason == "content_filter"
    assert completion.usage.total_tokens == 1050
    message = anthropic_agent(url).create(messages=messages)
    assert (message.stop_reason, message.usage.input_tokens) == ("refusal", 1000)


def test_usage_can_be_missing(serve, openai_agent):
    script = {"rules": [{"reply": {"text": "x", "usage": "missing"}}]}
    reply = openai_agent(serve(script).url).create(messages=[{"role": "user", "content": "Hi"}])
    assert reply.usage is None


def test_arguments_can_be_no_json(serve, openai_agent):
    call = {"name": "look", "rawArguments": '{"order'}
    agent = openai_agent(serve({"rules": [{"reply": {"toolCalls": [call]}}]}).url)
    reply = agent.create(messages=[{"role": "user", "content": "Hi"}])
    assert reply.choices[0].message.tool_calls[0].function.arguments == '{"order'


def test_one_call_at_a_time_if_asked(serve, openai_agent):
    calls = [{"name": "a"}, {"name": "b"}]
    agent = openai_agent(serve({"rules": [{"reply": {"toolCalls": calls}}]}).url)
    tools = [{"type": "function", "function": {"name": name}} for name in "ab"]
    messages = [{"role": "user", "content": "Hi"}]
    reply = agent.create(messages=messages, tools=tools, parallel_tool_calls=False)
    assert [call.function.name for call in reply.choices[0].message.tool_calls] == ["a"]


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


def test_a_chat_completion_streams(serve, key):
    server = serve(STREAMED)

    async def stream() -> Any:
        async with (
            AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key) as client,
            client.chat.completions.stream(
                model="gpt-4o",
                messages=[{"role": "user", "content": "Hi"}],
                stream_options={"include_usage": True},
            ) as events,
        ):
            return await events.get_final_completion()

    completion = asyncio.run(stream())
    message = completion.choices[0].message
    assert message.content == "Two  words"
    assert json.loads(message.tool_calls[0].function.arguments) == {"a": [1, "x"]}
    assert completion.usage.completion_tokens > 0


def test_a_message_streams(serve, key):
    server = serve(STREAMED)

    async def stream() -> Any:
        async with (
            AsyncAnthropic(base_url=server.url, api_key=key) as client,
            client.messages.stream(
                model="claude-x", max_tokens=99, messages=[{"role": "user", "content": "Hi"}]
            ) as events,
        ):
            return await events.get_final_message()

    message = asyncio.run(stream())
    assert message.content[0].text == "Two  words"
    assert message.content[1].input == {"a": [1, "x"]}
    assert message.stop_reason == "tool_use"


def test_embeddings_are_near_where_words_are_common(echo, key):
    async def embed(**options: Any) -> list[list[float]]:
        async with AsyncOpenAI(base_url=f"{echo.url}/v1", api_key=key) as client:
            reply = await client.embeddings.create(
                model="text-embedding-3-small",
                input=["the cat sat", "the cat slept", "ORD-1234 refunded"],
                **options,
            )
            return [entry.embedding for entry in reply.data]

    one, near, far = asyncio.run(embed(encoding_format="float"))
    assert dot(one, one) == pytest.approx(1)
    assert dot(one, near) > dot(one, far)
    assert asyncio.run(embed())[1] == pytest.approx(near)  # base64 on the wire


def dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))
