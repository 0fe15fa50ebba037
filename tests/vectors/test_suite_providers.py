"""The vectors of suites that are about providers' wire formats and prices.

Requests and answers go over a real socket, through the clients that the engine uses.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from vector_cases import Departure, known, unknown

from kindlm.errors import Err, Ok, Result
from kindlm.ports import ModelReply, ModelRequest, ToolDefinition
from kindlm.pricing import PriceTable, matching_name
from kindlm.providers.provider_registry import make_client
from kindlm.suite import ModelParams, ProviderSettings
from kindlm.transcript import Message, Role, ToolCall, Usage

Vector = dict[str, Any]


def request_of(case: Vector) -> Vector:
    found: Vector = case["input"]["request"]
    return found


def answered(case: Vector, **values: Any) -> Vector:
    """Return what is expected of an answer, with other values."""
    return {"response": {**case["expected"]["response"], **values}}


def system_texts(case: Vector) -> list[str]:
    return [one["content"] for one in request_of(case)["messages"] if one["role"] == "system"]


def unreported(case: Vector) -> Vector:
    """Return what an answer does not report, and the vector has a value for."""
    body, wanted = case["input"]["http_body"], case["expected"]["response"]
    return {
        name: nothing
        for name, nothing in (("usage", NO_USAGE), ("model", None))
        if not {name, *COUNTERS.get(name, ())} & set(body) and wanted[name] != nothing
    }


COUNTERS: Final = {"usage": ("prompt_eval_count", "eval_count")}
NO_USAGE: Final = {"inputTokens": None, "outputTokens": None, "totalTokens": None}

DEPARTURES: Final = (
    Departure(
        "the model under test is never forced to call a tool",
        lambda case: (
            request_of(case)["toolChoice"] != "auto" and "tool_choice" in case["expected"]["body"]
        ),
        lambda case: {
            "body": {k: v for k, v in case["expected"]["body"].items() if k != "tool_choice"}
        },
    ),
    Departure(
        "401 and 403 are PROVIDER_AUTH_ERROR: the key may not do this, or a gateway wants one",
        lambda case: case["input"]["http_status"] in {401, 403},
        {"code": "AUTH_FAILED"},
    ),
    Departure(
        "content_filter is a finish reason of its own, shown as a warning",
        lambda case: case["input"]["http_body"]["choices"][0]["finish_reason"] == "content_filter",
        lambda case: answered(case, finish="content_filter"),
    ),
    Departure(
        "usage and model that were not reported are unknown, never made up",
        lambda case: "error" not in case["input"]["http_body"] and bool(unreported(case)),
        lambda case: answered(case, **unreported(case)),
    ),
    Departure(
        "a success without an answer is PROVIDER_API_ERROR",
        lambda case: case["expected"]["ok"] and "error" in case["input"]["http_body"],
        {"ok": False, "code": "PROVIDER_ERROR", "status": None, "retryable": None, "response": ...},
    ),
    Departure(
        "a stop sequence that the user wrote is a normal stop",
        lambda case: case["input"]["http_body"]["stop_reason"] == "stop_sequence",
        lambda case: answered(case, finish="stop"),
    ),
    Departure(
        "no system message is lost",
        lambda case: len(system_texts(case)) > 1 and isinstance(case["expected"]["body"], dict),
        lambda case: {
            "body": {**case["expected"]["body"], "system": "\n\n".join(system_texts(case))}
        },
    ),
)


def listed_usd(case: Vector) -> float | None:
    """Return what the price table says of the tokens of a case."""
    return PriceTable({}).cost(*priced(case["input"])).usd


def priced(given: Vector) -> tuple[str, str, Usage]:
    """Return the provider, the model and the tokens of a case."""
    model = given.get("model") or given["model_id"]
    provider = given.get("provider") or SELLERS.get(model.split("-")[0], "openai")
    output = given.get("output_tokens", given.get("max_tokens", 0) * given.get("repeat", 1))
    return provider, model, Usage(given.get("input_tokens", 0), output)


def has_price_of_shorter_name(case: Vector) -> bool:
    """Tell whether a version of a model was given the price of a version before it."""
    provider, model, usage = priced(case["input"])
    parts = model.split("-")
    names = ("-".join(parts[:length]) for length in range(1, len(parts)))
    costs = {PriceTable({}).cost(provider, name, usage).usd for name in names}
    return case["expected"]["usd"] in costs - {listed_usd(case)}


def is_another_model(case: Vector) -> bool:
    """Tell whether a model was given the price of a name that it only begins with."""
    rest = case["input"]["model"].removeprefix(case["expected"]["key"])
    return case["expected"]["match"] == "prefix" and not re.fullmatch(r"-\d[\d-]*", rest)


PRICES: Final = (
    Departure(
        "a longer name is another model unless it is a version of the same",
        is_another_model,
        {"found": False, "key": None, "match": ...},
    ),
    Departure(
        "the price table is maintained: it knows this model",
        lambda case: case["expected"]["usd"] is None and listed_usd(case) is not None,
    ),
    Departure(
        "what the table has for a model of another name is not its price",
        lambda case: bool(case["expected"]["usd"]) and listed_usd(case) is None,
        {"usd": None},
    ),
    Departure(
        "the price table is maintained: it has a price for this version of the model",
        lambda case: has_price_of_shorter_name(case) and listed_usd(case) is not None,
    ),
)

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
    beside=("method",),
)
def test_provider(vector: Vector) -> None:
    given, expected = vector["input"], vector["expected"]
    if given["direction"] == "request":
        _compare_request(given, expected, vector["area"])
    elif given["direction"] == "response":
        _compare_response(given, expected, vector["area"])
    else:
        unknown(f"direction {given['direction']}")


@pytest.mark.vectors("suite.jsonl", "pricing", departures=PRICES, beside=("match", "found"))
def test_pricing(vector: Vector) -> None:
    given, expected = vector["input"], vector["expected"]
    if given["case"] == "lookup":
        assert matching_name(given["model"], given["table"]) == expected.get("key")
        return
    if given["case"] not in {"dry-run estimate", "run cost"}:
        unknown(given["case"])
    cost = PriceTable({}).cost(*priced(given))
    assert cost.usd == (None if expected["usd"] is None else pytest.approx(expected["usd"]))


def _compare_request(given: Vector, expected: Vector, area: str) -> None:
    config = known(given.get("config", {}), "baseUrl", "organization")
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
        for name in ("status", "retryable"):
            if expected[name] is not None:
                assert result.error.details[name] == expected[name]
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
    known(given, "model", "messages", "params", "tools", "toolChoice")
    params = known(
        given.get("params", {}), "temperature", "maxTokens", "topP", "stopSequences", "seed"
    )
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
    known(given, "role", "content", "toolCalls", "toolCallId", "toolName")
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
