"""AutoGen's AgentChat: agents, teams, what they return and stream."""

from __future__ import annotations

import json

import framework_shop
import pytest
from framework_shop import Talk, check_lookup, line_of

NEEDS = ("autogen_agentchat", "autogen_ext.models.openai")

pytestmark = pytest.mark.filterwarnings("ignore")  # what frameworks warn of themselves


def lookup_order(order: str) -> str:
    """Return the state of an order."""
    return json.dumps(framework_shop.lookup_order(order))


def _agent(**more):
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    client = OpenAIChatCompletionClient(model="gpt-4o-2024-08-06")
    return AssistantAgent("desk", client, tools=[lookup_order], reflect_on_tool_use=True, **more)


def test_an_agent_remembers(server):
    first, second = Talk(_agent()).say("Where is A1?", "And A2?")
    assert first.text == "A1 is shipped."
    check_lookup(first, "A1")
    assert first.model == "gpt-4o-2024-08-06"
    assert second.text == "A2 too: shipped."
    check_lookup(second, "A2")


def test_conversations_share_an_agent_and_not_what_was_said(server):
    agent = _agent()
    for _ in range(2):
        (reply,) = Talk(agent).say("And A2?")
        assert reply.text == "A2 is shipped."
        (reply,) = Talk(agent).say("Where is A1?")
        assert reply.text == "A1 is shipped."


def test_a_team_is_an_agent(server):
    from autogen_agentchat.conditions import MaxMessageTermination
    from autogen_agentchat.teams import RoundRobinGroupChat

    team = RoundRobinGroupChat([_agent()], termination_condition=MaxMessageTermination(2))
    first, second = Talk(team).say("Where is A1?", "And A2?")
    check_lookup(first, "A1")
    check_lookup(second, "A2")
    assert second.text == "A2 too: shipped."


def test_a_tool_that_fails_was_called(server):
    (reply,) = Talk(_agent()).say("Where is LOST?")
    (use,) = reply.tool_uses
    assert use.response == {"error": "'LOST'"}


def test_what_it_raises_shows_the_line_of_the_user(server):
    from autogen_agentchat.agents import BaseChatAgent
    from autogen_agentchat.messages import TextMessage

    class Broken(BaseChatAgent):
        produced_message_types = (TextMessage,)

        async def on_messages(self, messages, cancellation_token):
            framework_shop.lookup_order("LOST")

        async def on_reset(self, cancellation_token):
            """Do nothing."""

    error = Talk(Broken("desk", "broken")).fail("Where is A1?")
    assert "KeyError: 'LOST'" in error.message
    assert f"framework_shop.py:{line_of('raise KeyError(order)')})" in error.message


def test_a_function_may_return_a_result_or_yield_messages(server):
    async def result(text):
        return await _agent().run(task=text)

    async def messages(text):
        async for message in _agent(model_client_stream=True).run_stream(task=text):
            yield message

    for function in (result, messages):
        (reply,) = Talk(function).say("Where is A1?")
        assert reply.text == "A1 is shipped."
        check_lookup(reply, "A1", has_usage=function is result)
    # A streamed answer comes without tokens: they are unknown, and not 0.
    assert reply.usage.input_tokens is None


@pytest.mark.parametrize("kept", ["TextMessage", "TextMessage TaskResult"])
def test_messages_that_a_function_leaves_out_are_no_proof_of_no_calls(server, kept):
    async def some(text):
        async for message in _agent().run_stream(task=text):
            if type(message).__name__ in kept:
                yield message

    (reply,) = Talk(some).say("Where is A1?")
    assert reply.text == "A1 is shipped."
    assert bool(reply.tool_uses) == bool(reply.reports_tools) == ("TaskResult" in kept)


def test_a_summary_that_a_function_returns_alone_has_calls(server):
    async def summary(text):
        agent = _agent()
        agent._reflect_on_tool_use = False
        return (await agent.run(task=text)).messages[-1:]

    (reply,) = Talk(summary).say("Where is A1?")
    (use,) = reply.tool_uses
    assert (use.call.name, use.call.arguments) == ("lookup_order", {"order": "A1"})


def test_a_system_text_that_is_not_passed_on_has_a_warning(server):
    (reply,) = Talk(_agent(), system="Be short.").say("Hello")
    assert "the system prompt was not sent" in reply.warnings[0]


def test_tools_of_an_agent_that_is_a_tool_are_seen(server):
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.tools import AgentTool
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    ask = {"toolCalls": [{"name": "desk", "arguments": {"task": "A1"}}]}
    asks = {"when": {"offered": "desk", "notCalled": "desk"}, "reply": ask}
    server.use_script({"rules": [asks, *framework_shop.SCRIPT["rules"]]})
    client = OpenAIChatCompletionClient(model="gpt-4o-2024-08-06", parallel_tool_calls=False)
    front = AssistantAgent("front", client, tools=[AgentTool(_agent(description="Orders"))])
    (reply,) = Talk(front).say("Where is my order?")
    assert [use.call.name for use in reply.tool_uses] == ["desk", "lookup_order"]
