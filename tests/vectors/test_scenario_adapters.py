"""The vectors of scenarios that are about agents under test, over real sockets."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from options import options_of
from scenario_departures import AGENTS
from vector_cases import known, unknown

from kindlm.agents import make_agent
from kindlm.errors import Err, Ok, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.suite import AgentTarget
from kindlm.transcript import Message, Role, ToolUse

Vector = dict[str, Any]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

# The parsers of the cases are functions of another language; ours are paths.
PARSER: Final = re.compile(r"(\w+) -> \1\.([\w.]+)")


@pytest.mark.vectors(
    "scenario.jsonl",
    "adapter.http.request",
    departures=AGENTS,
    beside=("method", "content_type"),
)
def test_request(vector: Vector) -> None:
    given, expected = vector["input"], vector["expected"]
    known(given.get("config", {}))
    turns = known(given["context"] or {"turns": []}, "turns")["turns"]
    messages = [Message(Role(role), text) for role, text in turns]
    sent, _ = _exchange([*messages, Message(Role.USER, given["message"])], {}, b"{}", "", 200)
    assert sent == [expected["body"]]


@pytest.mark.vectors("scenario.jsonl", "runner+adapter.http", departures=AGENTS)
def test_conversation(vector: Vector) -> None:
    known(vector["input"].get("config", {}))
    said: list[Message] = []
    sent = []
    for step in vector["input"]["steps"]:
        text, arrow, answer = step.removeprefix("send ").partition(" -> ")
        if not arrow or not step.startswith("send "):
            unknown(f"step {step}")
        said.append(Message(Role.USER, text))
        bodies, _ = _exchange(said, {}, b'{"message": "ok"}', "application/json", 200)
        sent += bodies
        said.append(Message(Role.ASSISTANT, answer))
    assert sent == vector["expected"]["bodies"]


@pytest.mark.vectors(
    "scenario.jsonl", "adapter.http.response", "adapter.http.stream", departures=AGENTS
)
def test_response(vector: Vector) -> None:
    given, expected = vector["input"], vector["expected"]
    parser = known(given.get("config", {}), "responseParser").get("responseParser")
    path = None if parser is None else PARSER.fullmatch(parser)
    if parser is not None and path is None:
        unknown(f"parser {parser}")
    options = {} if path is None else {"responsePath": path[2]}
    kind = given.get("content_type", "application/json")
    body = _payload(given["body"], kind)
    status = given.get("status", 200)
    _, result = _exchange([Message(Role.USER, "hello")], options, body, kind, status)
    assert isinstance(result, Err) == expected.get("raises", False), result
    if isinstance(result, Err):
        assert all(text in result.error.message for text in expected["mentions"])
        return
    reply = result.value
    assert reply.text == expected["text"]
    assert [_called(use) for use in reply.tool_uses] == expected["toolCalls"]
    if "tokenUsage" in expected:
        told = reply.usage.input_tokens, reply.usage.output_tokens
        assert told == (expected["tokenUsage"]["input"], expected["tokenUsage"]["output"])
        assert sum(filter(None, told)) == expected["tokenUsage"]["total"]


def _payload(body: Any, kind: str) -> bytes:
    """Return what went over the wire: a page stands for a body that is not JSON at all."""
    raw = isinstance(body, str) and (kind != "application/json" or body.startswith("<"))
    return (body if raw else json.dumps(body)).encode("utf-8")


def _called(use: ToolUse) -> dict[str, Any]:
    return {"name": use.call.name, "arguments": use.call.arguments}


def _exchange(
    messages: list[Message], options: Vector, body: bytes, kind: str, status: int
) -> tuple[list[Any], Result[AgentReply]]:
    """Send one message; return the bodies that arrived, and the result."""
    arrived: list[Any] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.partition("content-length:")[2].split()[0])
        arrived.append(json.loads(await reader.readexactly(length)))
        told = f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        writer.write(f"HTTP/1.1 {status} X\r\n{told}\r\n".encode() + body)
        await writer.drain()
        writer.close()

    return arrived, asyncio.run(_ask(messages, options, serve))


async def _ask(messages: list[Message], options: Vector, serve: Serve) -> Result[AgentReply]:
    """Send one message to a server of its own."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    target = AgentTarget(
        "a", "http", url, {}, options_of("http", {"request": "messages", **options})
    )
    made = make_agent(target, environ={}, root=Path())
    assert isinstance(made, Ok)
    async with made.value as agent:
        result = await agent.send(AgentRequest("c", tuple(messages), 20.0))
    server.close()
    await server.wait_closed()
    return result


@pytest.mark.vectors(
    "scenario.jsonl",
    "adapter.http.latency",
    departures=AGENTS,
    beside=("measured_below_ms",),
    ignores=("headers_after_ms",),
)
def test_latency(vector: Vector) -> None:
    """The body is sent some time after the headers; what is measured covers that time, or not."""
    assert vector["input"]["body_after_ms"] > 0
    waited_ms = 0.0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal waited_ms
        await reader.readuntil(b"\r\n\r\n")
        started = time.perf_counter()
        body = b'{"message": "ok"}'
        kind = "content-type: application/json\r\nconnection: close"
        writer.write(f"HTTP/1.1 200 X\r\n{kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode())
        await writer.drain()
        await asyncio.sleep(0.05)
        waited_ms = (time.perf_counter() - started) * 1000
        writer.write(body)
        await writer.drain()
        writer.close()

    result = asyncio.run(_ask([Message(Role.USER, "hello")], {}, serve))
    assert isinstance(result, Ok)
    is_to_headers = result.value.latency_ms < waited_ms
    assert is_to_headers == vector["expected"]["measured_is_time_to_headers"]
