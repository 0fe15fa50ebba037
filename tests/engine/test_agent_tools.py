"""What goes to an agent besides the message, and tools that the test runs for it."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import closing

import pytest

from kindlm.errors import Err, ErrorCode, Ok
from kindlm.history.recorded_attempts import RecordedAttempt, transcript_of
from kindlm.outcome import Status
from kindlm.ports import AgentReply
from kindlm.suite import AgentTarget, Fault, SimulatedTool, ToolAnswer
from kindlm.transcript import ToolCall, ToolProblem, ToolProblemKind, ToolUse

AGENT = AgentTarget("shop", "http", "http://127.0.0.1:1/chat")
CODE = ToolUse(ToolCall("c1", "code_interpreter", {"input": "1+1"}), "2", "agent")


class ScriptedAgent:
    """Does with each request what a test says; the last of it stays."""

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.requests = []
        self.open = 0

    async def __aenter__(self):
        self.open += 1
        return self

    async def __aexit__(self, *exception):
        self.open -= 1

    async def send(self, request):
        self.requests.append(request)
        script = self.scripts[min(len(self.requests), len(self.scripts)) - 1]
        return await script(request)


def says(text, *uses):
    async def script(request):
        return Ok(AgentReply(text, "{}", 1.0, tool_uses=uses))

    return script


@pytest.fixture
def talk(bench, make):
    """Run a case with an agent that follows scripts; return how it finished, and the agent."""

    def talk(*scripts, agent=AGENT, suite=None, **case):
        bench.agent = ScriptedAgent(*scripts)
        fields = {"agents": {"shop": agent}, **(suite or {})}
        return bench.execute(make.case(targets=("shop",), **case), **fields), bench.agent

    return talk


@pytest.fixture
def rows(bench):
    """Return the rows of tool calls, in order."""

    def rows():
        bench.log.flush().result()
        with closing(bench.log.reader()) as reader:
            found = reader.execute(
                "SELECT position, call, tool, rule FROM tool_calls ORDER BY position"
            )
            return [tuple(row) for row in found]

    return rows


class TestContexts:
    def test_each_message_takes_its_own_and_the_record_has_them(self, bench, talk):
        contexts = ({"user": 7}, None, {"a": [1]})
        _, agent = talk(says("ok"), follow_ups=("two", "three", "four"), contexts=contexts)
        assert [request.context for request in agent.requests] == [*contexts, None]
        sent = bench.events("agent.sent")
        recorded = [
            event.data.get("context") and bench.json(event.data["context"]) for event in sent
        ]
        assert recorded == [{"user": 7}, None, {"a": [1]}, None]

    def test_a_case_has_an_agent_of_its_own(self, bench, make):
        bench.agent = ScriptedAgent(says("ok"))
        case = make.case(targets=("http",), agent=AgentTarget("http", "http", "http://127.0.0.1:1"))
        assert bench.execute(case).status is Status.PASSED
        (sent,) = bench.events("agent.sent")
        assert (sent.data["agent"], sent.data["adapter"]) == ("http", "http")


class TestTimeouts:
    @pytest.mark.parametrize(("own", "expected"), [(None, 60.0), (1500, 1.5)])
    def test_an_agents_own_counts_before_that_of_the_suite(self, talk, own, expected):
        agent = AgentTarget("shop", "http", "http://127.0.0.1:1", timeout_ms=own)
        _, asked = talk(says("ok"), agent=agent)
        assert asked.requests[0].timeout_s == expected


class TestVerbose:
    def lines(self, caplog):
        logged = [record for record in caplog.records if hasattr(record, "fields")]
        return [record.fields["body"] for record in logged if "body" in record.fields]

    def test_what_is_said_is_logged_and_bounded(self, talk, caplog):
        caplog.set_level(logging.INFO, "kindlm")
        agent = AgentTarget("shop", "http", "http://127.0.0.1:1", verbose=True)

        async def long(request):
            return Ok(AgentReply("x", "y" * 5000, 1.0))

        talk(long, agent=agent, contexts=({"user": 7},))
        assert self.lines(caplog) == ['Hello {"user": 7}', "y" * 2000]

    def test_nothing_is_logged_unasked(self, talk, caplog):
        caplog.set_level(logging.DEBUG, "kindlm")
        talk(says("ok"))
        assert self.lines(caplog) == []

    def test_what_may_hold_personal_data_is_not_logged_where_that_is_hidden(self, talk, caplog):
        caplog.set_level(logging.INFO, "kindlm")
        agent = AgentTarget("shop", "http", "http://127.0.0.1:1", verbose=True)
        talk(says("ok"), agent=agent, suite={"redact_pii": True})
        assert set(self.lines(caplog)) == {"[not shown: record.redactPii]"}


def weather(city, call_id="f1"):
    return ToolCall(call_id, "get_weather", {"city": city})


def asks(*calls, own=0, text="done", reports=()):
    """Have tools run one after another, and say what they answered."""

    async def script(request):
        answered = [await request.answer_tool(call, own) for call in calls]
        uses = (*reports, *(one.use for one in answered))
        return Ok(AgentReply(text, "{}", 1.0, tool_uses=uses))

    return script


TOOL = SimulatedTool("get_weather", default={"sky": "blue"}, has_default=True)


class TestSimulatedTools:
    def test_without_any_there_is_no_agent_to_answer(self, talk):
        _, agent = talk(says("ok"))
        assert agent.requests[0].answer_tool is None

    def test_a_call_is_recorded_when_it_happens_and_is_there_once(self, bench, talk, rows):
        finished, _ = talk(asks(weather("Oslo")), tools=(TOOL,))
        assert finished.status is Status.PASSED
        types = [event.type for event in bench.events()]
        assert types.index("tool.called") < types.index("tool.simulated")
        assert types.index("tool.simulated") < types.index("agent.replied")
        assert rows() == [(0, 1, "get_weather", "defaultResponse")]

    def test_the_agents_own_calls_keep_their_places_among_them(self, talk, rows):
        script = asks(weather("Oslo"), weather("Bonn", "f2"), own=1, reports=(CODE,))
        talk(script, tools=(TOOL,))
        assert rows() == [
            (0, 1, "code_interpreter", "agent"),
            (1, 1, "get_weather", "defaultResponse"),
            (2, 1, "get_weather", "defaultResponse"),
        ]

    def test_calls_count_on_over_the_turns(self, talk, rows):
        one = asks(weather("Oslo"))
        talk(one, says("mine", CODE), one, tools=(TOOL,), follow_ups=("two", "three"))
        assert [(position, call) for position, call, *_ in rows()] == [(0, 1), (1, 2), (2, 3)]

    def test_an_agent_that_forgets_what_it_asked_for_does_not_lose_it(self, bench, talk, rows):
        async def forgets(request):
            await request.answer_tool(weather("Oslo"), 0)
            return Ok(AgentReply("done", "{}", 1.0, tool_uses=(CODE,)))

        talk(forgets, tools=(TOOL,))
        assert [row[2] for row in rows()] == ["get_weather", "code_interpreter"]
        (replied,) = bench.events("agent.replied")
        assert [call["name"] for call in replied.data["tool_calls"]] == [row[2] for row in rows()]

    def test_the_recorded_conversation_is_the_one_that_was_held(self, bench, talk):
        talk(asks(weather("Oslo"), own=1, reports=(CODE,)), tools=(TOOL,))
        bench.log.flush().result()
        recorded = RecordedAttempt(bench.log.reader(), "r-1", 1)
        uses = transcript_of(recorded.talk()).tool_uses
        assert [(use.call.name, use.rule) for use in uses] == [
            ("code_interpreter", "agent"),
            ("get_weather", "defaultResponse"),
        ]
        assert uses[1].response == {"sky": "blue"}

    def test_an_answer_to_give_again_says_what_was_simulated_then(self, bench, talk):
        unmatched = SimulatedTool("get_weather", answers=(ToolAnswer({"city": "Rome"}, 1),))
        talk(asks(weather("Oslo"), own=1, reports=(CODE,)), tools=(unmatched,))
        bench.log.flush().result()
        recorded = RecordedAttempt(bench.log.reader(), "r-1", 1)
        again = recorded.answer(1).value.step()
        assert [use.rule for use in again.tool_uses] == ["agent", "no response"]
        assert [problem.kind for problem in again.tool_uses[1].problems] == ["unmatched"]

    def test_what_was_simulated_in_an_earlier_run_is_recorded_as_such(self, bench, talk, rows):
        problem = ToolProblem(ToolProblemKind.UNMATCHED, "no response")
        then = ToolUse(weather("Oslo"), {"error": "no"}, "no response", (problem,))
        talk(says("done", then))
        assert rows() == [(0, 1, "get_weather", "no response")]
        recorded = RecordedAttempt(bench.log.reader(), "r-1", 1)
        assert transcript_of(recorded.talk()).tool_uses == (then,)

    def test_calls_at_once_are_answered_in_order_and_take_as_long_as_the_slowest(self, bench, talk):
        slow = ToolAnswer(when={"city": "Oslo"}, then="late", delay_ms=1500)
        quick = ToolAnswer(then="soon", delay_ms=100)

        async def at_once(request):
            calls = (weather("Oslo"), weather("Bonn", "f2"))
            answered = await asyncio.gather(*(request.answer_tool(call, 0) for call in calls))
            assert [json.loads(one.text) if one.text[0] in "{[" else one.text for one in answered]
            return Ok(AgentReply("x", "", 1.0, tool_uses=tuple(one.use for one in answered)))

        talk(at_once, tools=(SimulatedTool("get_weather", answers=(slow, quick)),))
        assert [bench.json(e.data["arguments"])["city"] for e in bench.events("tool.called")] == [
            "Oslo",
            "Bonn",
        ]
        assert bench.clock.slept == [1.5, 0.1]

    def test_a_malformed_answer_reaches_the_agent_as_it_is(self, talk):
        texts = []

        async def script(request):
            texts.append((await request.answer_tool(weather("Oslo"), 0)).text)
            return Ok(AgentReply("x", "", 1.0))

        broken = SimulatedTool("get_weather", answers=(ToolAnswer(fault=Fault.MALFORMED),))
        talk(script, tools=(broken,))
        with pytest.raises(ValueError, match=r"."):
            json.loads(texts[0])

    def test_nothing_is_tried_again_after_a_tool_answered(self, bench, make, talk, rows):
        async def breaks(request):
            await request.answer_tool(weather("Oslo"), 0)
            return Err(make.failure(ErrorCode.PROVIDER_NETWORK_ERROR, retryable=True))

        finished, agent = talk(breaks, tools=(TOOL,))
        assert finished.status is Status.ERRORED
        assert len(agent.requests) == 1
        assert rows() == [(0, 1, "get_weather", "defaultResponse")]


def test_a_server_that_an_agent_called_by_a_tool_is_closed_with_the_conversation(talk) -> None:
    async def calls(request):
        if request.conversation != "mcp":
            answered = await request.answer_tool(ToolCall("c1", "look", {}), 0)
            return Ok(AgentReply("Done", "{}", 1.0, tool_uses=(answered.use,)))
        return Ok(AgentReply("", tool_uses=(ToolUse(ToolCall("c1", "look", {}), "found"),)))

    servers = {"shop": AGENT, "mcp": AgentTarget("mcp", "mcp", "http://127.0.0.1:2")}
    tool = SimulatedTool("look", server="mcp")
    finished, agent = talk(calls, tools=(tool,), suite={"agents": servers})
    assert finished.status is Status.PASSED
    assert [request.conversation for request in agent.requests][1:] == ["mcp"]
    assert agent.open == 0
