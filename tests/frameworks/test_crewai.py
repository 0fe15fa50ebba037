"""CrewAI: crews, agents, and what they return.

CrewAI needs too much for every machine: tests of it run where it is installed. See
docs/explanation/inside-parts.md.
"""

from __future__ import annotations

import asyncio
import json
import os

import framework_shop
import pytest
from framework_shop import LOOP, Talk, check_lookup, line_of

# CrewAI asks nobody, and tells nobody; it reads these when it is imported.
os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}

NEEDS = ("crewai",)

pytestmark = pytest.mark.filterwarnings("ignore")  # what frameworks warn of themselves


def _agent(**more):
    from crewai import LLM, Agent
    from crewai.tools import tool

    @tool("lookup_order")
    def lookup_order(order: str) -> str:
        """Return the state of an order."""
        return json.dumps(framework_shop.lookup_order(order))

    texts = {"role": "Support", "goal": "Help customers", "backstory": "You know orders."}
    options = {"llm": LLM("gpt-4o"), "tools": [lookup_order], "max_iter": 4, **more}
    return Agent(**texts, **options)


def _crew(description="{question} Before: {conversation_history}", **more):
    from crewai import Crew, Task

    agent = _agent()
    task = Task(description=description, expected_output="One sentence", agent=agent, **more)
    return Crew(agents=[agent], tasks=[task])


def test_a_crew_gets_the_message_and_what_was_said(server):
    crew = _crew()
    for _ in range(2):  # CrewAI adds up the tokens of both; kindlm does not
        first, second = Talk(crew).say("Where is A1?", "And A2?")
        assert first.text == "A1 is shipped."
        check_lookup(first, "A1")
        assert first.model == "gpt-4o"
        assert (first.usage.input_tokens or 0) < 700
        check_lookup(second, "A2")
        assert "A1 is shipped." in str(server.requests[-1].body)


def test_an_agent_remembers(server):
    first, second = Talk(_agent()).say("Where is A1?", "And A2?")
    assert first.text == "A1 is shipped."
    check_lookup(first, "A1")
    assert second.text == "A2 too: shipped."
    check_lookup(second, "A2")


def test_conversations_at_the_same_time_keep_their_calls_and_tokens(server):
    crew = _crew()
    orders = [f"A{number}" for number in range(4)]

    async def run():
        talks = (Talk(crew).answers(f"Where is {order}?") for order in orders)
        return await asyncio.gather(*talks)

    for order, (reply,) in zip(orders, LOOP.run(run()), strict=True):
        check_lookup(reply, order)


def test_a_crew_may_stream(server):
    crew = _crew()
    crew.stream = True
    (reply,) = Talk(crew).say("Where is A1?")
    assert reply.text == "A1 is shipped."
    check_lookup(reply, "A1")


def test_a_tool_that_fails_was_called(server):
    (reply,) = Talk(_agent()).say("Where is LOST?")
    (use,) = reply.tool_uses
    assert use.response == {"error": "'LOST'"}


def test_what_it_raises_shows_the_line_of_the_user(server):
    crew = _crew(callback=lambda output: framework_shop.lookup_order("LOST"))
    error = Talk(crew).fail("Where is A1?")
    assert "KeyError: 'LOST'" in error.message
    assert f"framework_shop.py:{line_of('raise KeyError(order)')})" in error.message


def test_a_function_may_return_a_result(server):
    def of_crew(text):
        return _crew().kickoff({"question": text, "conversation_history": ""})

    def of_agent(text):
        return _agent().kickoff(text)

    for function in (of_crew, of_agent):
        (reply,) = Talk(function).say("Where is A1?")
        assert reply.text == "A1 is shipped."
        check_lookup(reply, "A1", has_usage=function is of_agent)


def test_calls_in_the_words_of_react_are_seen():
    from crewai import BaseLLM

    class Played(BaseLLM):
        def call(self, messages, *args, **kwargs):
            if "shipped" in str(messages):
                return "Thought: I know it.\nFinal Answer: It is shipped."
            return 'Thought: I look.\nAction: lookup_order\nAction Input: {"order": "A1"}'

        def supports_function_calling(self):
            return False

    (reply,) = Talk(_agent(llm=Played(model="played"))).say("Where is A1?")
    assert reply.text == "It is shipped."
    check_lookup(reply, "A1", has_usage=False)
