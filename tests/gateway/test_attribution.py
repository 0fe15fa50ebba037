"""Which conversation a call belongs to, where agents share the address of the run."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import httpx
import pytest
from call_desk import Desk
from gateway_agents import CHAT_TOOL
from raw_peer import http_answer, open_peer

from kindlm.agents.mcp_agent import Mcp
from kindlm.plugins import Adapter
from kindlm.suite import AgentTarget
from kindlm.trace_context import MESSAGE_HEADERS, trace_id

SAID = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}], "tools": [CHAT_TOOL]}
ANSWER = {
    "id": "chatcmpl-1",
    "model": "gpt-4o",
    "choices": [{"index": 0, "message": {"content": "Hi there!"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5},
}


async def call(gateway, **headers):
    """Call a model at the address of the run, as a served agent does."""
    sent = {"authorization": f"Bearer {gateway.key}"}
    sent |= {name.replace("_", "-"): text for name, text in headers.items()}
    url = f"{gateway.address()}/openai/v1/chat/completions"
    async with aiohttp.ClientSession() as session, session.post(url, json=SAID, headers=sent) as it:
        return it.status


def test_a_header_or_a_trace_says_whose_call_it_is(behind):
    async def run():
        async with (
            open_peer(http_answer(200, ANSWER)) as peer,
            behind(peer.url, adapter="http") as first,
        ):
            gateway = first.gateway
            # The first one has passed its header on: another need not wait for its end.
            assert await call(gateway, x_kindlm_execution="1.1") == 200
            assert (await first.observed.seen()).missing is None
            await first.observed.begin(9)
            desk = Desk("2.1")
            second = gateway.observe(AgentTarget("shop", "http", "", gateway=True), desk)
            await second.begin(1)
            assert second.headers["traceparent"].split("-")[1] == trace_id("k3f9x2ab", "2.1")
            span = f"00-{trace_id('k3f9x2ab', '2.1')}-00f067aa0ba902b7-01"
            await call(gateway, traceparent=span)
            await call(gateway, x_kindlm_execution="1.1")
            await call(gateway, x_kindlm_execution="1.1", traceparent=span)
            assert (len(desk.answers), len(first.desk.answers)) == (1, 3)
            assert (await second.seen()).missing is None

    asyncio.run(run())


def test_a_call_of_nobody_is_counted_and_leaves_open_conversations_undecided(behind, warnings):
    async def run():
        async with (
            open_peer(http_answer(200, ANSWER)) as peer,
            behind(peer.url, adapter="http") as bench,
        ):
            assert await call(bench.gateway, x_kindlm_execution="7.1") == 200
            assert not bench.desk.recorded
            assert [cost.usd for _, cost in bench.desk.spent] == [0.15]
            bench.desk.over = True
            assert await call(bench.gateway, x_kindlm_execution="7.1") == 402
            assert len(peer.received) == 1
            assert "cannot be assigned" in (await bench.observed.seen()).missing

    asyncio.run(run())
    assert warnings[0].startswith("2 model calls")


def test_one_execution_alone_waits_for_no_other(behind, warnings):
    async def run():
        async with (
            open_peer(http_answer(200, ANSWER)) as peer,
            behind(peer.url, adapter="http") as bench,
        ):
            await bench.observed.begin(1)
            await call(bench.gateway)
            assert (await bench.observed.seen()).missing is None

    asyncio.run(run())
    assert warnings == []


def test_a_call_without_a_header_is_of_none_where_two_agents_can_have_made_it(behind):
    async def run():
        async with (
            open_peer(http_answer(200, ANSWER)) as peer,
            behind(peer.url, adapter="http") as first,
        ):
            gateway = first.gateway
            await call(gateway, x_kindlm_execution="1.1")
            await first.observed.seen()
            # It has shown that it passes its header on, and goes on beside the other one.
            await first.observed.begin(9)
            desk = Desk("2.1")
            second = gateway.observe(AgentTarget("other", "http", "", gateway=True), desk)
            await second.begin(1)
            await call(gateway)
            assert not desk.answers
            for observed in (first.observed, second):
                assert "cannot be assigned" in (await observed.seen()).missing

    asyncio.run(run())


def test_a_call_before_any_message_of_an_agent_here_is_of_none(behind):
    async def run():
        async with (
            open_peer(http_answer(200, ANSWER)) as peer,
            behind(peer.url, adapter="http") as bench,
        ):
            target = AgentTarget("here", "python", "", instance=object(), gateway=True)
            here = bench.gateway.observe(target, Desk("2.1"))

            def fixture():
                httpx.post(f"{peer.url}/v1/chat/completions", json=SAID)

            async def in_a_thread():
                thread = ThreadPoolExecutor(1)  # without the context of a message
                await asyncio.wrap_future(thread.submit(fixture))

            await in_a_thread()
            assert "cannot be assigned" not in ((await bench.observed.seen()).missing or "")
            await here.begin(1)
            await in_a_thread()
            assert "cannot be assigned" in (await here.seen()).missing

    asyncio.run(run())


def test_a_call_of_an_agent_here_goes_to_the_provider_of_its_format_at_a_shared_address(behind):
    async def run():
        desk = Desk("2.1")
        async with (
            open_peer(http_answer(200, {})) as peer,
            open_peer(http_answer(200, {})) as other,
            behind(peer.url) as bench,
        ):
            target = AgentTarget("here", "python", "", instance=object(), gateway=True)
            here = bench.gateway.observe(target, desk)
            await here.begin(1)
            MESSAGE_HEADERS.set(here.headers)
            async with httpx.AsyncClient() as client:
                await client.post(f"{peer.url}/v1/messages?beta=true", json=SAID)
                await client.post(f"{peer.url}/v1/chat/completions", json=SAID)
                await client.post(f"{other.url}/v1/chat/completions", json=SAID)
            assert len(other.received) == 1
        assert [asked.path for asked in desk.asked] == [
            "anthropic/messages",
            "openai/chat/completions",
        ]

    asyncio.run(run())


class Launched(Adapter):
    """An adapter of a package."""

    starts_program = True


@pytest.mark.parametrize("options", [Launched(), Mcp(command="shop")])
def test_an_adapter_that_starts_programs_gets_an_address_for_each(behind, options):
    async def run():
        async with behind("http://127.0.0.1:1") as bench:
            target = AgentTarget("own", "launched", "", options=options, gateway=True)
            observed = bench.gateway.observe(target, Desk("2.1"))
            assert observed.environ["OPENAI_BASE_URL"].endswith("/x/2.1/openai/v1")

    asyncio.run(run())


def test_without_a_header_agents_answer_one_at_a_time(behind, warnings):
    async def run():
        async with (
            open_peer(http_answer(200, ANSWER)) as peer,
            behind(peer.url, adapter="http") as first,
        ):
            gateway, desk = first.gateway, Desk("2.1")
            second = gateway.observe(AgentTarget("shop", "http", "", gateway=True), desk)
            waiting = asyncio.create_task(second.begin(1))
            await call(gateway)
            assert not waiting.done()
            assert (await first.observed.seen()).missing is None
            await waiting
            await call(gateway)
            assert (len(desk.answers), len(first.desk.answers)) == (1, 1)

    asyncio.run(run())
    assert len(warnings) == 1
    assert "one message at a time" in warnings[0]


def test_a_call_of_nobody_may_be_of_any_agent_that_has_a_message(behind):
    async def run():
        async with (
            open_peer(http_answer(200, ANSWER)) as peer,
            behind(peer.url) as alone,  # a program with an address of its own
        ):
            waiting = alone.gateway.observe(
                AgentTarget("shop", "http", "", gateway=True), Desk("2.1")
            )
            await call(alone.gateway)
            await waiting.begin(1)
            await call(alone.gateway)
            assert "cannot be assigned" in (await alone.observed.seen()).missing
            assert (await waiting.seen()).missing is None

    asyncio.run(run())
