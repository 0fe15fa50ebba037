"""The vectors of EvalView test cases that are about agents under test, over real sockets."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from options import options_of
from raw_peer import http_answer, open_peer
from vector_cases import Departure

from kindlm.agents import make_agent
from kindlm.errors import Err, Ok, Result
from kindlm.ports import AgentReply, AgentRequest
from kindlm.suite import AgentTarget
from kindlm.transcript import Message, Role, ToolUse

Vector = dict[str, Any]


def events(case: Vector) -> list[Vector]:
    """Return the events of a stream, as far as its lines are objects."""
    return [line for line in case["input"]["lines"] if isinstance(line, dict)]


def kinds_of(case: Vector) -> list[str]:
    return [event["type"] for event in events(case)]


def is_parallel(case: Vector) -> bool:
    """Tell whether calls are made before the results of those before them, which have no ids."""
    order = [kind for kind in kinds_of(case) if kind in {"tool_call", "tool_result"}]
    has_ids = any("id" in event["data"] for event in events(case) if event["type"] == "tool_call")
    return ("tool_call", "tool_call") in pairwise(order) and not has_ids


def in_their_order(case: Vector) -> Vector:
    """Return the calls of a stream, each with the result that came in its place."""
    results = [event["data"] for event in events(case) if event["type"] == "tool_result"]
    steps = []
    for at, step in enumerate(case["expected"]["steps"]):
        result = results[at] if at < len(results) else {}
        failed = result.get("success") is False or bool(result.get("error"))
        told = {"output": result.get("result"), "error": result["error"] if failed else None}
        steps.append({**step, **told})
    return {"steps": steps}


def has_answer(case: Vector) -> bool:
    """Tell whether a stream has a line that is text, or an event of a text, a call, or an error."""
    silent = {"start", "usage", "end", "done", "message_start", "message_stop"}
    return len(events(case)) < len(case["input"]["lines"]) or bool(set(kinds_of(case)) - silent)


def reported_cost(case: Vector) -> Any:
    """Return whether an answer, or an event, names a cost."""
    return "cost" in json.dumps(case["input"])


DEPARTURES: Final = (
    Departure(
        "a cost that nobody reports is not guessed from another model's prices",
        lambda case: case["expected"]["total_cost"] > 0 and not reported_cost(case),
        {"total_cost": 0.0},
    ),
    Departure(
        "an agent that says it failed has not answered",
        lambda case: "error" in kinds_of(case),
        {"failed": True},
    ),
    Departure(
        "a stream without text or calls is an empty answer",
        lambda case: not has_answer(case),
        {"final_output": ""},
    ),
    Departure("each result belongs to its own call", is_parallel, in_their_order),
    Departure(
        "server-sent events are no lines of JSON: an answer nobody understands is an error",
        lambda case: any(str(line).startswith("data:") for line in case["input"]["lines"]),
        {"failed": True},
    ),
)

STREAM: Final = ("final_output", "steps", "total_cost", "tokens")
"""What a stream that fails has nothing of; that of others is compared."""


@pytest.mark.vectors(
    "evalview.jsonl",
    "adapter_http",
    departures=DEPARTURES,
    ignores=("elapsed_ms",),
    beside=("model_provider", "session_id", "total_latency"),
)
def test_http(vector: Vector) -> None:
    body = json.dumps(vector["input"]["response"])
    result = _answered("http", body, "application/json", {"request": "query"})
    assert _as_trace(result) == _expected(vector)


@pytest.mark.vectors("evalview.jsonl", "adapter_tapescope", departures=DEPARTURES, beside=STREAM)
def test_tapescope(vector: Vector) -> None:
    lines = [
        line if isinstance(line, str) else json.dumps(line) for line in vector["input"]["lines"]
    ]
    result = _answered("tapescope", "\n".join(lines), "application/x-ndjson", {})
    if "failed" in vector["expected"]:
        assert isinstance(result, Err) == vector["expected"]["failed"]
        return
    assert _as_trace(result) == _expected(vector)


def _answered(adapter: str, body: str, kind: str, options: dict[str, Any]) -> Result[AgentReply]:
    async def run() -> Result[AgentReply]:
        async with open_peer(http_answer(200, body, kind=kind)) as server:
            target = AgentTarget("agent", adapter, server.url, options=options_of(adapter, options))
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
