"""Both clients through the real SDKs and real sockets: what arrives, what fails, what is closed."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from typing import Any

import pytest
from processes import time_passes_after

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.ports import ModelReply, ResponseSchema
from kindlm.providers.provider_failures import Endpoint, HttpAnswer
from kindlm.suite import ModelParams
from kindlm.transcript import FinishReason, Message, Role, Usage

KEY = "sk-planted-0123456789abcdef"


def failure(result: Result[ModelReply]) -> KindlmError:
    assert isinstance(result, Err), result
    return result.error


def success(result: Result[ModelReply]) -> ModelReply:
    assert isinstance(result, Ok), result
    return result.value


def test_a_call_gives_the_reply_with_the_body_as_received(api, talking, http, make_request):
    body = json.dumps(api.reply, indent=3)

    async def run():
        async with talking(api, http(200, body)) as (client, server):
            return success(await client.complete(make_request())), server.received

    reply, received = asyncio.run(run())
    assert reply.text == "Hi there!"
    assert reply.raw == body
    assert reply.usage == Usage(10, 5)
    assert reply.finish_reason is FinishReason.STOP
    assert reply.model == api.reply["model"]
    assert reply.latency_ms > 0
    assert [request.path for request in received] == [api.path]


def test_an_answer_that_cannot_be_used_says_what_is_billed(api, talking, http, make_request):
    body = {**api.reply, "stop_reason": "tool_use"}
    if api.type == "openai":
        body["choices"] = [{**api.reply["choices"][0], "finish_reason": "tool_calls"}]

    async def run():
        async with talking(api, http(200, json.dumps(body))) as (client, _):
            return failure(await client.complete(make_request()))

    told = asyncio.run(run()).details
    assert (told["usage"], told["model"]) == (Usage(10, 5), api.reply["model"])


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (401, ErrorCode.PROVIDER_AUTH_ERROR, False),
        (403, ErrorCode.PROVIDER_AUTH_ERROR, False),
        (404, ErrorCode.PROVIDER_API_ERROR, False),
        (408, ErrorCode.PROVIDER_TIMEOUT, True),
        (409, ErrorCode.PROVIDER_API_ERROR, True),
        (429, ErrorCode.PROVIDER_RATE_LIMIT, True),
        (500, ErrorCode.PROVIDER_API_ERROR, True),
        (529, ErrorCode.PROVIDER_API_ERROR, True),
    ],
)
def test_a_status_has_its_code_and_is_asked_once(
    api, talking, http, make_request, status, code, retryable
):
    async def run():
        body = {"error": {"message": "because of reasons"}}
        async with talking(api, http(status, body)) as (client, server):
            return failure(await client.complete(make_request())), len(server.received)

    error, requests = asyncio.run(run())
    assert error.code is code
    assert error.details["status"] == status
    assert error.details["retryable"] is retryable
    assert json.loads(error.details["body"]) == {"error": {"message": "because of reasons"}}
    assert requests == 1


def test_the_message_of_a_refused_key_names_its_variable(api, talking, http, make_request):
    async def run():
        async with talking(api, http(401, {"error": {"message": "bad key"}})) as (client, _):
            return failure(await client.complete(make_request()))

    assert api.variable in (asyncio.run(run()).hint or "")


def test_a_rate_limit_says_when_to_come_back(api, talking, http, make_request):
    async def run():
        answer = http(429, {"error": {"message": "slow down"}}, {"Retry-After": "1.5"})
        async with talking(api, answer) as (client, _):
            return failure(await client.complete(make_request()))

    error = asyncio.run(run())
    assert error.details["retry_after"] == 1.5
    assert "1.5 seconds" in error.message
    assert "--concurrency" in (error.hint or "")


def test_a_rate_limit_that_asks_for_a_long_wait_is_not_met_by_calling_less_often(
    api, talking, http, make_request
):
    async def run():
        answer = http(429, {"error": {"message": "slow down"}}, {"Retry-After": "4000"})
        async with talking(api, answer) as (client, _):
            return failure(await client.complete(make_request()))

    assert (asyncio.run(run()).hint or "").startswith("Try again later")


@pytest.mark.parametrize(
    "named", [{"code": "insufficient_quota"}, {"type": "billing_not_active", "code": None}]
)
def test_an_account_that_has_to_pay_is_not_asked_again(api, talking, http, make_request, named):
    async def run():
        body = {"error": {"message": "Check your billing details", **named}}
        async with talking(api, http(429, body)) as (client, _):
            return failure(await client.complete(make_request()))

    error = asyncio.run(run())
    assert error.code is ErrorCode.PROVIDER_RATE_LIMIT
    assert error.details["retryable"] is False
    assert error.details["unpaid"] is True
    assert "billing" in (error.hint or "")


def test_the_provider_has_the_last_word_on_retries(api, talking, http, make_request):
    async def run():
        answer = http(500, {}, {"x-should-retry": "false"})
        async with talking(api, answer) as (client, _):
            return failure(await client.complete(make_request()))

    assert asyncio.run(run()).details["retryable"] is False


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<html>not json</html>", "<html>"),
        ("[1, 2]", "not a JSON object"),
        ("[" * 100_000, "too deeply"),
        ('{"choices": [], "content": null}', "it has no"),
        ('{"error": {"message": "boom"}}', "boom"),
        ("", "not valid JSON"),
    ],
)
def test_a_success_that_is_no_answer_is_an_api_error(api, talking, http, make_request, body, said):
    async def run():
        async with talking(api, http(200, body)) as (client, _):
            return failure(await client.complete(make_request()))

    error = asyncio.run(run())
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert said in error.message
    assert error.details == {
        "status": 200,
        "retry_after": None,
        "retryable": False,
        "body": body,
    }


def test_an_echoed_key_is_in_no_error(api, talking, http, make_request):
    echo = {"error": {"message": "x" * 170 + f" no such key: {KEY}"}}

    async def run():
        for status in (200, 400, 401, 429, 500):
            async with talking(api, http(status, echo)) as (client, _):
                errors.append(failure(await client.complete(make_request())))

    errors: list[KindlmError] = []
    asyncio.run(run())
    assert len(errors) == 5
    for error in errors:
        assert "sk-planted" not in repr(error)


def test_an_echoed_key_is_not_cut_before_it_is_taken_out():
    encoded = base64.b64encode(f"user:{KEY}".encode()).decode()
    endpoint = Endpoint("openai", "http://127.0.0.1/v1", "THE_KEY", KEY)
    for before in range(130, 195, 5):
        error = endpoint.refused(HttpAnswer(400, {}, "x" * before + encoded))
        assert encoded[8:16] not in repr(error)


def test_a_closed_port_is_a_network_error(api, make_request):
    async def run():
        server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        client = api.client(f"http://127.0.0.1:{port}")
        try:
            return failure(await client.complete(make_request())), port
        finally:
            await client.aclose()

    error, port = asyncio.run(run())
    assert error.code is ErrorCode.PROVIDER_NETWORK_ERROR
    assert error.message.endswith(f"at http://127.0.0.1:{port}: connection refused")
    assert error.details["retryable"] is True
    # The user may never have written an address.
    assert error.hint.startswith("Check the network, and providers.")
    assert error.hint.endswith(".baseUrl (base_url of [llm] in kindlm.toml) if it is set")


def test_an_unknown_host_is_a_network_error(api, make_request):
    async def run():
        client = api.client("http://no-such-host.invalid")
        try:
            return failure(await client.complete(make_request()))
        finally:
            await client.aclose()

    error = asyncio.run(run())
    assert error.code is ErrorCode.PROVIDER_NETWORK_ERROR
    assert "no-such-host.invalid" in error.message


CUT = {
    "before anything": None,
    "in the headers": b"HTTP/1.1 200 OK\r\ncontent-",
    "in the body": b'HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{"choices": [',
    "not an http": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
}


@pytest.mark.parametrize("bytes_sent", CUT.values(), ids=CUT.keys())
def test_a_connection_that_breaks_is_a_network_error(api, make_request, bytes_sent):
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(bytes_sent or b"")
        writer.close()

    async def run():
        server = await asyncio.start_server(cut, "127.0.0.1", 0)
        client = api.client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        try:
            return failure(await client.complete(make_request()))
        finally:
            await client.aclose()
            server.close()

    error = asyncio.run(run())
    assert error.code is ErrorCode.PROVIDER_NETWORK_ERROR
    assert error.details["retryable"] is True
    assert error.details["status"] is None
    assert not re.search(r"\n|400", error.message.partition(": ")[2])


HALF = b'HTTP/1.1 200 OK\r\ncontent-length: 500\r\ncontent-type: application/json\r\n\r\n{"a'


@pytest.mark.parametrize("answer", [b"", HALF], ids=["no answer", "stalled body"])
def test_a_timeout_covers_the_whole_call_and_closes_the_connection(
    api, talking, make_request, answer
):
    async def run():
        async with talking(api, answer) as (client, server):
            async with time_passes_after(server.arrived.is_set):
                result = await client.complete(make_request(timeout_s=600))
            await asyncio.wait_for(server.left.wait(), 10)
            return failure(result)

    error = asyncio.run(run())
    assert error.code is ErrorCode.PROVIDER_TIMEOUT
    assert "600000 ms" in error.message
    assert error.details["retryable"] is True


def test_cancelling_a_call_closes_its_connection(api, talking, make_request):
    async def run():
        async with talking(api, HALF) as (client, server):
            call = asyncio.create_task(client.complete(make_request()))
            await asyncio.wait_for(server.arrived.wait(), 10)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await asyncio.wait_for(server.left.wait(), 10)

    asyncio.run(run())


def test_many_calls_run_at_once(api, make_request, http):
    waiting = 40
    together = asyncio.Barrier(waiting)

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
        await reader.readexactly(int(length))
        await together.wait()
        writer.write(http(200, api.reply))
        await writer.drain()
        writer.close()

    async def run():
        server = await asyncio.start_server(meet, "127.0.0.1", 0)
        client = api.client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        try:
            calls = [client.complete(make_request()) for _ in range(waiting)]
            return await asyncio.gather(*calls)
        finally:
            await client.aclose()
            server.close()

    assert {success(reply).text for reply in asyncio.run(run())} == {"Hi there!"}


@pytest.mark.parametrize(("body", "is_page"), [(b"<!doctype html>", True), (b'{"ok":1}', False)])
def test_the_hint_names_a_web_page_only_for_one(api, talking, http, make_request, body, is_page):
    async def run():
        async with talking(api, http(200, body)) as (client, _):
            return failure(await client.complete(make_request()))

    hint = asyncio.run(run()).hint or ""
    assert "is the API itself" in hint
    assert ("web page" in hint) == is_page


@pytest.mark.parametrize("status", [202, 204])
def test_a_success_without_an_answer_is_no_redirect(api, talking, http, make_request, status):
    async def run():
        async with talking(api, http(status, b"")) as (client, _):
            return failure(await client.complete(make_request()))

    assert "is the API itself" in (asyncio.run(run()).hint or "")


@pytest.mark.parametrize("status", [302, 308])
def test_a_redirect_gets_neither_the_key_nor_the_conversation(
    api, talking, peer, http, make_request, status
):
    async def run():
        async with peer(http(200, api.reply)) as elsewhere:
            moved = http(status, {}, {"location": elsewhere.url + api.path})
            async with talking(api, moved) as (client, _):
                error = failure(await client.complete(make_request()))
            return error, elsewhere.received

    error, received = asyncio.run(run())
    assert received == []
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert error.details["status"] == status
    assert not error.details["retryable"]
    assert error.hint is not None
    assert f"providers.{api.type}.baseUrl (base_url of [llm] in kindlm.toml) is" in error.hint


def refusal(api, parameter: str) -> dict[str, Any]:
    message = f"Unsupported parameter: '{parameter}' is not supported with this model."
    return {"error": {"message": message, "type": "invalid_request_error"}}


def test_a_refused_default_is_reported_once_and_remembered(api, talking, http, make_request):
    body = refusal(api, "temperature")

    async def run():
        async with talking(api, http(400, body), http(200, api.reply)) as (client, server):
            error = failure(await client.complete(make_request()))
            replies = [success(await client.complete(make_request())) for _ in range(2)]
            other = success(await client.complete(make_request(model="another")))
            return error, replies, other, [request.body for request in server.received]

    error, replies, other, bodies = asyncio.run(run())
    assert ["temperature" in body for body in bodies] == [True, False, False, True]
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert "`temperature`" in error.message
    assert error.details == {
        "status": 400,
        "retry_after": None,
        "retryable": True,
        "resend": True,
        "body": json.dumps(body),
    }
    assert all("temperature" in reply.warnings[0] for reply in replies)
    assert other.warnings == ()


def test_a_server_without_schemas_is_asked_for_any_json_from_then_on(
    api, talking, http, make_request
):
    if api.type != "openai":
        pytest.skip("only OpenAI's format has several ways")
    no_schema = {"error": {"message": "This response_format type is unavailable now"}}
    no_format = {"error": {"message": "Unknown field: response_format"}}
    answers = [http(400, no_schema), http(200, api.reply), http(400, no_format)]
    request = make_request(response_schema=ResponseSchema("verdict", {"type": "object"}))

    async def run():
        async with talking(api, *answers, http(200, api.reply)) as (client, server):
            for _ in answers:
                await client.complete(request)
            success(await client.complete(request))
            return [each.body for each in server.received]

    formats = [body.get("response_format", {}).get("type") for body in asyncio.run(run())]
    assert formats == ["json_schema", "json_object", "json_object", None]


def test_a_refused_parameter_that_was_written_is_an_error(api, talking, http, make_request):
    params = ModelParams(temperature=0.7, written=frozenset({"temperature"}))

    async def run():
        async with talking(api, http(400, refusal(api, "temperature"))) as (client, server):
            result = failure(await client.complete(make_request(params=params)))
            return result, len(server.received)

    error, requests = asyncio.run(run())
    assert requests == 1
    assert "resend" not in error.details
    assert error.details["retryable"] is False
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert "`temperature`" in error.message
    assert error.hint == "Remove temperature from the model's params"


def test_lone_surrogates_go_back_as_they_came(api, talking, http, make_request):
    async def run():
        async with talking(api, http(200, api.reply)) as (client, server):
            await client.complete(make_request(Message(Role.USER, "odd \ud800 text")))
            return server.received[0].body

    assert "odd \ud800 text" in str(asyncio.run(run())["messages"][0]["content"])
