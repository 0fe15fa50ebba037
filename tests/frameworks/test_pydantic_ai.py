"""Pydantic AI: agents, results and events."""

from __future__ import annotations

import pytest
from framework_shop import SCRIPT, Talk, check_lookup, line_of, lookup_order
from frameworks import need
from pydantic import BaseModel

from kindlm.transcript import Usage

RunContext = need("pydantic_ai").RunContext


def _agent(**more):
    from pydantic_ai import Agent

    return Agent(**{"model": "openai-chat:gpt-5-mini", "tools": [lookup_order], **more})


def test_an_agent_remembers(server):
    first, second = Talk(_agent()).say("Where is A1?", "And A2?")
    assert first.text == "A1 is shipped."
    check_lookup(first, "A1")
    assert first.tool_uses[0].response == {"order": "A1", "state": "shipped"}
    assert first.model == "gpt-5-mini"
    assert second.text == "A2 too: shipped."
    check_lookup(second, "A2")


def test_the_tokens_of_two_models_are_not_priced_as_those_of_the_last(server):
    from pydantic_ai.messages import ModelResponse, TextPart

    def answers(*names):
        return [ModelResponse([TextPart("Hi")], model_name=name) for name in names]

    for names, model in ((("a", "a"), "a"), (("a", "b"), None), (("a", None), "a")):
        (reply,) = Talk(lambda text, names=names: answers(*names)).say("Hello")
        # A model that reports no tokens did not use none.
        assert (reply.text, reply.model, reply.usage) == ("Hi", model, Usage())


def test_an_agent_without_a_tool_call_reports_that_there_was_none(server):
    (reply,) = Talk(_agent()).say("Hello")
    assert (reply.text, reply.tool_uses, reply.reports_tools) == ("How can I help?", (), True)


def test_what_a_tool_raises_shows_the_line_of_the_tool(server):
    error = Talk(_agent()).fail("Where is LOST?")
    assert "KeyError: 'LOST'" in error.message
    assert f"framework_shop.py:{line_of('raise KeyError(order)')})" in error.message


def test_a_function_may_return_or_yield_what_a_run_gives(server):
    agent = _agent()

    async def result(text):
        return await agent.run(text)

    async def messages(text):
        return (await agent.run(text)).new_messages()

    async def events(text):
        async with agent.run_stream_events(text) as stream:
            async for event in stream:
                yield event

    async def pieces(text):
        async with agent.run_stream(text) as result:
            async for piece in result.stream_text(delta=True):
                yield piece

    for function in (result, events):
        (reply,) = Talk(function).say("Where is A1?")
        check_lookup(reply, "A1", has_usage=function is result)
    (reply,) = Talk(messages).say("Where is A1?")
    assert reply.text == "A1 is shipped."
    assert [use.call.name for use in reply.tool_uses] == ["lookup_order"]
    (reply,) = Talk(pieces).say("Where is A1?")
    assert (reply.text, reply.reports_tools) == ("A1 is shipped.", None)


def test_an_agent_that_waits_for_an_approval_has_a_warning(server):
    from pydantic_ai import DeferredToolRequests, Tool

    asks = Tool(lookup_order, requires_approval=True)
    (reply,) = Talk(_agent(tools=[asks], output_type=[str, DeferredToolRequests])).say(
        "Where is A1?"
    )
    assert "waits for an approval" in reply.warnings[0]


def test_an_agent_that_runs_inside_of_a_tool_hides_its_calls(server):
    inner = _agent()

    async def lookup_order(ctx: RunContext, order: str):
        return (await inner.run(f"Is {order} here?", usage=ctx.usage)).output

    server.use_script({**SCRIPT, "rules": [*SCRIPT["rules"][:1], {"reply": {"text": "Yes."}}]})
    (reply,) = Talk(_agent(tools=[lookup_order])).say("Where is A1?")
    assert (reply.text, len(reply.tool_uses), reply.reports_tools) == ("Yes.", 1, False)
    assert "inside tools" in reply.warnings[0]


@pytest.mark.filterwarnings("ignore:asynchronous generator:ResourceWarning")  # of `run_sync` itself
def test_a_function_that_is_not_async_keeps_its_event_loop(server):
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=AsyncOpenAI()))
    agent = _agent(model=model)

    def sync(text):
        return agent.run_sync(text)

    first, second = Talk(sync).say("Where is A1?", "Where is A2?")
    check_lookup(first, "A1")
    check_lookup(second, "A2")


def test_the_tool_of_an_output_is_no_tool(server):
    from pydantic_ai import ToolOutput

    class Answer(BaseModel):
        order: str

    agent = _agent(output_type=ToolOutput(Answer, name="answer"))
    server.use_script(
        {"rules": [{"reply": {"toolCalls": [{"name": "answer", "arguments": {"order": "A1"}}]}}]}
    )
    (reply,) = Talk(agent).say("Where is A1?")
    assert (reply.text, reply.tool_uses) == ('{"order":"A1"}', ())
