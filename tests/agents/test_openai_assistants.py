"""Assistants through the real SDK, over real sockets: what is asked, understood, and refused."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from assistants_stand_in import AssistantsApp, ScriptedRun
from options import options_of
from processes import time_passes_after

from kindlm.agents import make_agent
from kindlm.errors import ErrorCode
from kindlm.ports import AgentRequest, AnsweredCall
from kindlm.suite import AgentTarget
from kindlm.testing.http1 import HttpAnswer, listening
from kindlm.transcript import Message, Role, ToolUse, Usage

KEY = "sk-planted-0123456789abcdef"
USAGE = {"usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}}
WEATHER = {"id": "call_1", "name": "get_weather", "arguments": '{"city": "Paris"}'}
ONE, OK, TWO = Message(Role.USER, "one"), Message(Role.ASSISTANT, "ok"), Message(Role.USER, "two")


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr("kindlm.agents.openai_assistants_agent._FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("kindlm.agents.openai_assistants_agent._LONGEST_PAUSE_S", 0.001)


@pytest.fixture
def talk(make, ask):
    """Send requests to an assistant of an API that is played; return results."""

    def talk(app, *requests, headers=None, configured=False, environ=None, hangs=None, **options):
        async def run():
            async with listening(app.handle, "127.0.0.1", 0) as port:
                url = f"http://127.0.0.1:{port}/v1"
                known = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": url}
                known |= {"OPENAI_ASSISTANT_ID": "asst_env"} | (environ or {})
                endpoint = url if configured else ""
                target = AgentTarget(
                    "helper",
                    "openai-assistants",
                    endpoint,
                    headers or {},
                    options_of("openai-assistants", options),
                )
                async with make(target, **known) as agent, time_passes_after(hangs):
                    return [await agent.send(request) for request in requests or [ask()]]

        return asyncio.run(run())

    return talk


def lines(app):
    return [request.line for request in app.requests]


def has_asked(app):
    """Tell whether somebody has asked how far a run is."""
    return any(line.startswith("GET") for line in lines(app))


def own_step(created, kind, **detail):
    return {
        "id": f"step_{created}",
        "type": "tool_calls",
        "created_at": created,
        "step_details": {"tool_calls": [{"id": f"c{created}", "type": kind, kind: detail}]},
    }


class Tools:
    """Answers calls of functions, and remembers them."""

    def __init__(self, text='{"sky": "blue"}'):
        self.text = text
        self.calls = []

    async def __call__(self, call, own):
        self.calls.append((call, own))
        return AnsweredCall(ToolUse(call, {"sky": "blue"}, "defaultResponse"), self.text)


class TestConversations:
    def test_a_message_is_a_run_on_a_thread(self, talk, success):
        app = AssistantsApp(ScriptedRun("Answer 42", fields=USAGE))
        reply = success(talk(app)[0])
        assert (reply.text, reply.usage, reply.model) == ("Answer 42", Usage(100, 50), "gpt-4o")
        assert lines(app) == [
            "POST /threads",
            "POST /threads/thread_1/messages",
            "POST /threads/thread_1/runs",
            "GET /threads/thread_1/runs/run_1",
            "GET /threads/thread_1/runs/run_1",
            "GET /threads/thread_1/runs/run_1/steps",
            "GET /threads/thread_1/messages",
        ]
        assert app.requests[1].body == {"role": "user", "content": "Hello"}
        assert {request.headers["authorization"] for request in app.requests} == {f"Bearer {KEY}"}
        assert json.loads(reply.raw)["run"]["id"] == "run_1"

    def test_a_run_without_steps_of_tools_called_none(self, talk, success):
        reply = success(talk(AssistantsApp(ScriptedRun("Answer 42")))[0])
        assert (reply.tool_uses, reply.reports_tools) == ((), True)

    def test_a_conversation_stays_on_its_thread(self, talk, success, ask):
        app = AssistantsApp(ScriptedRun("first"), ScriptedRun("second"))
        results = talk(app, ask(ONE), ask(ONE, OK, TWO))
        assert [success(result).text for result in results] == ["first", "second"]
        assert lines(app).count("POST /threads") == 1
        said = [
            request.body["content"]
            for request in app.requests
            if "messages" in request.line and request.body
        ]
        assert said == ["one", "two"]

    def test_once_there_is_a_thread_there_is_no_second_try(self, talk, failure):
        busy = HttpAnswer(503, b'{"error": {"message": "busy"}}')
        error = failure(talk(AssistantsApp(answers={"POST /threads": busy}))[0])
        assert error.details["retryable"]
        app = AssistantsApp(answers={"GET /threads/thread_1/runs/run_1/steps": busy})
        assert not failure(talk(app)[0]).details["retryable"]
        assert lines(app)[-1] == "POST /threads/thread_1/runs/run_1/cancel"


class TestWhichAssistant:
    @pytest.mark.parametrize(
        ("context", "option", "expected"),
        [
            ({"assistant_id": "asst_ctx"}, "asst_opt", "asst_ctx"),
            (None, "asst_opt", "asst_opt"),
            ({}, None, "asst_env"),
        ],
    )
    def test_the_nearest_name_counts(self, talk, success, context, option, expected):
        app = AssistantsApp()
        options = {"assistantId": option} if option else {}
        request = AgentRequest("c", (ONE,), 20.0, context)
        assert success(talk(app, request, **options)[0]).warnings == ()
        assert app.requests[2].body == {"assistant_id": expected}

    def test_without_any_there_is_an_error(self, talk, failure):
        app = AssistantsApp()
        error = failure(talk(app, environ={"OPENAI_ASSISTANT_ID": ""})[0])
        assert error.code is ErrorCode.CONFIG_VALIDATION_ERROR
        assert "OPENAI_ASSISTANT_ID" in error.hint
        assert app.requests == []

    def test_what_is_not_sent_is_reported(self, talk, success):
        system = Message(Role.SYSTEM, "Be kind.")
        request = AgentRequest("c", (system, ONE), 20.0, {"plan": 1})
        first, second = success(talk(AssistantsApp(), request)[0]).warnings
        assert "system prompt" in first
        assert "assistant_id" in second


class TestCredentials:
    def test_another_server_gets_nothing_of_the_environment(self, talk, success, monkeypatch):
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Ours: secret")
        monkeypatch.setenv("OPENAI_ORG_ID", "org-ours")
        monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-ours")
        app = AssistantsApp()
        success(talk(app, configured=True)[0])
        for request in app.requests:
            assert not {"authorization", "x-ours", "openai-organization", "openai-project"} & set(
                request.headers
            )

    @pytest.mark.parametrize(
        ("key", "code", "said"),
        [
            ("", ErrorCode.PROVIDER_AUTH_ERROR, "OPENAI_API_KEY is not set"),
            ("sk-\x00", ErrorCode.CONFIG_VALIDATION_ERROR, "'Authorization' contains characters"),
        ],
    )
    def test_openai_wants_a_key(self, failure, key, code, said):
        target = AgentTarget("helper", "openai-assistant", "https://api.openai.com/v1")
        error = failure(make_agent(target, environ={"OPENAI_API_KEY": key}, root=Path()))
        assert error.code is code
        assert said in error.message

    def test_a_key_is_in_no_error(self, talk, failure):
        echo = HttpAnswer(401, json.dumps({"error": {"message": f"Bad key {KEY}"}}).encode())
        error = failure(talk(AssistantsApp(answers={"POST /threads": echo}))[0])
        assert error.code is ErrorCode.PROVIDER_AUTH_ERROR
        assert KEY not in repr(error)


class TestTools:
    def ask(self, tools):
        return AgentRequest("c", (ONE,), 20.0, None, tools)

    def test_functions_are_answered_by_the_test(self, talk, success):
        tools = Tools()
        second = {"id": "call_2", "name": "get_weather", "arguments": '{"city": "Rome"}'}
        app = AssistantsApp(ScriptedRun("sunny", asks=([WEATHER, second],)))
        reply = success(talk(app, self.ask(tools))[0])
        assert reply.text == "sunny"
        assert [call.arguments["city"] for call, _ in tools.calls] == ["Paris", "Rome"]
        assert [(u.call.id, u.rule) for u in reply.tool_uses] == [
            ("call_1", "defaultResponse"),
            ("call_2", "defaultResponse"),
        ]
        (submitted,) = [r.body for r in app.requests if r.line.endswith("submit_tool_outputs")]
        assert submitted["tool_outputs"][0] == {
            "tool_call_id": "call_1",
            "output": '{"sky": "blue"}',
        }

    def test_rounds_follow_one_another(self, talk, success):
        tools = Tools("late")
        second = {"id": "call_2", "name": "book", "arguments": "not JSON"}
        app = AssistantsApp(ScriptedRun(asks=([WEATHER], [second])))
        reply = success(talk(app, self.ask(tools))[0])
        assert [use.call.name for use in reply.tool_uses] == ["get_weather", "book"]
        assert tools.calls[1][0].malformed == "not JSON"

    def test_calls_of_other_tools_before_are_counted(self, talk, success):
        tools = Tools()
        step = own_step(5, "code_interpreter", input="1+1", outputs=[])
        fields = {"tools": [{"type": "code_interpreter"}, {"type": "function"}]}
        app = AssistantsApp(ScriptedRun(asks=([WEATHER],), steps=[step], fields=fields))
        reply = success(talk(app, self.ask(tools))[0])
        assert tools.calls[0][1] == 1
        assert [use.call.name for use in reply.tool_uses] == ["code_interpreter", "get_weather"]

    def test_without_simulations_there_is_an_error_and_the_run_is_cancelled(self, talk, failure):
        app = AssistantsApp(ScriptedRun(asks=([WEATHER],)))
        error = failure(talk(app)[0])
        assert "get_weather" in error.message
        assert "simulates no tools" in error.message
        assert "`mocks.tool_mocks`" in str(error.hint)
        assert not error.details["retryable"]
        assert lines(app)[-1] == "POST /threads/thread_1/runs/run_1/cancel"

    def test_tools_of_openai_are_read_in_the_order_of_time(self, talk, success):
        found = {"file_id": "f", "file_name": "a.md", "score": 0.5}
        logs = [{"type": "logs", "logs": "2"}, {"type": "logs", "logs": "3"}]
        steps = [
            own_step(7, "later_tool", x=1),
            own_step(6, "retrieval"),
            own_step(5, "code_interpreter", input="2", outputs=[{"type": "image", "image": {}}]),
            own_step(3, "file_search", results=[found]),
            own_step(2, "code_interpreter", input="1+1", outputs=logs),
        ]
        uses = success(talk(AssistantsApp(ScriptedRun(steps=steps)))[0]).tool_uses
        assert [(use.call.name, use.response) for use in uses] == [
            ("code_interpreter", logs),
            ("file_search", [found]),
            ("code_interpreter", [{"type": "image", "image": {}}]),
            ("retrieval", {}),
            ("later_tool", {"x": 1}),
        ]
        assert uses[0].call.arguments == {"input": "1+1"}

    def test_steps_of_one_second_keep_their_order(self, talk, success):
        steps = [own_step(9, "z"), own_step(3, "b"), own_step(3, "a")]
        uses = success(talk(AssistantsApp(ScriptedRun(steps=steps)))[0]).tool_uses
        assert [use.call.name for use in uses] == ["a", "b", "z"]


class TestRunsThatEnd:
    @pytest.mark.parametrize(
        ("status", "fields", "said"),
        [
            ("failed", {"code": "server_error", "message": "Sorry"}, "failed: Sorry"),
            ("failed", {"code": "rate_limit_exceeded"}, "failed: rate_limit_exceeded"),
            ("cancelled", None, "no explanation"),
            ("expired", None, "expired"),
        ],
    )
    def test_otherwise_than_completed_are_no_answer(self, talk, failure, status, fields, said):
        app = AssistantsApp(ScriptedRun("half", status=status, fields={"last_error": fields}))
        error = failure(talk(app)[0])
        expected = (ErrorCode.PROVIDER_API_ERROR, False)
        assert (error.code, error.details["retryable"]) == expected
        assert said in error.message
        assert not lines(app)[-1].endswith("/cancel")

    def test_incomplete_ones_say_why(self, talk, failure):
        fields = {"incomplete_details": {"reason": "max_completion_tokens"}}
        error = failure(talk(AssistantsApp(ScriptedRun(status="incomplete", fields=fields)))[0])
        assert "max_completion_tokens" in error.message

    def test_one_that_takes_too_long_is_cancelled(self, talk, failure):
        app = AssistantsApp(ScriptedRun(before=("in_progress",) * 1_000_000))
        is_asked = partial(has_asked, app)
        error = failure(talk(app, AgentRequest("c", (ONE,), 600), hangs=is_asked)[0])
        assert (error.code, error.details["retryable"]) == (ErrorCode.PROVIDER_TIMEOUT, False)
        assert lines(app)[-1].endswith("/cancel")

    def test_one_is_cancelled_with_its_conversation(self, make, ask):
        app = AssistantsApp(ScriptedRun(before=("in_progress",) * 1_000_000))

        async def run():
            async with listening(app.handle, "127.0.0.1", 0) as port:
                target = AgentTarget("helper", "openai-assistants", f"http://127.0.0.1:{port}")
                async with make(target, OPENAI_ASSISTANT_ID="a") as agent:
                    sending = asyncio.create_task(agent.send(ask()))
                    while not has_asked(app):
                        await asyncio.sleep(0)
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)

        asyncio.run(run())
        assert lines(app)[-1].endswith("/cancel")


class TestBrokenServers:
    @pytest.mark.parametrize(
        ("line", "answer", "code", "said"),
        [
            (
                "POST /threads",
                HttpAnswer(200, b"<p>"),
                ErrorCode.PROVIDER_API_ERROR,
                "not valid JSON",
            ),
            ("POST /threads", HttpAnswer(200, b'{"id": 5}'), ErrorCode.PROVIDER_API_ERROR, "`id`"),
            (
                "GET /threads/thread_1/runs/run_1",
                HttpAnswer(200, b'{"status": "dreaming"}'),
                ErrorCode.PROVIDER_API_ERROR,
                "dreaming",
            ),
            (
                "GET /threads/thread_1/runs/run_1/steps",
                HttpAnswer(200, b'{"data": 1}'),
                ErrorCode.PROVIDER_API_ERROR,
                "no `data`",
            ),
            (
                "GET /threads/thread_1/messages",
                HttpAnswer(200, b'{"data": [{"id": "m"}], "has_more": true}'),
                ErrorCode.PROVIDER_API_ERROR,
                "more than 100 entries",
            ),
        ],
    )
    def test_they_are_reported(self, talk, failure, line, answer, code, said):
        app = AssistantsApp(answers={line: answer})
        error = failure(talk(app)[0])
        assert error.code is code
        assert said in error.message

    def test_an_action_that_is_no_function_is_reported(self, talk, failure):
        run = {"id": "run_1", "status": "requires_action", "required_action": {"type": "x"}}
        answer = HttpAnswer(200, json.dumps(run).encode())
        app = AssistantsApp(answers={"GET /threads/thread_1/runs/run_1": answer})
        request = AgentRequest("c", (ONE,), 20.0, None, Tools())
        assert "not a function call" in failure(talk(app, request)[0]).message

    def test_steps_of_wrong_types_are_read_as_far_as_they_go(self, talk, success):
        steps = [
            {"id": 5, "created_at": "soon", "step_details": {"tool_calls": [{"type": 7}, "x"]}},
            {"step_details": None},
            {
                "step_details": {"tool_calls": [{"type": "function", "function": "x"}]},
                "last_error": {"message": "it broke"},
            },
        ]
        reply = success(talk(AssistantsApp(ScriptedRun(steps=steps, fields={"usage": "many"})))[0])
        # What is no object may be a call, and so may what a step has instead of calls.
        assert sorted(use.call.name for use in reply.tool_uses) == [*["unknown"] * 3, "x"]
        (named,) = (use for use in reply.tool_uses if use.call.name == "x")
        assert named.response == {"error": "it broke"}
        assert reply.usage == Usage()

    @pytest.mark.parametrize(
        ("step", "name"),
        [
            ({"type": "tool_calls", "step_details": {"tool_calls": {"0": {}}}}, "unknown"),
            ({"type": "tool_calls", "step_details": {}}, "unknown"),
            ({"type": "tool_calls", "step_details": None}, "unknown"),
            (
                {"step_details": {"tool_calls": [{"type": "Function", "function": WEATHER}]}},
                "get_weather",
            ),
            ({"step_details": {"tool_calls": [{"type": "function", "function": None}]}}, "unknown"),
            ({"step_details": {"type": "message_creation"}}, None),
            ({"type": "message_creation", "step_details": {"message_creation": {}}}, None),
        ],
    )
    def test_steps_that_may_have_calls_have_one(self, talk, success, step, name):
        reply = success(talk(AssistantsApp(ScriptedRun(steps=[step])))[0])
        assert [use.call.name for use in reply.tool_uses] == ([] if name is None else [name])

    def test_a_list_of_anything_else_is_no_answer(self, talk, failure):
        line = "GET /threads/thread_1/runs/run_1/steps"
        app = AssistantsApp(answers={line: HttpAnswer(200, b'{"data": ["refund"]}')})
        assert "not an object" in failure(talk(app)[0]).message
