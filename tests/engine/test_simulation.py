"""Simulated tools: which rule answers a call, and with what, also where a tool fails on purpose.

Calls and answers may break a tool's schemas.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from kindlm.checks import CheckRunner
from kindlm.engine.simulation import SimulatedTools
from kindlm.ports import AnsweredCall, ToolDefinition
from kindlm.suite import Fault, RecordedAnswer, SimulatedTool, ToolAnswer
from kindlm.transcript import ToolCall, ToolProblemKind


def ask(tools: SimulatedTools, call: ToolCall) -> AnsweredCall:
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

    assert (answer.use.response, answer.use.rule) == ({"status": "delivered"}, "responses[0]")


def test_null_is_an_answer() -> None:
    use = ask(SimulatedTools([lookup()]), call("lookup", {"id": "B2"})).use
    assert (use.response, use.rule) == (None, "responses[2]")


@pytest.mark.parametrize("default", [None, 0, "", False, [], {"ok": True}, "{{args.id}}"])
def test_every_value_can_be_the_default_and_is_given_as_it_stands(default: Any) -> None:
    tools = SimulatedTools([lookup(default=default, has_default=True)])

    use = ask(tools, call("lookup", {"id": "?"})).use
    assert (use.response, use.rule) == (default, "defaultResponse")


def test_an_answer_without_when_matches_all() -> None:
    tools = SimulatedTools(
        [SimulatedTool("t", answers=(ToolAnswer({"a": 1}, "one"), ToolAnswer(None, 2)))]
    )

    assert ask(tools, call("t", {"a": 1})).use.response == "one"
    assert ask(tools, call("t", {"a": 2})).use.rule == "responses[1]"
    assert ask(tools, call("t")).use.response == 2


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

    assert answer.use.rule == rule
    assert answer.use.response["tool"] == asked.name
    assert asked.name in answer.use.response["error"]
    (problem,) = answer.use.problems
    assert problem.kind is ToolProblemKind.UNMATCHED
    assert asked.name in problem.message


def test_malformed_arguments_never_meet_the_default() -> None:
    tools = SimulatedTools([lookup(default="fine", has_default=True)])

    answer = ask(tools, call("lookup", malformed="[1, 2]"))

    assert "not a JSON object" in answer.use.response["error"]


def test_definitions_keep_the_order_and_default_to_no_properties() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "string"}}}
    tools = SimulatedTools([SimulatedTool("b", "does b", schema), SimulatedTool("a")])

    assert tools.definitions == (
        ToolDefinition("b", "does b", schema),
        ToolDefinition("a", None, {"type": "object", "properties": {}}),
    )


PARAMETERS = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "string", "pattern": "^A"}},
    "additionalProperties": False,
}
RESULT = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}


def answer_of(tool: SimulatedTool, arguments: dict[str, Any] | None = None) -> Any:
    return ask(SimulatedTools([tool]), ToolCall("c", tool.name, arguments or {}))


class TestFaults:
    @pytest.mark.parametrize("fault", [Fault.TIMEOUT, Fault.ERROR])
    def test_a_failure_is_an_error_object_after_its_delay(self, fault: Fault) -> None:
        answer = answer_of(
            SimulatedTool("t", answers=(ToolAnswer(None, fault=fault, delay_ms=1500),))
        )

        assert answer.use.response["tool"] == "t"
        assert "t" in answer.use.response["error"]
        assert answer.delay_s == 1.5
        assert json.loads(answer.text) == answer.use.response
        assert answer.use.rule == f"responses[0], fault: {fault}"
        assert answer.use.problems == ()

    def test_failures_can_be_distinguished(self) -> None:
        texts = {
            answer_of(SimulatedTool("t", answers=(ToolAnswer(fault=fault),))).use.response["error"]
            for fault in (Fault.TIMEOUT, Fault.ERROR)
        }

        assert len(texts) == 2

    def test_a_malformed_answer_is_a_text_that_is_no_json(self) -> None:
        answer = answer_of(SimulatedTool("t", answers=(ToolAnswer(fault=Fault.MALFORMED),)))

        assert answer.use.response == answer.text
        with pytest.raises(ValueError, match=r"."):
            json.loads(answer.text)

    def test_a_failed_call_may_have_done_its_work(self) -> None:
        done = ToolAnswer(None, "already done", when_state={"done": True})
        fails = ToolAnswer(fault=Fault.TIMEOUT, set_state={"done": True})
        tools = SimulatedTools([SimulatedTool("t", answers=(done, fails))])

        assert "error" in ask(tools, ToolCall("1", "t", {})).use.response
        assert ask(tools, ToolCall("2", "t", {})).use.response == "already done"

    def test_a_sequence_can_fail_once(self) -> None:
        steps = (ToolAnswer(fault=Fault.ERROR), ToolAnswer(then="fine"))
        tools = SimulatedTools([SimulatedTool("t", answers=(ToolAnswer(sequence=steps),))])

        answers = [ask(tools, ToolCall("c", "t", {})).use.response for _ in range(2)]

        assert "error" in answers[0]
        assert answers[1] == "fine"

    def test_a_fault_beside_a_sequence_is_that_of_each_answer(self) -> None:
        steps = (ToolAnswer(then="fine"), ToolAnswer(fault=Fault.ERROR))
        answer = ToolAnswer(sequence=steps, fault=Fault.TIMEOUT)
        tools = SimulatedTools([SimulatedTool("t", answers=(answer,))])

        rules = [ask(tools, call("t")).use.rule for _ in steps]

        assert rules == [
            "responses[0].sequence[0], fault: timeout",
            "responses[0].sequence[1], fault: error",
        ]

    def test_a_fault_need_not_fit_the_result_schema(self) -> None:
        for fault in Fault:
            tool = SimulatedTool("t", answers=(ToolAnswer(fault=fault),), result_schema=RESULT)
            assert answer_of(tool).use.problems == ()


def test_an_answer_may_take_its_time() -> None:
    assert (
        answer_of(SimulatedTool("t", answers=(ToolAnswer(None, 1, delay_ms=250),))).delay_s == 0.25
    )


class TestParameters:
    TOOL = SimulatedTool("t", parameters=PARAMETERS, default="fine", has_default=True)

    def test_arguments_that_fit_are_no_problem(self) -> None:
        assert answer_of(self.TOOL, {"id": "A1"}).use.problems == ()

    def test_arguments_that_break_the_schema_are_reported_and_answered_all_the_same(self) -> None:
        answer = answer_of(self.TOOL, {"id": "B1", "x": 1})

        assert answer.use.response == "fine"
        (problem,) = answer.use.problems
        assert problem.kind is ToolProblemKind.ARGUMENTS
        assert '"t"' in problem.message
        assert "$.id" in problem.message
        assert '"x"' in problem.message

    def test_a_call_can_break_the_schema_and_be_unmatched(self) -> None:
        answer = answer_of(SimulatedTool("t", parameters=PARAMETERS), {})

        assert [problem.kind for problem in answer.use.problems] == [
            ToolProblemKind.ARGUMENTS,
            ToolProblemKind.UNMATCHED,
        ]

    @pytest.mark.usefixtures("impatient_patterns")
    def test_a_pattern_that_takes_too_long_is_a_problem_in_bounded_time(self) -> None:
        parameters = {"properties": {"id": {"pattern": "^(a|a)*$"}}}
        tool = SimulatedTool("t", parameters=parameters, default=1, has_default=True)

        (problem,) = answer_of(tool, {"id": "a" * 60 + "!"}).use.problems

        assert "could not be checked" in problem.message
        assert problem.message.endswith("it took too long.")

    def test_a_message_stays_short(self) -> None:
        schema = {"additionalProperties": {"type": "string"}}
        tool = SimulatedTool("t", parameters=schema, default=1, has_default=True)

        (problem,) = answer_of(tool, {f"key {n}": n for n in range(1_000)}).use.problems

        assert len(problem.message) < 2_000
        assert "more" in problem.message


class TestResults:
    @pytest.mark.parametrize(
        "tool",
        [
            SimulatedTool("t", answers=(ToolAnswer(None, {"ok": "{{args.ok}}"}),)),
            SimulatedTool("t", answers=(ToolAnswer(sequence=(ToolAnswer(then={"ok": 1}),)),)),
            SimulatedTool("t", recorded=(RecordedAnswer({"ok": "yes"}, {"ok": "yes"}),)),
            SimulatedTool("t", default=None, has_default=True),
            SimulatedTool("t", default={"error": "not found"}, has_default=True),
        ],
    )
    def test_an_answer_that_breaks_the_result_schema_is_given_and_reported(
        self, tool: SimulatedTool
    ) -> None:
        with_schema = SimulatedTool(
            "t",
            answers=tool.answers,
            recorded=tool.recorded,
            default=tool.default,
            has_default=tool.has_default,
            result_schema=RESULT,
        )

        answer = answer_of(with_schema, {"ok": "yes"})

        assert answer.use.response == answer_of(tool, {"ok": "yes"}).use.response
        (problem,) = answer.use.problems
        assert problem.kind is ToolProblemKind.RESULT
        assert "resultSchema" in problem.message

    def test_an_answer_that_fits_is_no_problem(self) -> None:
        tool = SimulatedTool(
            "t", answers=(ToolAnswer(None, {"ok": "{{args.ok}}"}),), result_schema=RESULT
        )

        assert answer_of(tool, {"ok": True}).use.problems == ()

    @pytest.mark.parametrize(
        ("result", "is_problem"), [({"error": "down"}, False), ({"error": "down", "ok": 1}, True)]
    )
    def test_a_failure_of_a_server_need_not_fit(self, result: Any, is_problem: bool) -> None:
        async def call_server(server: str, call: ToolCall) -> Any:
            return result

        tool = SimulatedTool("t", server="shop", result_schema=RESULT)
        tools = SimulatedTools([tool], call_server=call_server)
        assert bool(ask(tools, call("t")).use.problems) is is_problem
        replayed = replace(tool, recorded=(RecordedAnswer({}, result),))
        assert bool(answer_of(replayed).use.problems) is is_problem


HANGS = "^(a|a)*$"
VICTIM = "a" * 60 + "!"
BOUNDED = {"properties": {"id": {"pattern": HANGS}}}
UNIQUE = {"required": ["ok"], "properties": {"l": {"uniqueItems": True}}}


@pytest.mark.parametrize(
    ("tool", "arguments", "turns_meanwhile"),
    [
        (SimulatedTool("t", parameters=BOUNDED, has_default=True), {"id": VICTIM}, True),
        (
            SimulatedTool("t", answers=(ToolAnswer(then={"id": VICTIM}),), result_schema=BOUNDED),
            {},
            True,
        ),
        (SimulatedTool("t", parameters=UNIQUE, has_default=True), {"l": [*range(20_000)]}, True),
        (SimulatedTool("t", parameters=RESULT, has_default=True), {"ok": 1}, False),
    ],
)
@pytest.mark.usefixtures("impatient_patterns")
def test_the_loop_turns_while_a_slow_schema_is_validated(
    tool: SimulatedTool, arguments: dict[str, Any], turns_meanwhile: bool
) -> None:
    finished: list[str] = []

    async def other_work() -> None:
        finished.append("other")

    async def answering() -> None:
        answer = await SimulatedTools([tool], CheckRunner().aside).answer(
            ToolCall("c", "t", arguments)
        )
        finished.append("answer")
        assert len(answer.use.problems) == 1

    async def both() -> None:
        await asyncio.gather(answering(), other_work())

    asyncio.run(both())

    assert finished == (["other", "answer"] if turns_meanwhile else ["answer", "other"])
