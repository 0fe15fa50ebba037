"""What the gateway refuses, and what it does when a provider or an agent goes away."""

from __future__ import annotations

import asyncio
import gzip
import json

import aiohttp
import pytest
from gateway_agents import CHAT_TOOL
from raw_peer import http_answer, open_peer
from yarl import URL

from kindlm.errors import ErrorCode
from kindlm.gateway.observer import Gateway
from kindlm.gateway.upstreams import upstreams
from kindlm.telemetry.otlp_observer import OtlpObserver
from kindlm.transcript import CostSource, Usage

SAID = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}], "tools": [CHAT_TOOL]}
ANSWER = {
    "id": "chatcmpl-1",
    "model": "gpt-4o",
    "choices": [{"index": 0, "message": {"content": "Hi there!"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5},
}
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
CUT_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    b"connection: close\r\n\r\n%x\r\n%s\r\n" % (len(EVENT), EVENT)
)
HANGING_STREAM = CUT_STREAM.replace(b"connection: close\r\n", b"")


async def post(bench, path="/chat/completions", body=SAID, key=None, **options):
    """Post as an agent does; return the status, the body and the headers."""
    headers = {"authorization": f"Bearer {key or bench.gateway.key}", **options.pop("headers", {})}
    url = options.pop("url", None) or f"{bench.openai}{path}"
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            options.pop("method", "POST"), url, json=body, headers=headers, **options
        ) as got,
    ):
        return got.status, await got.text(), got.headers


def test_only_the_key_of_the_gateway_opens_it_and_the_real_key_goes_up(behind):
    async def run():
        async with open_peer(http_answer(200, ANSWER)) as peer, behind(peer.url) as bench:
            status, text, headers = await post(bench, key="sk-real-0123456789abcdef")
            assert (status, headers["x-should-retry"]) == (401, "false")
            assert "not the key of the gateway" in text
            assert not peer.received
            assert not bench.desk.recorded
            trouble = await bench.observed.trouble()
            assert "openai/chat/completions" in trouble
            assert "from OPENAI_API_KEY" in trouble
            assert (await post(bench, path="/a%20b%00/c?d=1"))[0] == 200
            assert peer.received[0].path == "/v1/a%20b%00/c?d=1"
            assert peer.received[0].headers["authorization"] == "Bearer sk-real-0123456789abcdef"
            assert bench.gateway.key not in str(peer.received)
            seen = await bench.observed.seen()
            assert "without its key" in seen.missing

    asyncio.run(run())


def test_what_is_no_call_of_an_open_conversation_is_refused(behind):
    async def run():
        async with open_peer(http_answer(200, ANSWER)) as peer, behind(peer.url) as bench:
            upgrade = {"connection": "upgrade", "upgrade": "websocket"}
            assert (await post(bench, headers=upgrade))[0] == 426
            other = bench.openai.replace("/openai/", "/nobody/")
            assert (await post(bench, url=other))[0] == 404
            bench.observed.close()
            assert (await post(bench))[0] == 410
            assert not peer.received

    asyncio.run(run())


@pytest.mark.parametrize("path", ["%2e%2e/admin", "a/..%2Fadmin", "./a"])
def test_no_path_leaves_that_of_the_provider(behind, path):
    async def run():
        async with open_peer(http_answer(200, ANSWER)) as peer, behind(peer.url) as bench:
            for base in (bench.openai, f"{bench.gateway.address()}/openai/v1"):
                url = URL(f"{base}/{path}", encoded=True)
                assert (await post(bench, url=url, method="GET"))[0] == 400
            assert not peer.received

    asyncio.run(run())


def test_a_passed_limit_stops_calls_in_a_way_that_clients_do_not_try_again(behind):
    import openai

    async def run():
        async with open_peer(http_answer(200, ANSWER)) as peer, behind(peer.url) as bench:
            bench.desk.over = True
            async with bench.client() as client:
                with pytest.raises(openai.APIStatusError) as raised:
                    await client.chat.completions.create(**SAID)
            assert raised.value.status_code == 402
            assert not peer.received
            assert "limit" in (await bench.observed.seen()).missing
            assert bench.desk.is_unfinished

    asyncio.run(run())


def test_a_refusal_of_the_provider_reaches_the_agent_and_each_try_is_recorded(behind):
    refused = http_answer(429, {"error": {"message": "Slow down"}}, {"retry-after-ms": "1"})

    async def run():
        async with open_peer(refused, http_answer(200, ANSWER)) as peer, behind(peer.url) as bench:
            async with bench.client() as client:
                await client.chat.completions.create(**SAID)
            (failure,) = bench.desk.failures
            assert (failure.status, failure.error_code) == (429, "PROVIDER_RATE_LIMIT")
            assert failure.cost_source is None
            assert "Slow down" in failure.message
            assert [(each.attempt, each.after) for each in bench.desk.asked] == [(1, 0), (2, 0)]
            seen = await bench.observed.seen()
            assert (seen.missing, seen.usage.total) == (None, 15)

    asyncio.run(run())


@pytest.mark.parametrize(("status", "is_about_the_key"), [(401, True), (429, False), (500, False)])
def test_a_missing_key_is_named_only_where_the_provider_asks_for_one(
    behind, status, is_about_the_key
):
    async def run():
        answer = http_answer(status, {"error": {"message": "No"}})
        async with open_peer(answer) as peer, behind(peer.url, key=None) as bench:
            await post(bench)
            assert ("set OPENAI_API_KEY" in await bench.observed.trouble()) == is_about_the_key

    asyncio.run(run())


@pytest.mark.parametrize(
    ("named", "priced"), [("gpt-4o-2024-08-06", "gpt-4o-2024-08-06"), (None, "gpt-4o-mini")]
)
def test_an_answer_has_the_price_of_its_model_else_of_the_one_that_was_asked(behind, named, priced):
    async def run():
        answer = http_answer(200, {**ANSWER, "model": named})
        async with open_peer(answer) as peer, behind(peer.url) as bench:
            await post(bench, body={**SAID, "model": "gpt-4o-mini"})
            await bench.observed.seen()
            assert bench.desk.priced == [priced]
            assert [model for model, _ in bench.desk.spent] == [priced]

    asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_cannot_be_read_costs_what_it_reports(behind, stream):
    message = {"tool_calls": [{"id": "c1", "function": {}}]}
    choice = {"index": 0, "message": message, "delta": message, "finish_reason": "tool_calls"}
    body = {**ANSWER, "choices": [choice]}
    kind = {"content-type": "text/event-stream"}
    event = b"data: " + json.dumps(body).encode() + b"\n\ndata: [DONE]\n\n"
    answer = http_answer(200, event, kind) if stream else http_answer(200, body)

    async def run():
        async with open_peer(answer) as peer, behind(peer.url) as bench:
            await post(bench, body={**SAID, "stream": stream})
            seen = await bench.observed.seen()
            (failure,) = bench.desk.failures
            assert "cannot be read" in failure.message
            assert (failure.input_tokens, failure.output_tokens) == (10, 5)
            assert (failure.model, failure.cost_usd) == ("gpt-4o", 0.15)
            assert [(model, cost.usd) for model, cost in bench.desk.spent] == [("gpt-4o", 0.15)]
            assert (seen.usage, seen.cost.usd) == (Usage(10, 5), 0.15)
            assert "incomplete" in seen.missing

    asyncio.run(run())


def test_what_is_known_of_an_answer_that_was_cut_off_is_spent(behind):
    usage = {"input_tokens": 900, "output_tokens": 1}
    start = {"type": "message_start", "message": {"model": "claude-opus-4-8", "usage": usage}}
    event = b"data: " + json.dumps(start).encode() + b"\n\n"
    answer = http_answer(200, event, {"content-type": "text/event-stream"})

    async def run():
        async with open_peer(answer) as peer, behind(peer.url) as bench:
            body = {**SAID, "model": "claude-opus-4-8", "stream": True}
            await post(bench, url=f"{bench.anthropic}/v1/messages", body=body)
            seen = await bench.observed.seen()
            (failure,) = bench.desk.failures
            # It may have been more.
            assert (failure.cost_usd, failure.cost_source) == (9.01, CostSource.UNKNOWN)
            assert [cost.usd for _, cost in bench.desk.spent] == [9.01, None]
            assert (seen.usage, seen.cost.usd) == (Usage(), None)

    asyncio.run(run())


def test_a_stream_that_the_provider_cuts_is_cut_and_leaves_tools_undecided(behind):
    async def run():
        answer = http_answer(200, ANSWER)
        async with open_peer(answer, CUT_STREAM) as peer, behind(peer.url) as bench:
            await post(bench)
            with pytest.raises(aiohttp.ClientPayloadError):
                await post(bench, body={**SAID, "stream": True})
            seen = await bench.observed.seen()
            (failure,) = bench.desk.failures
            assert "cut off the answer: Not enough data to satisfy" in failure.message
            assert (failure.cost_usd, failure.cost_source) == (None, CostSource.UNKNOWN)
            assert "incomplete" in seen.missing
            # What it costs is known of one call, and charged for both.
            assert (seen.usage, seen.cost.usd) == (Usage(), None)

    asyncio.run(run())


def test_tokens_are_taken_out_of_a_stream_that_has_a_length(behind):
    tokens = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    answer = http_answer(200, EVENT + end + tokens, {"content-type": "text/event-stream"})
    assert b"content-length" in answer.lower()

    async def run():
        async with open_peer(answer) as peer, behind(peer.url) as bench:
            status, text, _ = await post(bench, body={**SAID, "stream": True})
            assert (status, text.encode()) == (200, EVENT + end)
            assert (await bench.observed.seen()).usage.total == 3

    asyncio.run(run())


def test_an_agent_that_leaves_ends_the_call_of_the_provider(behind):
    async def run():
        async with open_peer(HANGING_STREAM) as peer, behind(peer.url) as bench:
            async with aiohttp.ClientSession() as session:
                headers = {"authorization": f"Bearer {bench.gateway.key}"}
                url = f"{bench.openai}/chat/completions"
                body = {**SAID, "stream": True, "stream_options": {}}
                got = await session.post(url, json=body, headers=headers)
                assert b"Hi" in await got.content.readany()
                got.close()
            await asyncio.wait_for(peer.left.wait(), 20)
            seen = await bench.observed.seen()
            (failure,) = bench.desk.failures
            assert "closed the connection" in failure.message
            assert seen.missing

    asyncio.run(run())


def test_a_conversation_that_is_over_ends_its_calls(behind):
    async def run():
        async with open_peer(HANGING_STREAM) as peer, behind(peer.url) as bench:
            asking = asyncio.create_task(post(bench, body={**SAID, "stream": True}))
            await asyncio.wait_for(peer.arrived.wait(), 20)
            bench.observed.close()
            assert len(bench.desk.failures) == 1  # before the execution has ended
            await asyncio.wait_for(peer.left.wait(), 20)
            with pytest.raises(aiohttp.ClientError):
                await asking
            assert len(bench.desk.failures) == 1

    asyncio.run(run())


def test_a_request_that_stalls_does_not_delay_the_end(behind):
    async def run():
        async with open_peer(None) as peer, behind(peer.url, adapter="http") as bench:
            address = URL(bench.gateway.address())
            bench.observed.close()  # now the request belongs to no conversation
            _, writer = await asyncio.open_connection(address.host, address.port)
            head = "POST /openai/responses HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n"
            writer.write(f"{head}authorization: Bearer {bench.gateway.key}\r\n\r\n{{".encode())
            await writer.drain()
            await asyncio.sleep(0.1)
        writer.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_call_that_is_ended_costs_what_is_known_of_it(behind):
    usage = {"input_tokens": 900, "output_tokens": 1}
    start = {"type": "message_start", "message": {"model": "claude-opus-4-8", "usage": usage}}
    event = b"data: " + json.dumps(start).encode() + b"\n\n"
    hanging = HANGING_STREAM.replace(
        b"%x\r\n%s\r\n" % (len(EVENT), EVENT), b"%x\r\n%s\r\n" % (len(event), event)
    )

    async def run():
        async with (
            open_peer(hanging) as peer,
            behind(peer.url) as bench,
            aiohttp.ClientSession() as session,
        ):
            headers = {"x-api-key": bench.gateway.key}
            url = f"{bench.anthropic}/v1/messages"
            got = await session.post(url, json={**SAID, "stream": True}, headers=headers)
            assert b"message_start" in await got.content.readany()
            bench.observed.close()
            got.close()
            (failure,) = bench.desk.failures
            assert "ended before the answer was complete" in failure.message
            assert (failure.cost_usd, failure.cost_source) == (9.01, CostSource.UNKNOWN)
            assert [cost.usd for _, cost in bench.desk.spent] == [9.01, None]

    asyncio.run(run())


def test_a_provider_that_cannot_be_reached_is_an_error_of_the_network(behind):
    async def run():
        async with behind("http://127.0.0.1:1") as bench:
            status, text, headers = await post(bench)
            assert (status, "could not be called: connection refused." in text) == (502, True)
            # As without the gateway, SDKs try again.
            assert "x-should-retry" not in headers
            (failure,) = bench.desk.failures
            assert failure.error_number == ErrorCode.PROVIDER_NETWORK_ERROR
            assert (failure.cost_source, bench.desk.spent) == (None, [])
            trouble = await bench.observed.trouble()
            assert failure.message in trouble
            assert "--verbose; if a key was refused, check OPENAI_API_KEY where" in trouble

    asyncio.run(run())


def test_spaces_around_keys_and_addresses_do_not_count():
    environ = {
        "OPENAI_API_KEY": "sk-example-1\n",
        "OPENAI_BASE_URL": " http://127.0.0.1:4000/v1/ ",
        "ANTHROPIC_API_KEY": "\n",
        "ANTHROPIC_AUTH_TOKEN": "token\n",
    }
    found = upstreams(environ, ())
    assert found["openai"].headers == {"Authorization": "Bearer sk-example-1"}
    assert found["openai"].base_url == "http://127.0.0.1:4000/v1"
    assert found["anthropic"].headers == {"Authorization": "Bearer token"}


@pytest.mark.parametrize(
    ("known", "hosts"),
    [
        ({}, "127.0.0.1"),
        ({"NO_PROXY": "shop.internal"}, "shop.internal,127.0.0.1"),
        ({"NO_PROXY": "", "no_proxy": "shop.internal"}, "shop.internal,127.0.0.1"),
        ({"NO_PROXY": "*"}, "*"),
    ],
)
def test_programs_reach_kindlm_and_all_that_they_reached_without_a_proxy(known, hosts):
    found = Gateway("k3f9x2ab", known, (), print).variables()
    assert (found["NO_PROXY"], found["no_proxy"]) == (hosts, hosts)
    found = OtlpObserver("k3f9x2ab", environ=known).exporting()
    assert (found["NO_PROXY"], found["no_proxy"]) == (hosts, hosts)


def test_programs_keep_the_hosts_of_the_variable_that_they_read():
    known = {"NO_PROXY": "of.go", "no_proxy": "*"}
    found = Gateway("k3f9x2ab", known, (), print).variables()
    assert (found["NO_PROXY"], found["no_proxy"]) == ("of.go,127.0.0.1", "*")


def test_packed_and_unreadable_bodies_pass_as_they_are(behind):
    packed = http_answer(
        200, gzip.compress(json.dumps(ANSWER).encode()), {"content-encoding": "gzip"}
    )
    odd = http_answer(200, b"\xff\xfe", {"content-encoding": "zz"})

    async def run():
        async with open_peer(packed, odd) as peer, behind(peer.url) as bench:
            status, text, headers = await post(bench)
            assert (status, json.loads(text), headers["content-encoding"]) == (200, ANSWER, "gzip")
            # It waits until the answer is recorded: the agent has it a moment before.
            assert (await bench.observed.seen()).missing is None
            assert json.loads(bench.desk.answers[0].raw) == ANSWER
            headers = {"authorization": f"Bearer {bench.gateway.key}"}
            url = f"{bench.openai}/chat/completions"
            async with (
                aiohttp.ClientSession(auto_decompress=False) as session,
                session.post(url, json=SAID, headers=headers) as got,
            ):
                assert await got.read() == b"\xff\xfe"
            assert "cannot be read" in (await bench.observed.seen()).missing

    asyncio.run(run())
