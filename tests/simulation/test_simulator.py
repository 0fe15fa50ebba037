"""Simulated tools: which rule answers a call, and with what."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kindlm.engine.simulation import SimulatedAnswer, SimulatedTools
from kindlm.ports import ToolDefinition
from kindlm.suite import SimulatedTool, ToolAnswer
from kindlm.transcript import ToolCall, ToolProblemKind


def ask(tools: SimulatedTools, call: ToolCall) -> SimulatedAnswer:
    return asyncio.run(tools.answer(call))


def call(name: str, arguments: dict[str, Any] | None = None, **more: Any) -> ToolCall:
    return ToolCall("call_1", name, arguments or {}, **more)


def lookup(**more: Any) -> SimulatedTool:
    answers = (
        ToolAnswer({"id": "A1"}, {"status": "delivered"}),
        ToolAnswer({"id": "A1", "fresh": True}, {"status": "never reached"}),
        ToolAnswer({"id": "B2"}, None),
    )
    return SimulatedTool("lookup", answers=answers, **more)


def test_the_first_answer_that_matches_wins() -> None:
    tools = SimulatedTools([lookup()])

    answer = ask(tools, call("lookup", {"id": "A1", "fresh": True}))

    assert answer == SimulatedAnswer({"status": "delivered"}, "responses[0]")


def test_null_is_an_answer() -> None:
    assert ask(SimulatedTools([lookup()]), call("lookup", {"id": "B2"})) == SimulatedAnswer(
        None, "responses[2]"
    )


@pytest.mark.parametrize("default", [None, 0, "", False, [], {"ok": True}, "{{args.id}}"])
def test_every_value_can_be_the_default_and_is_given_as_it_stands(default: Any) -> None:
    tools = SimulatedTools([lookup(default=default, has_default=True)])

    assert ask(tools, call("lookup", {"id": "?"})) == SimulatedAnswer(default, "defaultResponse")


def test_an_answer_without_when_matches_all() -> None:
    tools = SimulatedTools(
        [SimulatedTool("t", answers=(ToolAnswer({"a": 1}, "one"), ToolAnswer(None, 2)))]
    )

    assert ask(tools, call("t", {"a": 1})).response == "one"
    assert ask(tools, call("t", {"a": 2})) == SimulatedAnswer(2, "responses[1]")
    assert ask(tools, call("t")).response == 2


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        (call("lookup", {"id": "?"}), "no response"),
        (call("Lookup", {"id": "A1"}), "unknown tool"),
        (call("lookup", malformed="{id:"), "malformed arguments"),
        (call("Lookup", malformed="{id:"), "unknown tool"),
    ],
)
def test_a_call_without_an_answer_gets_an_error_object_naming_the_tool_and_is_a_problem(
    asked: ToolCall, rule: str
) -> None:
    answer = ask(SimulatedTools([lookup()]), asked)

    assert answer.rule == rule
    assert answer.response["tool"] == asked.name
    assert asked.name in answer.response["error"]
    (problem,) = answer.problems
    assert problem.kind is ToolProblemKind.UNMATCHED
    assert asked.name in problem.message


def test_malformed_arguments_never_meet_the_default() -> None:
    tools = SimulatedTools([lookup(default="fine", has_default=True)])

    answer = ask(tools, call("lookup", malformed="[1, 2]"))

    assert "not a JSON object" in answer.response["error"]


def test_definitions_keep_the_order_and_default_to_no_properties() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "string"}}}
    tools = SimulatedTools([SimulatedTool("b", "does b", schema), SimulatedTool("a")])

    assert tools.definitions == (
        ToolDefinition("b", "does b", schema),
        ToolDefinition("a", None, {"type": "object", "properties": {}}),
    )
