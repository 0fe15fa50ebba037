"""Longer conversations: several messages of the user, slow and faulty tools, live agents."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from dataclasses import replace

import pytest
from evaluated import demand

from kindlm.errors import ErrorCode
from kindlm.outcome import Status
from kindlm.ports import AgentReply
from kindlm.suite import (
    AgentTarget,
    Command,
    Expectation,
    Fault,
    Price,
    Prompt,
    SimulatedTool,
    ToolAnswer,
)
from kindlm.transcript import Role, ToolCall, ToolUse, Usage


def turn_contains(text: str, turn: int | None) -> Expectation:
    return demand("contains", f"{text} in {turn}", {"text": text}, turn=turn)


def agent_reply(text: str = "", *calls: ToolCall, **fields) -> AgentReply:
    uses = tuple(ToolUse(call, {"ok": True}, "agent") for call in calls)
    return AgentReply(text, fields.pop("raw", "{}"), 25.0, tool_uses=uses, **fields)


class TestFollowUps:
    def test_each_message_is_sent_once_after_the_answer_to_the_one_before(self, bench, make):
        bench.queue(make.reply("one"), make.reply("two"), make.reply("three"))
        bench.execute(make.case(follow_ups=("and?", "and then?")))
        last = bench.client.requests[-1]
        said = [(m.role, m.text) for m in last.messages if m.role is not Role.SYSTEM]
        assert said == [
            ("user", "Hello"),
            ("assistant", "one"),
            ("user", "and?"),
            ("assistant", "two"),
            ("user", "and then?"),
        ]

    def test_the_record_names_what_each_request_continues(self, bench, make):
        bench.queue(make.reply("one"), make.reply("", make.call()), make.reply("two"))
        bench.execute(make.case(follow_ups=("and?",), tools=(make.tool(default=1),)))
        requests = bench.events("provider.requested")
        assert [event.data["after"] for event in requests] == [0, 1, 2]
        roles = [[m["role"] for m in event.data.get("messages", [])] for event in requests]
        assert roles == [[], ["user"], ["tool"]]

    def test_an_expectation_of_a_turn_sees_nothing_that_came_later(self, bench, make):
        bench.queue(make.reply("first"), make.reply("second"))
        expectations = (turn_contains("first", 1), turn_contains("second", 2))
        case = make.case(follow_ups=("more",), expectations=expectations)
        assert bench.execute(case).status is Status.PASSED

    def test_an_expectation_of_a_turn_fails_on_what_another_turn_said(self, bench, make):
        bench.queue(make.reply("first"), make.reply("second"))
        wrong = (turn_contains("second", 1), turn_contains("first", 2))
        finished = bench.execute(make.case(follow_ups=("more",), expectations=wrong))
        assert [failed.label for failed in finished.failed] == ["second in 1", "first in 2"]

    def test_max_turns_bounds_the_model_calls_of_the_whole_conversation(self, bench, make):
        bench.queue(make.reply("one"), make.reply("two"))
        finished = bench.execute(make.case(follow_ups=("a", "b", "c"), max_turns=2))
        assert finished.error is not None
        assert finished.error.code is ErrorCode.ENGINE_MAX_TURNS
        assert len(bench.client.requests) == 2

    def test_an_error_ends_the_conversation_and_keeps_what_was_said(self, bench, make):
        bench.queue(make.reply("one"), make.failure(ErrorCode.PROVIDER_AUTH_ERROR))
        finished = bench.execute(make.case(follow_ups=("a", "b")))
        assert finished.status is Status.ERRORED
        (end,) = bench.events("execution.finished")
        assert end.data["answers"] == 1
        assert bench.text(end.data["output"]) == ""

    def test_a_prefill_belongs_to_the_first_answer_alone(self, bench, make):
        bench.queue(make.reply("{ one"), make.reply("two"))
        bench.execute(make.case(prompt=Prompt("Hello", prefill="{"), follow_ups=("more",)))
        assert [m.prefill for m in bench.client.requests[1].messages] == [False, False, False]


class TestSlowTools:
    def test_an_answer_takes_as_long_as_it_says(self, bench, make):
        slow = SimulatedTool("lookup", answers=(ToolAnswer(then="late", delay_ms=1500),))
        bench.queue(make.reply("", make.call()), make.reply("done"))
        bench.execute(make.case(tools=(slow,)))
        assert bench.clock.slept == [1.5]

    def test_a_malformed_answer_reaches_the_model_as_it_is(self, bench, make):
        broken = SimulatedTool("lookup", answers=(ToolAnswer(fault=Fault.MALFORMED),))
        bench.queue(make.reply("", make.call()), make.reply("done"))
        bench.execute(make.case(tools=(broken,)))
        answer = bench.client.requests[1].messages[-1]
        with pytest.raises(ValueError, match=r"."):
            json.loads(answer.text)


class TestAgents:
    AGENT = AgentTarget("shop", "http", "http://127.0.0.1:1/chat")

    def ask(self, bench, make, *outcomes, **case):
        bench.agent.outcomes = list(outcomes)
        suite = {"agents": {"shop": self.AGENT}, **case.pop("suite", {})}
        return bench.execute(make.case(targets=("shop",), **case), **suite)

    def test_an_agent_is_checked_like_a_model(self, bench, make):
        reply = agent_reply("delivered", ToolCall("1", "lookup_order", {"id": 1}))
        called = demand("tool_called", "lookup_order", {"tool": "lookup_order"})
        finished = self.ask(bench, make, reply, expectations=(make.contains("deliv"), called))
        assert finished.status is Status.PASSED
        sent, replied = bench.events("agent.sent", "agent.replied")
        assert (sent.data["agent"], sent.data["adapter"]) == ("shop", "http")
        assert replied.data["tool_calls"][0]["name"] == "lookup_order"

    def test_the_conversation_is_one_and_each_message_is_sent_once(self, bench, make):
        self.ask(bench, make, agent_reply("one"), agent_reply("two"), follow_ups=("more",))
        first, second = bench.agent.requests
        assert first.conversation == second.conversation
        assert [m.text for m in second.messages if m.role is Role.USER] == ["Hello", "more"]
        assert bench.agent.open == 0

    def test_tool_calls_count_on_over_the_turns(self, bench, make):
        call = ToolCall("1", "t", {})
        replies = (agent_reply("a", call, call), agent_reply("b", call))
        self.ask(bench, make, *replies, follow_ups=("more",))
        with closing(bench.log.reader()) as reader:
            rows = reader.execute("SELECT position, call, rule FROM tool_calls").fetchall()
        assert [tuple(row) for row in rows] == [(0, 1, "agent"), (1, 1, "agent"), (2, 2, "agent")]

    def test_what_can_go_better_is_tried_again(self, bench, make):
        busy = make.failure(ErrorCode.PROVIDER_API_ERROR, retryable=True, status=503)
        assert self.ask(bench, make, busy, agent_reply("ok")).status is Status.PASSED
        (failed,) = bench.events("agent.failed")
        assert failed.data["status"] == 503
        with closing(bench.log.reader()) as reader:
            rows = reader.execute("SELECT call, try, status FROM provider_calls").fetchall()
        assert [tuple(row) for row in rows] == [(1, 1, "failed"), (2, 2, "responded")]

    def test_an_agent_is_closed_when_it_crashes(self, bench, make):
        finished = self.ask(bench, make, RuntimeError("a bug"))
        assert finished.status is Status.ERRORED
        assert bench.agent.open == 0

    def test_a_cost_that_the_agent_does_not_report_is_unknown(self, bench, make):
        self.ask(bench, make, agent_reply("ok", usage=Usage(3, 4)))
        (end,) = bench.events("execution.finished")
        assert end.data["cost_source"] == "unknown"
        assert end.data["gen_ai.usage.output_tokens"] == 4

    def test_its_tokens_have_the_users_price_of_the_model_that_it_says_it_used(self, bench, make):
        usage = Usage(1_000_000, 2_000_000)
        bench.agent.outcomes = [agent_reply("ok", usage=usage, model="shop-1")]
        prices = {"shop-1": Price(1.0, 2.0)}
        suite = make.suite(make.case(targets=("shop",)), agents={"shop": self.AGENT}, prices=prices)
        asyncio.run(bench.run([suite]))
        (end,) = bench.events("execution.finished")
        assert (end.data["cost_usd"], end.data["cost_source"]) == (5.0, "computed")

    @pytest.mark.parametrize(
        ("reported", "known", "usd"),
        [
            ("gpt-4o", None, 2.5),
            (None, "gpt-4o", 2.5),
            ("gpt-4o-mini", "gpt-4o", 0.15),
            ("our-own", "gpt-4o", None),
            (None, None, None),
        ],
    )
    @pytest.mark.parametrize("adapter", ["http", "langgraph", "openai-assistants"])
    def test_its_tokens_have_the_price_of_its_model(
        self, bench, make, adapter, reported, known, usd
    ):
        bench.agent.outcomes = [agent_reply("ok", usage=Usage(1_000_000, 0), model=reported)]
        agent = replace(self.AGENT, adapter=adapter, model=known)
        asyncio.run(bench.run([make.suite(make.case(targets=("shop",)), agents={"shop": agent})]))
        (end,) = bench.events("execution.finished")
        assert end.data.get("cost_usd") == usd

    def test_an_agent_that_says_nothing_is_an_error(self, bench, make):
        finished = self.ask(bench, make, agent_reply())
        assert finished.error is not None
        assert finished.error.code is ErrorCode.ENGINE_EMPTY_RESPONSE

    def test_a_command_is_an_agent_of_its_own(self, bench, make):
        bench.agent.outcomes = [agent_reply("done")]
        case = make.case(targets=("command",), command=Command(("agent",), "."))
        assert bench.execute(case).status is Status.PASSED
        (sent,) = bench.events("agent.sent")
        assert (sent.data["agent"], sent.data["adapter"]) == ("command", "command")
