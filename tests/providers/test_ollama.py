"""Ollama over real sockets: what is sent, what is understood, and what a user is told to do."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from processes import time_passes_after

from kindlm.errors import Err, ErrorCode, Ok
from kindlm.plugins import Access
from kindlm.ports import ResponseSchema, ToolDefinition
from kindlm.providers.ollama_provider import Ollama, host_url
from kindlm.providers.provider_registry import make_client
from kindlm.suite import ProviderSettings
from kindlm.transcript import FinishReason, Message, Role, ToolCall, Usage

REPLY = {
    "model": "llama3.2",
    "message": {"role": "assistant", "content": "Hi there!"},
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 12,
    "eval_count": 8,
}
USER = Message(Role.USER, "Hello")


@pytest.fixture
def ask(peer, make_request):
    """Make calls to a server with these answers; return the results and the server."""

    def ask(*answers, requests=(), path="", environ=None, **settings):
        async def run():
            async with peer(*answers) as server:
                there = ProviderSettings("ollama", "ollama", base_url=server.url + path, **settings)
                client = make_client(there, environ=environ or {})
                assert isinstance(client, Ok)
                try:
                    given = requests or [make_request(model="llama3.2")]
                    return [await client.value.complete(one) for one in given], server
                finally:
                    await client.value.aclose()

        return asyncio.run(run())

    return ask


def test_a_call_gives_the_reply_with_the_body_as_received(ask, http):
    body = json.dumps(REPLY, indent=2)
    (result,), server = ask(http(200, body))
    assert isinstance(result, Ok)
    reply = result.value
    assert reply.text == "Hi there!"
    assert reply.raw == body
    assert reply.usage == Usage(12, 8)
    assert reply.finish_reason is FinishReason.STOP
    assert reply.model == "llama3.2"
    assert server.received[0].path == "/api/chat"
    assert "authorization" not in server.received[0].headers


def test_a_base_url_with_a_path_keeps_it(ask, http):
    _, server = ask(http(200, REPLY), path="/ollama/")
    assert server.received[0].path == "/ollama/api/chat"


def test_a_key_is_sent_where_one_is_configured(ask, http):
    _, server = ask(http(200, REPLY), environ={"MY_KEY": "sk-1"}, api_key_env="MY_KEY")
    assert server.received[0].headers["authorization"] == "Bearer sk-1"


def test_a_model_that_thinks_has_room_for_it_once_its_answer_was_cut_off(ask, http, make_request):
    cut = http(200, {**REPLY, "done_reason": "length"})
    judged = make_request(response_schema=ResponseSchema("verdict", {"type": "object"}))
    requests = [judged, judged, make_request()]
    (first, second, users), server = ask(cut, http(200, REPLY), cut, requests=requests)
    assert isinstance(first, Err)
    assert first.error.details["resend"] is True
    assert first.error.details["usage"] == Usage(12, 8)
    assert isinstance(second, Ok)
    assert isinstance(users, Ok)  # what users let a model write is theirs to say
    room = [request.body["options"]["num_predict"] for request in server.received]
    assert room == [1024, 1024 + 25_000, 1024]


def test_structured_output_is_asked_for_by_schema(ask, http, make_request):
    schema = {"type": "object", "properties": {"score": {"type": "number"}}}
    request = make_request(response_schema=ResponseSchema("verdict", schema))
    _, server = ask(http(200, REPLY), requests=[request])
    assert server.received[0].body["format"] == schema


def test_a_round_of_tools_goes_there_and_back(ask, http, make_request):
    call = {"function": {"name": "look", "arguments": {"id": "A1"}}}
    answer = {**REPLY, "message": {"content": "", "tool_calls": [call, {"id": "x", **call}]}}
    tools = (ToolDefinition("look", None, {}),)
    calls = (ToolCall("call_0", "look", {"id": "A1"}), ToolCall("x", "look", {"id": "A1"}))
    later = make_request(
        USER,
        Message(Role.ASSISTANT, "", tool_calls=calls),
        Message(Role.TOOL, '{"ok":1}', tool_call_id="call_0", tool_name="look"),
        tools=tools,
    )
    (result, _), server = ask(
        http(200, answer), http(200, REPLY), requests=[make_request(USER, tools=tools), later]
    )
    assert isinstance(result, Ok)
    assert result.value.tool_calls == calls
    assert result.value.finish_reason is FinishReason.TOOL_CALLS
    parameters = {"type": "object", "properties": {}}
    assert server.received[0].body["tools"] == [
        {"type": "function", "function": {"name": "look", "parameters": parameters}}
    ]
    assert server.received[1].body["messages"] == [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "", "tool_calls": [call, call]},
        {"role": "tool", "content": '{"ok":1}', "tool_name": "look"},
    ]


def test_a_prefill_is_part_of_the_answer_it_begins(ask, http, make_request):
    request = make_request(USER, Message(Role.ASSISTANT, '{"a":', prefill=True))
    (result,), server = ask(http(200, {**REPLY, "message": {"content": " 1}"}}), requests=[request])
    assert isinstance(result, Ok)
    assert result.value.text == '{"a": 1}'
    assert server.received[0].body["messages"][-1] == {"role": "assistant", "content": '{"a":'}


def test_a_model_that_is_not_there_can_be_fetched(ask, http):
    body = {"error": "model 'llama3.2' not found"}
    (result,), _ = ask(http(404, body))
    assert isinstance(result, Err)
    assert result.error.code is ErrorCode.PROVIDER_API_ERROR
    assert result.error.hint == "Fetch the model: ollama pull llama3.2"


def test_an_ollama_that_is_not_started_can_be(make_request):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"

        async def run():
            settings = ProviderSettings("ollama", "ollama")
            client = make_client(settings, environ={"OLLAMA_HOST": host})
            assert isinstance(client, Ok)
            try:
                return await client.value.complete(make_request())
            finally:
                await client.value.aclose()

        result = asyncio.run(run())
    assert isinstance(result, Err)
    assert result.error.code is ErrorCode.PROVIDER_NETWORK_ERROR
    assert host in result.error.message
    assert "ollama serve" in (result.error.hint or "")


@pytest.mark.parametrize("body", ["<html>", "{}", '{"message": 5}', '{"error": "boom"}'])
def test_a_success_that_is_no_answer_is_an_api_error(ask, http, body):
    (result,), _ = ask(http(200, body))
    assert isinstance(result, Err)
    assert result.error.code is ErrorCode.PROVIDER_API_ERROR


def test_a_key_that_is_echoed_does_not_show(ask, http):
    body = {"error": "key sk-planted-123 is wrong"}
    (result,), _ = ask(http(401, body), environ={"MY_KEY": "sk-planted-123"}, api_key_env="MY_KEY")
    assert isinstance(result, Err)
    assert "planted" not in repr(result.error)


def test_a_key_that_is_asked_for_and_not_configured_is_to_be_configured(ask, http):
    (result,), _ = ask(http(401, {"error": "unauthorized"}))
    assert isinstance(result, Err)
    hint = "Check the key, and whether it may use this model: providers.ollama.apiKeyEnv"
    assert result.error.hint == f"{hint} (api_key_env of [llm] in kindlm.toml)"


SLOW = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"


def test_a_timeout_covers_the_body_and_closes_the_connection(peer, make_request):
    async def run():
        async with peer(SLOW) as server:
            client = Ollama().connect(Access(server.url, None, {}, "ollama"))
            async with time_passes_after(server.arrived.is_set):
                result = await client.complete(make_request(timeout_s=600))
            await asyncio.wait_for(server.left.wait(), 10)
            await client.aclose()
            return result

    result = asyncio.run(run())
    assert isinstance(result, Err)
    assert result.error.code is ErrorCode.PROVIDER_TIMEOUT


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("", "http://127.0.0.1:11434"),
        ("10.0.0.7", "http://10.0.0.7:11434"),
        (":9000", "http://127.0.0.1:9000"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("https://box.example", "https://box.example"),
        (" https://box.example:8443/ollama ", "https://box.example:8443/ollama"),
        ("[::1]:9000", "http://[::1]:9000"),
        ("10.0.0.7:port", "10.0.0.7:port"),
    ],
)
def test_the_host_variable_is_read_as_ollama_reads_it(host, address):
    assert host_url(host) == address
