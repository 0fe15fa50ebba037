"""What an agent may do unseen leaves the checks of its tools undecided, message by message."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp
import pytest
from gateway_agents import CHAT_TOOL, RESULT
from raw_peer import http_answer, open_peer

from kindlm.gateway import conversation
from kindlm.transcript import Cost, Usage


def answer(text="Hi there!", *names):
    """Answer as a model does, with tool calls whose ids are their names."""
    calls = [{"id": name, "type": "function", "function": {"name": name}} for name in names]
    message = {"content": text, "tool_calls": calls}
    return http_answer(
        200,
        {
            "id": "chatcmpl-1",
            "model": "gpt-4o",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        },
    )


def said(*results, path="/chat/completions"):
    """Return a model call that holds results of tools."""
    sent = [{"role": "user", "content": "Hi"}]
    sent += [{"role": "tool", "tool_call_id": name, "content": RESULT} for name in results]
    return path, {"model": "gpt-4o", "messages": sent, "tools": [CHAT_TOOL]}


@pytest.fixture
def talk(behind):
    """Have a talk; return what was seen of each message.

    A message is the model calls that an agent makes for it. Those of `between` come after the
    first answer. With `until_end`, the warning at the end of the conversation comes last.
    """

    def talk(answers, *messages, between=(), until_end=False):
        async def call(bench, path, body):
            headers = {"authorization": f"Bearer {bench.gateway.key}"}
            async with aiohttp.ClientSession(headers=headers) as session:
                await session.post(bench.openai + path, json=body)

        async def run():
            seen = []
            async with open_peer(*answers) as peer, behind(peer.url) as bench:
                for number, calls in enumerate(messages):
                    for each in between if number == 1 else ():
                        await call(bench, *each)
                    await bench.observed.begin(number)
                    for each in calls:
                        await call(bench, *each)
                    seen.append(await bench.observed.seen())
                for each in between if len(messages) == 1 else ():
                    await call(bench, *each)
                if until_end:
                    seen.append(bench.observed.close())
            return seen

        return asyncio.run(run())

    return talk


def test_a_message_without_an_answer_of_a_model_is_undecided(talk):
    failed = http_answer(500, {"error": {"message": "No"}})
    vectors = http_answer(200, {"data": [], "usage": {"prompt_tokens": 7}})
    answers = answer(), failed, vectors, answer()
    seen = talk(answers, [said()], [said()], [said(path="/embeddings")], [], [said()])
    assert [each.missing is None for each in seen] == [True, False, False, False, True]
    assert "No model answered the agent shop through the gateway" in seen[1].missing


def test_a_result_of_a_call_that_was_not_seen_leaves_that_message_undecided(talk):
    answers = answer("", "lookup_order"), answer()
    messages = [said(), said("lookup_order")], [said("lookup_order", "refund")], [said("refund")]
    first, second, third = talk(answers, *messages)
    assert (first.missing, third.missing) == (None, None)
    assert "that no model made through the gateway" in second.missing


def test_a_result_may_come_before_its_call_is_recorded(talk):
    (seen,) = talk((answer(), answer("", "refund")), [said("refund"), said()])
    assert seen.missing is None
    assert [use.response for use in seen.tool_uses] == [{"paid": 7}]


@pytest.mark.parametrize(
    ("path", "is_silent"),
    [
        ("/threads/thread_1/runs", False),
        ("/deployments/x/chat/completions", False),
        ("/v1/chat/completions", False),
        ("/chat%2Fcompletions", False),
        ("/files%2Fchat/completions", False),
        ("/batches", False),
        ("/embeddings", True),
        ("/vector_stores/vs_1/search", True),
        ("/responses/input_tokens", True),
    ],
)
def test_an_address_that_is_not_understood_leaves_tools_undecided(talk, path, is_silent):
    (seen,) = talk((answer(), answer()), [said(), said(path=path)])
    assert (seen.missing is None) is is_silent, seen.missing


def test_what_comes_after_an_answer_belongs_to_the_next_message(talk):
    answers = answer(), answer("", "refund"), answer()
    late = said(), said("refund"), said(path="/batches")
    first, second = talk(answers, [said()], [said()], between=late)
    assert (first.missing, first.tool_uses) == (None, ())
    assert [use.call.name for use in second.tool_uses] == ["refund"]
    assert "openai/batches" in second.missing
    assert (second.usage.total, second.cost.usd) == (None, None)  # of a batch they are not known


def test_tool_calls_after_the_last_answer_have_a_warning(talk):
    answers = answer(), answer("", "refund"), answer()
    late = said(), said("refund")
    _, warning = talk(answers, [said()], between=late, until_end=True)
    assert "after its last answer, which no check saw: refund" in warning
    _, nothing = talk((answer(), answer()), [said()], between=[said()], until_end=True)
    assert nothing is None


def test_a_call_that_the_agent_does_not_wait_for_leaves_tools_and_costs_unknown(
    behind, monkeypatch
):
    monkeypatch.setattr(conversation, "_WAIT_AFTER_ANSWER_S", 0)
    path, body = said()

    async def run():
        over = asyncio.Event()

        async def slow():
            yield b"{"
            await over.wait()

        async with open_peer(answer()) as peer, behind(peer.url) as bench:
            headers = {"authorization": f"Bearer {bench.gateway.key}"}
            async with aiohttp.ClientSession(headers=headers) as session:
                await bench.observed.begin(0)
                await session.post(bench.openai + path, json=body)
                while bench.observed.open:
                    await asyncio.sleep(0)
                running = asyncio.create_task(session.post(bench.openai + path, data=slow()))
                while not bench.observed.open:
                    await asyncio.sleep(0)
                seen = await bench.observed.seen()
                running.cancel()
                over.set()
                return seen

    seen = asyncio.run(run())
    assert "A model call was still running when the agent answered" in seen.missing
    assert (seen.usage, seen.cost, seen.model) == (Usage(), Cost(), "gpt-4o")


def test_a_call_in_any_of_several_choices_is_seen(talk):
    message = {"tool_calls": [{"id": "c1", "function": {"name": "refund", "arguments": "{}"}}]}
    choices = [{"message": {"content": "Hi"}, "finish_reason": "stop"}, {"message": message}]
    (seen,) = talk([http_answer(200, {"choices": choices})], [said()])
    assert [use.call.name for use in seen.tool_uses] == ["refund"]
    assert "called refund, but received no result" in seen.missing


@pytest.mark.parametrize("path", ["/audio/speech", "/embeddings"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_an_answer_that_holds_no_tool_calls_may_be_cut_off_or_no_text(behind, path, is_cut):
    more = {"content-length": "3", "connection": "close"} if is_cut else {}
    sound = http_answer(200, b"\xff\xfb", more, kind="audio/mpeg")

    async def run():
        async with open_peer(sound, answer()) as peer, behind(peer.url) as bench:
            headers = {"authorization": f"Bearer {bench.gateway.key}"}
            async with aiohttp.ClientSession(headers=headers) as session:
                for each, body in ((path, {"model": "m-1", "input": "Hi"}), said()):
                    async with session.post(bench.openai + each, json=body) as got:
                        with suppress(aiohttp.ClientPayloadError):
                            await got.read()
            seen = await bench.observed.seen()
            assert (seen.missing, seen.cost) == (None, Cost())
            assert len(bench.desk.failures) == is_cut

    asyncio.run(run())


def test_a_call_that_a_server_left_in_the_text_of_an_answer_may_have_been_run(talk):
    left = answer('<tool_call>{"name": "refund", "arguments": {}}</tool_call>')
    seen = talk([left, answer(), answer()], [said(), said()], [said()])
    assert "<tool_call>" in seen[0].missing
    assert "If the text is intended, add `reportsTools: true`" in seen[0].missing
    assert seen[1].missing is None
