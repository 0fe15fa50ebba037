"""Google's Agent Development Kit: agents, runners, events."""

from __future__ import annotations

import pytest
from framework_shop import SCRIPT, Talk, check_lookup, line_of, lookup_order

NEEDS = ("google.adk",)

pytestmark = pytest.mark.filterwarnings("ignore")  # what frameworks warn of themselves


@pytest.fixture
def server(server, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    return server


def _agent(**more):
    from google.adk.agents import LlmAgent
    from google.adk.models.anthropic_llm import AnthropicLlm

    model = AnthropicLlm(model="claude-haiku-4-5")
    return LlmAgent(**{"name": "desk", "model": model, "tools": [lookup_order], **more})


def test_an_agent_remembers(server):
    first, second = Talk(_agent()).say("Where is A1?", "And A2?")
    assert first.text == "A1 is shipped."
    check_lookup(first, "A1")
    assert first.tool_uses[0].response == {"order": "A1", "state": "shipped"}
    assert first.model == "claude-haiku-4-5"
    assert second.text == "A2 too: shipped."
    check_lookup(second, "A2")


def test_what_a_tool_raises_shows_the_line_of_the_tool(server):
    error = Talk(_agent()).fail("Where is LOST?")
    assert "KeyError: 'LOST'" in error.message
    assert f"framework_shop.py:{line_of('raise KeyError(order)')})" in error.message


def test_a_function_may_yield_events_streamed_or_not(server):
    from google.adk.agents.run_config import RunConfig, StreamingMode
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    async def events(text, mode):
        runner = InMemoryRunner(_agent())
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
        message = types.Content(role="user", parts=[types.Part(text=text)])
        config = RunConfig(streaming_mode=mode)
        async for event in runner.run_async(
            user_id="u", session_id=session.id, new_message=message, run_config=config
        ):
            yield event

    for mode in (StreamingMode.NONE, StreamingMode.SSE):

        async def function(text, mode=mode):
            async for event in events(text, mode):
                yield event

        (reply,) = Talk(function).say("Where is A1?")
        assert reply.text == "A1 is shipped."
        check_lookup(reply, "A1")

    async def last(text):
        return [each async for each in events(text, StreamingMode.NONE)][-1]

    (reply,) = Talk(last).say("Where is A1?")
    assert (reply.text, reply.tool_uses, reply.reports_tools) == ("A1 is shipped.", (), None)


def test_an_agent_that_waits_for_a_confirmation_has_a_warning(server):
    from google.adk.tools import FunctionTool

    asks = FunctionTool(lookup_order, require_confirmation=True)
    (reply,) = Talk(_agent(tools=[asks])).say("Where is A1?")
    assert "waits for a confirmation" in reply.warnings[0]


def _ask(server, **arguments):
    asks = {"toolCalls": [{"name": "desk", "arguments": arguments}]}
    rule = {"when": {"offered": "desk", "notCalled": "desk"}, "reply": asks}
    says = {"when": {"offered": "desk"}, "reply": {"text": "It is shipped."}}
    server.use_script({"rules": [rule, says, *SCRIPT["rules"]]})


def test_tools_of_an_agent_that_is_a_tool_are_seen(server):
    from google.adk.runners import InMemoryRunner
    from google.adk.tools.agent_tool import AgentTool
    from google.adk.workflow import Workflow

    _ask(server, request="Where is A1?")
    agent = _agent(name="front", tools=[AgentTool(_agent())])
    below = Workflow(name="below", edges=[("START", agent)])
    for asked in (agent, below, InMemoryRunner(agent, app_name="shop")):
        (reply,) = Talk(asked).say("Where is A1?")
        assert [use.call.name for use in reply.tool_uses] == ["desk", "lookup_order"]
        assert "shipped" in str(reply.tool_uses[1].response)
        assert (reply.text, reply.unseen) == ("It is shipped.", None)


def test_what_an_agent_without_plugins_does_as_a_tool_is_unseen(server):
    from google.adk.tools.agent_tool import AgentTool

    agent = _agent(name="front", tools=[AgentTool(_agent(), include_plugins=False)])
    assert Talk(agent).say("Hello")[0].unseen is None
    _ask(server, request="A1")
    (reply,) = Talk(agent).say("Which order?")
    assert [use.call.name for use in reply.tool_uses] == ["desk"]
    assert "one agent was used as a tool" in (reply.unseen or "")


def test_what_an_agent_does_as_a_tool_is_not_in_the_events_of_a_function(server):
    from google.adk.runners import InMemoryRunner
    from google.adk.tools.agent_tool import AgentTool

    agent = _agent(name="front", tools=[AgentTool(_agent())])

    async def events(text):
        return await InMemoryRunner(agent).run_debug(text, quiet=True)

    _ask(server, request="A1")
    (reply,) = Talk(events).say("Which order?")
    assert [use.call.name for use in reply.tool_uses] == ["desk"]
    assert "an agent used as a tool" in (reply.unseen or "")


def test_tools_of_agents_below_are_seen(server):
    hand_over = {"toolCalls": [{"name": "transfer_to_agent", "arguments": {"agent_name": "desk"}}]}
    rule = {"when": {"notOffered": "lookup_order"}, "reply": hand_over}
    server.use_script({"rules": [rule, *SCRIPT["rules"]]})
    (reply,) = Talk(_agent(name="front", tools=[], sub_agents=[_agent()])).say("Where is A1?")
    assert [use.call.name for use in reply.tool_uses] == ["transfer_to_agent", "lookup_order"]
    assert (reply.text, reply.unseen) == ("A1 is shipped.", None)


def test_cached_tokens_are_known_as_cached():
    from google.adk.events import Event
    from google.genai import types

    async def event(_text):
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=100, cached_content_token_count=80, candidates_token_count=7
        )
        content = types.Content(role="model", parts=[types.Part(text="Shipped.")])
        return Event(author="desk", content=content, usage_metadata=usage)

    (reply,) = Talk(event).say("Where is A1?")
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (100, 7)
    assert reply.usage.extras is not None
    assert reply.usage.extras.cache_read == 80
