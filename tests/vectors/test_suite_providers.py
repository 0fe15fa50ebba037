"""The vectors of suites that are about providers' wire formats and prices.

Requests and answers go over a real socket, through the clients that the engine uses.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from kindlm.errors import Err, Ok, Result
from kindlm.ports import ModelReply, ModelRequest, ToolDefinition
from kindlm.providers.pricing import PriceTable, matching_name
from kindlm.providers.registry import make_client
from kindlm.suite import ModelParams, ProviderSettings
from kindlm.transcript import Message, Role, ToolCall, Usage

Vector = dict[str, Any]

DEPARTURES: Final = {
    "provider/openai-006": "the model under test is never forced to call a tool",
    "provider/openai-013": "403 is PROVIDER_AUTH_ERROR: the key may not do this",
    "provider/openai-028": "content_filter is a finish reason of its own, shown as a warning",
    "provider/openai-031": "usage and model that were not reported are unknown, never made up",
    "provider/openai-032": "a success without an answer is PROVIDER_API_ERROR",
    "provider/anthropic-030": "a stop sequence that the user wrote is a normal stop",
    "provider/anthropic-033": "no system message is lost",
    "provider/ollama-012": "401 is PROVIDER_AUTH_ERROR: a gateway before Ollama wants a key",
    "pricing-006": "a longer name is another model unless it is a version of the same",
    "pricing-013": "the price table is maintained: it knows this model",
    "pricing-016": "the price table is maintained: it knows this model",
    "pricing-017": "the price table is maintained: it knows this model",
    "pricing-019": "the price table is maintained: it knows the price of this model",
    "pricing-021": "what the table has for a model of another name is not its price",
    "pricing-024": "the price table is maintained: it knows this model",
}

# One name here stands for several there.
CODES: Final = {
    "AUTH_FAILED": "PROVIDER_AUTH_ERROR",
    "MODEL_NOT_FOUND": "PROVIDER_API_ERROR",
    "NETWORK_ERROR": "PROVIDER_NETWORK_ERROR",
    "PROVIDER_ERROR": "PROVIDER_API_ERROR",
    "RATE_LIMITED": "PROVIDER_RATE_LIMIT",
    "TIMEOUT": "PROVIDER_TIMEOUT",
    "UNKNOWN": "PROVIDER_API_ERROR",
}
BASE_PATHS: Final = {"openai": "/v1", "anthropic": "", "ollama": ""}
SELLERS: Final = {"claude": "anthropic", "command": "cohere", "gemini": "gemini"}


@pytest.mark.vectors(
    "suite.jsonl",
    "provider/openai",
    "provider/anthropic",
    "provider/ollama",
    departures=DEPARTURES,
)
def test_provider(vector: Vector) -> None:
    given, expected = vector["input"], vector["expected"]
    if given["direction"] == "request":
        _compare_request(given, expected, vector["area"])
    else:
        _compare_response(given, expected, vector["area"])


@pytest.mark.vectors("suite.jsonl", "pricing", departures=DEPARTURES)
def test_pricing(vector: Vector) -> None:
    given, expected = vector["input"], vector["expected"]
    if given["case"] == "lookup":
        assert matching_name(given["model"], given["table"]) == expected.get("key")
        return
    model = given.get("model") or given["model_id"]
    provider = given.get("provider") or SELLERS.get(model.split("-")[0], "openai")
    output = given.get("output_tokens", given.get("max_tokens", 0) * given.get("repeat", 1))
    cost = PriceTable({}).cost(provider, model, Usage(given.get("input_tokens", 0), output))
    assert cost.usd == (None if expected["usd"] is None else pytest.approx(expected["usd"]))


def _compare_request(given: Vector, expected: Vector, area: str) -> None:
    config = given.get("config", {})
    path, headers, body, _ = _call(area, given["request"], config, 200, "{}")
    assert path == urlsplit(expected["url"]).path
    for name, value in expected["headers"].items():
        assert headers[name.lower()] == value
    # `auto` is what both APIs do when nothing is said.
    wanted = {**expected["body"]}
    if wanted.get("tool_choice") in ("auto", {"type": "auto"}):
        del wanted["tool_choice"]
    assert body == wanted


def _compare_response(given: Vector, expected: Vector, area: str) -> None:
    text = given["http_body_raw"] if "http_body_raw" in given else json.dumps(given["http_body"])
    request = {"model": "m", "messages": [{"role": "user", "content": "U"}]}
    *_, result = _call(area, request, {}, given["http_status"], text)
    assert isinstance(result, Ok) == expected["ok"], result
    if isinstance(result, Err):
        assert result.error.code.name == CODES.get(expected["code"], expected["code"])
        assert result.error.details["status"] == expected["status"]
        assert result.error.details["retryable"] == expected["retryable"]
        return
    reply, wanted = result.value, expected["response"]
    assert reply.text == wanted["text"]
    assert len(reply.tool_calls) == len(wanted["tool_calls"])
    for call, told in zip(reply.tool_calls, wanted["tool_calls"], strict=True):
        # Ollama gives calls no id: theirs are made up and not part of a case.
        assert _called(call) == {"id": call.id, **told}
    assert reply.usage.input_tokens == wanted["usage"]["inputTokens"]
    assert reply.usage.output_tokens == wanted["usage"]["outputTokens"]
    assert reply.model == wanted["model"]
    assert (reply.finish_reason or "unknown") == wanted["finish"]


def _called(call: ToolCall) -> dict[str, Any]:
    arguments = call.arguments if call.malformed is None else {"_raw": call.malformed}
    return {"id": call.id, "name": call.name, "arguments": arguments}


def _request(given: Vector) -> ModelRequest:
    params = given.get("params", {})
    messages = [_message(message) for message in given["messages"]]
    last = messages[-1]
    if last.role is Role.ASSISTANT:
        messages[-1] = Message(Role.ASSISTANT, last.text, prefill=True)
    return ModelRequest(
        model=given["model"],
        messages=tuple(messages),
        params=ModelParams(
            params.get("temperature", 0.2),
            params.get("maxTokens", 1024),
            params.get("topP"),
            tuple(params.get("stopSequences", ())),
            params.get("seed"),
        ),
        timeout_s=20.0,
        tools=tuple(
            ToolDefinition(tool["name"], tool.get("description"), tool.get("parameters", {}))
            for tool in given.get("tools", ())
        ),
    )


def _message(given: Vector) -> Message:
    return Message(
        Role(given["role"]),
        given["content"] or "",
        tool_calls=tuple(
            ToolCall(call["id"], call["name"], call["arguments"])
            for call in given.get("toolCalls", ())
        ),
        tool_call_id=given.get("toolCallId"),
        tool_name=given.get("toolName"),
    )


def _call(
    area: str, request: Vector, config: Vector, status: int, answer: str
) -> tuple[str, dict[str, str], Any, Result[ModelReply]]:
    """Make one call; return the path, the headers and the body that arrived, and the result."""
    kind = area.removeprefix("provider/")
    arrived: list[tuple[str, dict[str, str], Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        arrived.append((head[0].split()[1], headers, body))
        payload = answer.encode()
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (status, len(payload)))
        writer.write(payload)
        await writer.drain()
        writer.close()

    async def run() -> Result[ModelReply]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        path = urlsplit(config["baseUrl"]).path if "baseUrl" in config else BASE_PATHS[kind]
        settings = ProviderSettings(
            kind, kind, "THE_KEY", f"http://127.0.0.1:{port}{path}", config.get("organization")
        )
        client = make_client(settings, environ={"THE_KEY": "KEY"})
        assert isinstance(client, Ok)
        try:
            return await client.value.complete(_request(request))
        finally:
            await client.value.aclose()
            server.close()
            await server.wait_closed()

    result = asyncio.run(run())
    return (*arrived[0], result)
