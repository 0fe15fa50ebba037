"""Crews over real sockets: good, slow, wrong and broken."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from kindlm.errors import ErrorCode
from kindlm.transcript import Message, Role, ToolCall, ToolUse, Usage

TOKEN = "tok-planted-0123456789"
FIRST = Message(Role.USER, "one")
ANSWER = Message(Role.ASSISTANT, "ok")
SECOND = Message(Role.USER, "two")


@pytest.fixture
def talk(talk):
    """Send requests to a crew; return results and server."""
    return partial(talk, adapter="crewai", path="/kickoff")


class TestRequests:
    def test_inputs_are_the_query_its_context_and_what_was_said(self, talk, http, ask):
        requests = [replace(ask(FIRST), context={"user": 7}), ask(FIRST, ANSWER, SECOND)]
        _, server = talk(http({"result": "ok"}), requests=requests)
        assert [request.body for request in server.received] == [
            {"inputs": {"query": "one", "user": 7}},
            {
                "inputs": {
                    "query": "two",
                    "conversation_history": [
                        {"role": "user", "content": "one"},
                        {"role": "assistant", "content": "ok"},
                    ],
                }
            },
        ]
        assert server.received[0].path == "/kickoff"


class TestReplies:
    def test_tasks_are_tools(self, reply):
        told = reply(
            {
                "result": "R",
                "tasks": [
                    {"id": "t1", "tool": "search", "inputs": {"q": 1}, "output": "abc",
                     "status": "completed", "duration": 2500.0},
                    {"description": "e", "output": "abcdef", "status": "failed"},
                    {"tool": "pay", "output": 0, "error": "denied"},
                    {"tool": "look", "output": False},
                ],
            }
        )  # fmt: skip
        assert told.text == "R"
        assert told.tool_uses == (
            ToolUse(ToolCall("t1", "search", {"q": 1}), "abc", "agent"),
            ToolUse(
                ToolCall("task-1", "crew_task", {}),
                {"error": "the crew says that its status is failed", "result": "abcdef"},
                "agent",
            ),
            ToolUse(ToolCall("task-2", "pay", {}), {"error": "denied", "result": 0}, "agent"),
            ToolUse(ToolCall("task-3", "look", {}), False, "agent"),
        )

    def test_calls_beside_the_tool_of_a_task_are_read_too(self, reply):
        calls = [{"id": "c1", "name": "look", "args": {"q": 1}}, {"id": "c2", "name": "pay"}]
        told = reply(
            {
                "result": "ok",
                "tasks": [
                    {
                        "tool": "look",
                        "inputs": {"q": 1},
                        "messages": [{"role": "assistant", "tool_calls": calls}],
                    }
                ],
                "agent_executions": [{"tool_used": "pay"}, {"tool_used": "mail"}, {}],
            }
        )
        assert [use.call.name for use in told.tool_uses] == ["look", "pay", "mail"]

    def test_what_a_coworker_does_is_unseen_unless_it_is_listed(self, reply):
        call = {"id": "c1", "function": {"name": "delegate_work_to_coworker", "arguments": "{}"}}
        messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
        told = {"raw": "ok", "tasks_output": [{"raw": "ok", "messages": messages}]}
        assert "delegates to another" in reply(told).unseen
        listed = {**told, "agent_executions": [{"agent_name": "Clerk", "tool_used": "refund"}]}
        assert reply(listed).unseen is None

    def test_an_execution_that_no_task_repeats_is_a_call_of_its_own(self, reply):
        executions = [
            {"tool_used": "pay", "inputs": {"to": "a"}},
            {"tool_used": "pay", "inputs": {"to": "b"}},
        ]
        tasks = [{"tool": "pay", "inputs": {"to": "a"}, "output": "paid"}]
        told = reply({"result": "ok", "tasks": tasks, "agent_executions": executions})
        assert told.tool_uses == (
            ToolUse(ToolCall("task-0", "pay", {"to": "a"}), "paid", "agent"),
            ToolUse(ToolCall("exec-1", "pay", {"to": "b"}), None, "agent"),
        )

    def test_executions_of_agents_are_tools(self, reply):
        executions = [
            {"agent_name": "R", "tool_used": "web_search", "output": ""},
            {"agent_name": "W"},
        ]
        told = reply({"agent_executions": executions, "final_output": "F"})
        assert told.text == "F"
        assert told.tool_uses == (
            ToolUse(ToolCall("exec-0", "web_search", {}), "", "agent"),
            ToolUse(ToolCall("exec-1", "agent_execution", {}), None, "agent"),
        )

    def test_what_the_library_returns_is_read_as_it_is(self, reply):
        messages = [
            {"role": "system", "content": "You serve."},
            {"role": "user", "content": "Task"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "function": {"name": "look", "arguments": '{"id": "A1"}'}},
                    {"id": "c2", "function": {"name": "pay", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "c2", "content": "paid"},
            {"role": "tool", "tool_call_id": "c1", "content": "shipped"},
        ]
        told = reply(
            {
                "raw": "On its way.",
                "pydantic": None,
                "json_dict": None,
                "tasks_output": [
                    {"description": "d", "raw": "On its way.", "agent": "A", "messages": messages},
                    {"description": "e", "raw": "x", "agent": "B", "messages": messages[:2]},
                    {"description": "f", "raw": "y", "agent": "C"},
                ],
                "token_usage": {"total_tokens": 30, "prompt_tokens": 20, "completion_tokens": 10},
            }
        )
        assert (told.text, told.usage) == ("On its way.", Usage(20, 10))
        assert told.tool_uses == (
            ToolUse(ToolCall("c1", "look", {"id": "A1"}), "shipped", "agent"),
            ToolUse(ToolCall("c2", "pay", {}), "paid", "agent"),
            ToolUse(ToolCall("task-2", "crew_task", {}), "y", "agent"),
        )

    @pytest.mark.parametrize(
        ("body", "text"),
        [
            ({"result": {"output": "inner"}}, "inner"),
            ({"result": {"raw": "inner"}}, "inner"),
            ({"result": {"total": 1}}, '{"total":1}'),
            ({"result": 0}, "0"),
            ({"result": "", "output": "b"}, "b"),
            ({"result": "", "output": None}, ""),
            ({"result": None, "final_output": "f"}, "f"),
            ({"tasks": [{"tool": "a"}]}, ""),
        ],
    )
    def test_the_text_is_found(self, reply, body, text):
        assert reply(body).text == text

    def test_a_total_of_tokens_is_not_split(self, reply):
        told = reply({"result": "R", "usage_metrics": {"total_tokens": 100}, "model": "gpt-4o"})
        assert (told.usage, told.reported_cost_usd, told.model) == (Usage(), None, "gpt-4o")
        assert "total number of tokens" in told.warnings[0]

    def test_a_crew_that_counted_nothing_says_nothing(self, reply):
        counts = {"total_tokens": 0, "prompt_tokens": 0, "completion_tokens": 0}
        told = reply({"result": "R", "token_usage": counts})
        assert (told.usage, told.warnings) == (Usage(), ())

    @pytest.mark.parametrize(
        ("body", "cost"),
        [
            ({"usage_metrics": {"total_cost": 0.05}, "cost": 7}, 0.05),
            ({"cost": 0}, 0.0),
            ({"tasks": [{"tool": "a", "cost": 0.25}, {"tool": "b", "cost": 0.5}]}, 0.75),
            ({"tasks": [{"tool": "a", "cost": 0.25}, {"tool": "b"}]}, None),
            ({"usage_metrics": {"total_cost": -1}}, None),
            ({}, None),
        ],
    )
    def test_costs_are_those_that_are_reported(self, reply, body, cost):
        assert reply({"result": "R", **body}).reported_cost_usd == cost


class TestFailures:
    @pytest.mark.parametrize(
        ("body", "said"),
        [
            ("{", "not valid JSON"),
            ({}, "no text under result"),
            ({"status": "ok", "tasks": []}, "no text under result"),
            ({"error": "Boom"}, "reported an error: Boom"),
            ({"result": "", "error": {"message": "Boom"}}, "reported an error: Boom"),
            ({"tasks": [{"tool": "a"}], "error": {"code": 5}}, 'reported an error: {"code":5}'),
            ('{"tasks":' + "[" * 100_000, "not valid JSON"),
        ],
    )
    def test_what_is_no_answer_is_an_error(self, talk, http, failure, body, said):
        (got,), _ = talk(http(body))
        error = failure(got)
        assert error.code is ErrorCode.PROVIDER_API_ERROR
        assert said in error.message
        assert not error.details["retryable"]


def test_more_calls_than_any_answer_has_are_refused(talk, http, failure, monkeypatch):
    monkeypatch.setattr("kindlm.agents.reply_reading.MAX_CALLS", 10)
    (result,), _ = talk(http({"result": "R", "tasks": [{}] * 11}))
    assert "more than 10 tool calls" in failure(result).message


def test_calls_beside_the_answer_are_read(talk, http, success):
    (result,), _ = talk(http({"result": "ok", "actions": [{"name": "refund"}]}), adapter="crewai")
    assert [use.call.name for use in success(result).tool_uses] == ["refund"]
