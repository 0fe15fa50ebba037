"""smolagents: agents that call tools, agents that write code, agents with agents below them."""

from __future__ import annotations

import threading
from typing import ClassVar

import pytest
from framework_shop import Talk, check_lookup, line_of, lookup_order

NEEDS = ("smolagents",)

pytestmark = pytest.mark.filterwarnings("ignore")  # what frameworks warn of themselves

# smolagents writes calls and results down as text, and takes its answer from a tool.
_TASK = {"matches": r"New task:\s[^\n]*(?P<order>A\d|LOST)[^\n]*$"}
_RESULT = {"matches": r"Observation:[\s\S]*'order': '(?P<order>A\d)', 'state': '(?P<state>\w+)'"}


def _calls(name, **arguments):
    return {"toolCalls": [{"name": name, "arguments": arguments}]}


_SCRIPT = {
    "rules": [
        {"when": {"user": _TASK}, "reply": _calls("lookup_order", order="{{order}}")},
        {"when": {"user": _RESULT}, "reply": _calls("final_answer", answer="{{order}}: {{state}}")},
        {"reply": _calls("final_answer", answer="Sorry.")},
    ]
}


@pytest.fixture
def server(server):
    server.use_script(_SCRIPT)
    return server


def _tool():
    from smolagents import Tool

    class Lookup(Tool):
        name = "lookup_order"
        description = "The state of an order"
        inputs: ClassVar = {"order": {"type": "string", "description": "Its number"}}
        output_type = "object"

        def forward(self, order):
            return lookup_order(order)

    return Lookup()


def _agent(kind=None, **more):
    import smolagents

    model = smolagents.OpenAIServerModel("gpt-5-mini")
    options = {"tools": [_tool()], "model": model, "verbosity_level": 0, **more}
    return (kind or smolagents.ToolCallingAgent)(**options)


def test_an_agent_remembers(server):
    agent = _agent()
    first, second = Talk(agent).say("Where is A1?", "And A2?")
    assert (first.text, second.text) == ("A1: shipped", "A2: shipped")
    check_lookup(first, "A1")
    assert first.tool_uses[0].response == {"order": "A1", "state": "shipped"}
    assert first.model == "gpt-5-mini"
    check_lookup(second, "A2")
    assert "A1" in str(server.requests[-1].body)
    assert agent.memory.steps == []  # others may talk to it


def test_a_tool_that_fails_was_called(server):
    (reply,) = Talk(_agent()).say("Where is LOST?")
    (use,) = reply.tool_uses
    assert use.call.arguments == {"order": "LOST"}
    assert use.response == {"error": "KeyError: 'LOST'"}
    assert reply.text == "Sorry."


def test_a_call_to_a_tool_that_is_not_there_counts(server):
    rules = [{"when": {"user": "Unknown tool"}, "reply": _calls("final_answer", answer="No.")}]
    server.use_script({"rules": [*rules, {"reply": _calls("refund", order="A1")}]})
    (reply,) = Talk(_agent()).say("A refund!")
    assert [use.call.name for use in reply.tool_uses] == ["refund"]


def test_what_it_raises_shows_the_line_of_the_user(server):
    error = Talk(_agent(step_callbacks=[lambda step: lookup_order("LOST")])).fail("Where is A1?")
    assert "KeyError: 'LOST'" in error.message
    assert f"framework_shop.py:{line_of('raise KeyError(order)')})" in error.message


def test_a_function_may_return_a_result_or_yield_steps(server):
    def result(text):
        return _agent().run(text, return_full_result=True)

    def steps(text):
        yield from _agent().run(text, stream=True)

    for function in (result, steps):
        (reply,) = Talk(function).say("Where is A1?")
        assert reply.text == "A1: shipped"
        check_lookup(reply, "A1")

    def last(text):
        yield list(steps(text))[-1]

    (reply,) = Talk(last).say("Where is A1?")
    assert (reply.text, reply.tool_uses, reply.reports_tools) == ("A1: shipped", (), None)


def test_tools_that_code_calls_are_seen(server):
    code = "<code>\nfinal_answer(lookup_order('A1')['state'])\n</code>"
    server.use_script({"rules": [{"reply": {"text": code}}]})
    from smolagents import CodeAgent

    agent = _agent(CodeAgent)
    (reply,) = Talk(agent).say("Where is A1?")
    assert (reply.text, reply.unseen) == ("shipped", None)
    check_lookup(reply, "A1")
    # The result alone does not show them.
    (reply,) = Talk(lambda text: agent.run(text, return_full_result=True)).say("Where is A1?")
    assert reply.tool_uses == ()
    assert "calls tools from code" in (reply.unseen or "")


def test_tools_of_agents_that_are_managed_are_seen(server):
    below = _agent(name="desk", description="Knows orders")
    rules = [
        {"when": {"user": "Which order"}, "reply": _calls("desk", task="A1")},
        {"when": {"user": "named 'desk'"}, "reply": _calls("lookup_order", order="A1")},
        {
            "when": {"user": "from your managed agent"},
            "reply": _calls("final_answer", answer="Yes."),
        },
    ]
    server.use_script({"rules": [*rules, *_SCRIPT["rules"]]})
    agent = _agent(tools=[], managed_agents=[below])
    (reply,) = Talk(agent).say("Which order?")
    assert (reply.text, reply.unseen) == ("Yes.", None)
    assert [use.call.name for use in reply.tool_uses] == ["desk", "lookup_order"]
    assert reply.usage.input_tokens is None
    # The result alone does not show the call of the agent below.
    (reply,) = Talk(lambda text: agent.run(text, return_full_result=True)).say("Which order?")
    assert [use.call.name for use in reply.tool_uses] == ["desk"]
    assert "managed agent" in (reply.unseen or "")


def test_the_system_text_is_passed_on(server):
    (reply,) = Talk(_agent(), system="Be short.").say("Hello")
    assert (reply.warnings, "Be short." in str(server.requests[0].body)) == ((), True)


def test_a_run_that_takes_too_long_takes_no_further_step(server):
    from smolagents import ToolCallingAgent

    ended = threading.Event()

    class Agent(ToolCallingAgent):
        def run(self, *args, **kwargs):
            try:
                return super().run(*args, **kwargs)
            finally:
                ended.set()

    late = {
        "when": {"user": _TASK},
        "reply": {**_calls("lookup_order", order="A1"), "delayMs": 500},
    }
    server.use_script({"rules": [late, *_SCRIPT["rules"]]})
    Talk(_agent(Agent)).fail("Where is A1?", timeout_s=0.2)
    assert ended.wait(20)
    assert len(server.requests) <= 1
