"""Real clients behind the gateway, in each format, with and without a stream."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from gateway_agents import ANTHROPIC_TOOL, CHAT_TOOL, RESPONSES_TOOL, RESULT, chat_loop
from raw_peer import http_answer, open_peer

from kindlm.gateway.server import WithoutUsage
from kindlm.transcript import Role


async def whole_chat(bench):
    async with bench.client() as client:
        return await chat_loop(client, stream=False)


async def streamed_chat(bench):
    async with bench.client() as client:
        return await chat_loop(client, stream=True)


async def responses(bench):
    async with bench.client() as client:
        asked = {"model": "gpt-4o", "tools": [RESPONSES_TOOL]}
        said = [{"role": "user", "content": "Where is my order?"}]
        got = await client.responses.create(**asked, input=said)
        said += [item.to_dict() for item in got.output]
        said += [
            {"type": "function_call_output", "call_id": item.call_id, "output": RESULT}
            for item in got.output
            if item.type == "function_call"
        ]
        return (await client.responses.create(**asked, input=said)).output_text


async def streamed_responses(bench):
    async with bench.client() as client:
        asked = {"model": "gpt-4o", "tools": [RESPONSES_TOOL]}
        said = [{"role": "user", "content": "Where is my order?"}]
        while True:
            async with client.responses.stream(**asked, input=said) as stream:
                got = await stream.get_final_response()
            calls = [item for item in got.output if item.type == "function_call"]
            if not calls:
                return got.output_text
            said += [
                {key: value for key, value in item.to_dict().items() if "parsed" not in key}
                for item in got.output
            ]
            said += [
                {"type": "function_call_output", "call_id": each.call_id, "output": RESULT}
                for each in calls
            ]


async def messages(bench, *, stream=False):
    import anthropic

    asked = {"model": "claude-opus-4-8", "max_tokens": 500, "tools": [ANTHROPIC_TOOL]}
    said = [{"role": "user", "content": "Where is my order?"}]
    url, key = bench.anthropic, bench.gateway.key
    async with anthropic.AsyncAnthropic(base_url=url, api_key=key) as client:
        while True:
            if stream:
                async with client.messages.stream(**asked, messages=said) as events:
                    got = await events.get_final_message()
            else:
                got = await client.messages.create(**asked, messages=said)
            said.append({"role": "assistant", "content": [b.to_dict() for b in got.content]})
            calls = [block for block in got.content if block.type == "tool_use"]
            if not calls:
                return got.content[0].text
            said.append(
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": each.id, "content": RESULT}
                        for each in calls
                    ],
                }
            )


async def streamed_messages(bench):
    return await messages(bench, stream=True)


AGENTS = [whole_chat, streamed_chat, responses, streamed_responses, messages, streamed_messages]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__)
def test_an_agent_is_seen_and_recorded_whole(shop, agent):
    answers = []

    async def talk(bench):
        answers.append(await agent(bench))

    desk, seen = shop(talk)
    assert answers == ["Both were delivered."]
    assert [(use.call.name, use.call.arguments, use.response) for use in seen.tool_uses] == [
        ("lookup_order", {"order_id": "A-1"}, {"paid": 7}),
        ("lookup_order", {"order_id": "A-2"}, {"paid": 7}),
    ]
    assert seen.missing is None
    assert [answer.call for answer in desk.answers] == [2, 3]
    tokens = sum(answer.input_tokens + answer.output_tokens for answer in desk.answers)
    assert seen.usage.total == tokens
    assert seen.cost.usd == pytest.approx(tokens / 100)
    assert [cost.usd for _, cost in desk.spent] == [each.cost_usd for each in desk.answers]
    # History that is repeated in each request is recorded once.
    first, second = desk.asked
    assert (first.after, second.after, second.base) == (0, 2, 2)
    assert [message.role for message in first.messages] == [Role.USER]
    assert {message.role for message in second.messages} == {Role.TOOL}
    assert len(first.items) == 1
    # What the agent says the model said, and two results.
    assert {json.loads(item).get("role") for item in second.items} >= {"assistant"}
    assert "Where is my order?" not in str(second.items)
    rest = json.loads(second.body)
    assert rest["model"] == second.model
    assert "tools" in rest
    assert not {"messages", "input"} & rest.keys()
    assert all(answer.raw and answer.content_type for answer in desk.answers)


@pytest.mark.parametrize("options", [{}, {"stream_options": None}])
def test_tokens_of_a_stream_are_asked_for_and_taken_out_again(shop, options):
    chunks = []

    async def agent(bench):
        async with bench.client() as client:
            said = [{"role": "user", "content": "Hello"}]
            stream = await client.chat.completions.create(
                model="gpt-4o", messages=said, tools=[CHAT_TOOL], stream=True, **options
            )
            chunks.extend([chunk async for chunk in stream])

    desk, seen = shop(agent)
    assert chunks
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    assert seen.usage.input_tokens
    assert ("stream_options" in desk.asked[0].body) is bool(options)
    assert '"usage"' in desk.answers[0].raw


SAID = b'data: {"choices":[{"delta":{"content":"Hi"}}]}'
TOKENS = b'data: {"choices":[],"usage":{"prompt_tokens":1}}'


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_tokens_are_taken_out_wherever_chunks_end(end):
    stream = end.join([SAID, TOKENS, b"data: [DONE]", b""])
    for at in range(len(stream)):
        without = WithoutUsage()
        passed = without.pass_on(stream[:at]) + without.pass_on(stream[at:]) + without.rest()
        assert passed == end.join([SAID, b"data: [DONE]", b""])


def test_an_event_without_end_passes_while_it_comes():
    without = WithoutUsage()
    chunk = b"data: " + b"x" * 60_000
    assert [len(without.pass_on(chunk)) for _ in range(4)] == [0, 2 * len(chunk)] * 2
    assert without.pass_on(b"\n\n" + TOKENS + b"\n\n" + SAID) == b"\n\n"
    assert without.rest() == SAID


def test_an_answer_that_the_provider_remembers_is_continued(behind):
    call = {"type": "function_call", "call_id": "c1", "name": "lookup_order", "arguments": "{}"}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    text = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Yes"}],
    }

    def answer(number, *output):
        body = {"id": f"resp_{number}", "object": "response", "model": "gpt-4o", "output": output}
        return http_answer(200, {**body, "status": "completed"})

    async def run():
        answers = answer(1, search, call), answer(2, text)
        async with open_peer(*answers) as peer, behind(peer.url) as bench, bench.client() as client:
            asked = {"model": "gpt-4o", "tools": [RESPONSES_TOOL]}
            first = await client.responses.create(**asked, input="Where is it?")
            result = {"type": "function_call_output", "call_id": "c1", "output": RESULT}
            await client.responses.create(**asked, input=[result], previous_response_id=first.id)
            seen = await bench.observed.seen()
            assert seen.missing is None
            # What the provider runs itself is a call, too; its result need not come back.
            found = {use.call.name: use.response for use in seen.tool_uses}
            assert found["lookup_order"] == {"paid": 7}
            assert len(found) == 2
            assert [(each.after, each.base) for each in bench.desk.asked] == [(0, None), (2, None)]

    asyncio.run(run())


def test_calls_that_are_no_talk_are_recorded_and_paid_for(behind):
    vectors = {"data": [{"embedding": [0.1]}], "usage": {"prompt_tokens": 7}}
    answers = http_answer(200, vectors), http_answer(200, {"input_tokens": 3})

    async def run():
        async with open_peer(*answers) as peer, behind(peer.url) as bench:
            headers = {"authorization": f"Bearer {bench.gateway.key}"}
            async with aiohttp.ClientSession(headers=headers) as session:
                texts = {"model": "text-embedding-3-small", "input": ["a", "b"]}
                await session.post(f"{bench.openai}/embeddings", json=texts)
                counted = {"model": "claude-opus-4-8", "messages": []}
                await session.post(f"{bench.anthropic}/v1/messages/count_tokens", json=counted)
            seen = await bench.observed.seen()
            assert [each.path for each in bench.desk.asked] == [
                "openai/embeddings",
                "anthropic/messages/count_tokens",
            ]
            assert json.loads(bench.desk.asked[0].body) == texts
            assert (seen.usage.total, seen.cost.usd) == (7, 0.07)
            assert "No model answered" in seen.missing

    asyncio.run(run())
