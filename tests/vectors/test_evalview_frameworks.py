"""The vectors of EvalView test cases that are about graphs and crews, over real sockets."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest
from raw_peer import http_answer, open_peer
from vector_cases import Departure

from kindlm.agents import make_agent
from kindlm.errors import Ok
from kindlm.ports import AgentReply, AgentRequest
from kindlm.suite import AgentTarget
from kindlm.transcript import Message, Role

Vector = dict[str, Any]


def calls_in(case: Vector) -> list[Vector]:
    """Return the calls of tools that the messages of an answer have."""
    messages = case["input"]["response"]["messages"]
    return [call for message in messages for call in message.get("tool_calls", ())]


def read_calls(case: Vector) -> Vector:
    messages = case["input"]["response"]["messages"]
    results = {one["tool_call_id"]: one["content"] for one in messages if one["type"] == "tool"}
    calls = calls_in(case)
    return {
        "tools": [call["name"] for call in calls],
        "parameters": [call["args"] for call in calls],
        "outputs": [results.get(call["id"]) for call in calls],
    }


DEPARTURES: Final = (
    Departure(
        "calls of tools inside messages are read in every mode",
        lambda case: bool(calls_in(case)),
        read_calls,
    ),
    Departure(
        "a total of tokens is not split into those that were read and written",
        lambda case: (
            set(case["input"]["response"]["usage_metrics"]) <= {"total_tokens", "total_cost"}
        ),
        {"tokens": None},
    ),
)


@pytest.mark.vectors("evalview.jsonl", "adapter_langgraph_standard", departures=DEPARTURES)
def test_langgraph(vector: Vector) -> None:
    reply, expected = _reply("langgraph", vector), vector["expected"]
    assert reply.text == expected["final_output"]
    assert [use.call.name for use in reply.tool_uses] == expected["tools"]
    assert [use.call.arguments for use in reply.tool_uses] == expected["parameters"]
    assert [use.response for use in reply.tool_uses] == expected["outputs"]


@pytest.mark.vectors(
    "evalview.jsonl", "adapter_crewai", departures=DEPARTURES, ignores=("elapsed_ms",)
)
def test_crewai(vector: Vector) -> None:
    reply, expected = _reply("crewai", vector), vector["expected"]
    steps = [(step["id"], step["tool"], step["success"]) for step in expected["steps"]]
    assert _steps(reply) == steps
    assert reply.text == expected["final_output"]
    # What is unknown to kindlm is 0 there.
    assert (reply.reported_cost_usd or 0.0) == expected["total_cost"]
    usage = reply.usage
    counts = None if usage.input_tokens is None else [usage.input_tokens, usage.output_tokens]
    assert counts == expected["tokens"]


def _steps(reply: AgentReply) -> list[tuple[str, str, bool]]:
    return [
        (
            use.call.id,
            use.call.name,
            not (isinstance(use.response, dict) and "error" in use.response),
        )
        for use in reply.tool_uses
    ]


def _reply(adapter: str, vector: Vector) -> AgentReply:
    body = json.dumps(vector["input"]["response"])

    async def run() -> AgentReply:
        async with open_peer(http_answer(200, body)) as server:
            made = make_agent(AgentTarget("agent", adapter, server.url), environ={}, root=Path())
            assert isinstance(made, Ok), made
            async with made.value as agent:
                result = await agent.send(AgentRequest("c", (Message(Role.USER, "q"),), 20.0))
        assert isinstance(result, Ok), result
        return result.value

    return asyncio.run(run())
