"""The vectors of EvalView test cases that are about agents under test, over real sockets."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest
from raw_peer import http_answer, open_peer

from kindlm.agents.registry import make_agent
from kindlm.errors import Err, Ok, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.suite import AgentTarget
from kindlm.transcript import Message, Role, ToolUse

Vector = dict[str, Any]

DEPARTURES: Final = {
    "http-tokens-int": "a cost that nobody reports is not guessed from another model's prices",
    "tape-error": "an agent that says it failed has not answered",
    "tape-error-message": "an agent that says it failed has not answered",
    "tape-no-output": "a stream without text or calls is an empty answer",
    "tape-parallel-tools": "each result belongs to its own call",
    "tape-sse-lines": "server-sent events are read",
    "tape-two-usages-one-step": "a cost that nobody reports is not guessed",
}


@pytest.mark.vectors("evalview.jsonl", "adapter_http", departures=DEPARTURES)
def test_http(vector: Vector) -> None:
    body = json.dumps(vector["input"]["response"])
    result = _answered("http", body, "application/json", {"request": "query"})
    assert _as_trace(result) == _expected(vector)


@pytest.mark.vectors("evalview.jsonl", "adapter_tapescope", departures=DEPARTURES)
def test_tapescope(vector: Vector) -> None:
    lines = [
        line if isinstance(line, str) else json.dumps(line) for line in vector["input"]["lines"]
    ]
    result = _answered("tapescope", "\n".join(lines), "application/x-ndjson", {})
    assert _as_trace(result) == _expected(vector)


def _answered(adapter: str, body: str, kind: str, options: dict[str, Any]) -> Result[AgentReply]:
    async def run() -> Result[AgentReply]:
        async with open_peer(http_answer(200, body, kind=kind)) as server:
            target = AgentTarget("agent", adapter, server.url, options=options)
            made = make_agent(target, environ={}, root=Path())
            assert isinstance(made, Ok), made
            async with made.value as agent:
                return await agent.send(AgentRequest("c", (Message(Role.USER, "q"),), 20.0))

    return asyncio.run(run())


def _as_trace(result: Result[AgentReply]) -> dict[str, Any]:
    assert not isinstance(result, Err), result
    reply = result.value
    usage = reply.usage
    is_counted = usage.input_tokens is not None or usage.output_tokens is not None
    return {
        "final_output": reply.text,
        "steps": [_as_step(use) for use in reply.tool_uses],
        # What is unknown to kindlm is 0 there.
        "total_cost": reply.reported_cost_usd or 0.0,
        "tokens": [usage.input_tokens or 0, usage.output_tokens or 0] if is_counted else None,
        "model_id": reply.model,
    }


def _as_step(use: ToolUse) -> dict[str, Any]:
    failed = isinstance(use.response, dict) and "error" in use.response
    return {
        "tool": use.call.name,
        "parameters": use.call.arguments,
        "output": use.response.get("result") if failed else use.response,
        "error": use.response["error"] if failed else None,
    }


def _expected(vector: Vector) -> dict[str, Any]:
    expected, tokens = vector["expected"], vector["expected"]["tokens"]
    return {
        "final_output": expected["final_output"],
        "steps": [
            {key: step[key] for key in ("tool", "parameters", "output", "error")}
            for step in expected["steps"]
        ],
        "total_cost": expected["total_cost"],
        "tokens": tokens and [tokens["input"], tokens["output"]],
        "model_id": expected.get("model_id"),
    }
