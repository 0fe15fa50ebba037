"""The OpenAI Agents SDK: agents, handoffs, results and streamed events."""

from __future__ import annotations

import asyncio
import json

import pytest
from framework_shop import Talk, check_lookup, line_of, lookup_order

from kindlm import transcript
from kindlm.agents.frameworks.agents import OpenAIAgents
from kindlm.transcript import Extras

NEEDS = ("agents",)


def _lookup(order: str) -> str:
    return json.dumps(lookup_order(order))


def _agent(named="gpt-5-mini", **more):
    from agents import Agent, OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(disabled=True)
    model = OpenAIChatCompletionsModel(named, AsyncOpenAI())
    tool = function_tool(_lookup, name_override="lookup_order", failure_error_function=None)
    return Agent(**{"name": "shop", "model": model, "tools": [tool], **more})


def test_an_agent_remembers(server):
    first, second = Talk(_agent()).say("Where is A1?", "And A2?")
    assert first.text == "A1 is shipped."
    check_lookup(first, "A1")
    assert first.tool_uses[0].response == '{"order": "A1", "state": "shipped"}'
    assert first.model == "gpt-5-mini"
    assert second.text == "A2 too: shipped."
    check_lookup(second, "A2")


def test_tokens_that_the_model_does_not_report_are_unknown(server):
    server.use_script({"rules": [{"reply": {"text": "Hi", "usage": "missing"}}]})
    (reply,) = Talk(_agent()).say("Hello")
    assert (reply.text, reply.usage) == ("Hi", transcript.Usage())


def test_what_a_tool_raises_shows_the_line_of_the_tool(server):
    error = Talk(_agent()).fail("Where is LOST?")
    assert "LOST" in error.message
    assert f"framework_shop.py:{line_of('raise KeyError(order)')})" in error.message


def test_an_agent_that_is_a_tool_hides_its_calls(server):
    tool = _agent(name="orders").as_tool("ask_orders", "Ask about orders.")
    server.use_script(
        {
            "rules": [
                {
                    "when": {"offered": "ask_orders", "notCalledThisTurn": "ask_orders"},
                    "reply": {"toolCalls": [{"name": "ask_orders", "arguments": {"input": "A1"}}]},
                },
                {"reply": {"text": "It is shipped."}},
            ]
        }
    )
    (reply,) = Talk(_agent(tools=[tool])).say("Where is A1?")
    assert [use.call.name for use in reply.tool_uses] == ["ask_orders"]
    assert reply.reports_tools is False
    assert "ask_orders" in reply.warnings[0]


def test_a_handoff_is_a_call_and_the_agent_that_answered_goes_on(server):
    server.use_script(
        {
            "rules": [
                {
                    "when": {"offered": "transfer_to_refunds"},
                    "reply": {"toolCalls": [{"name": "transfer_to_refunds", "arguments": {}}]},
                },
                {"reply": {"text": "Refunds here."}},
            ]
        }
    )
    refunds = _agent(name="refunds", tools=[], named="gpt-5-nano")
    first, second = Talk(_agent(tools=[], handoffs=[refunds])).say("A refund!", "Today!")
    assert [use.call.name for use in first.tool_uses] == ["transfer_to_refunds"]
    assert (first.model, second.model) == (None, "gpt-5-nano")  # the tokens are of two models
    assert (second.text, second.tool_uses) == ("Refunds here.", ())


@pytest.mark.filterwarnings(
    "ignore:asynchronous generator:ResourceWarning",  # of `run_sync` itself
    "ignore:.asyncio.get_event_loop_policy:DeprecationWarning",  # the same, from Python 3.14 on
)
def test_a_function_may_return_a_result_a_streamed_one_or_its_events(server):
    from agents import Runner

    agent, own = _agent(), _agent()

    def sync(text):
        return Runner.run_sync(own, text)

    async def streamed(text):
        return Runner.run_streamed(agent, text)

    async def events(text):
        async for event in Runner.run_streamed(agent, text).stream_events():
            yield event

    for function in (sync, streamed, events):
        first, second = Talk(function).say("Where is A1?", "Where is A2?")
        assert (first.text, second.text) == ("A1 is shipped.", "A2 is shipped.")
        check_lookup(first, "A1", has_usage=function is sync)


@pytest.mark.parametrize("kept", ["run_item_stream_event", "raw_response_event"])
def test_events_that_a_function_leaves_out_are_no_proof_of_no_calls(server, kept):
    from agents import Runner

    def is_kept(event):
        return event.type == kept and getattr(event, "name", "") in ("", "message_output_created")

    async def some(text):
        async for event in Runner.run_streamed(_agent(), text).stream_events():
            if is_kept(event):
                yield event

    (reply,) = Talk(some).say("Where is A1?")
    assert reply.text == "A1 is shipped."
    names = [use.call.name for use in reply.tool_uses]
    if kept == "raw_response_event":
        assert names == ["lookup_order"]
    else:
        assert (names, reply.reports_tools) == ([], None)


def test_tokens_of_a_prompt_cache_are_known(server):
    from agents import Runner, Usage
    from openai.types.responses.response_usage import InputTokensDetails

    async def cached(text):
        result = await Runner.run(_agent(), text)
        details = InputTokensDetails(cached_tokens=7, cache_write_tokens=0)
        result.context_wrapper.usage = Usage(
            input_tokens=9, output_tokens=4, input_tokens_details=details
        )
        return result

    (reply,) = Talk(cached).say("Where is A1?")
    assert reply.usage == transcript.Usage(9, 4, Extras(cache_read=7))


def test_an_agent_that_waits_for_an_approval_has_a_warning(server):
    from agents import function_tool

    asks = function_tool(lookup_order, needs_approval=True)
    (reply,) = Talk(_agent(tools=[asks])).say("Where is A1?")
    assert "waits for an approval" in reply.warnings[0]


def test_a_search_for_tools_is_a_call(server):
    from agents import RunItemStreamEvent
    from agents.items import ToolSearchCallItem

    raw = {"type": "tool_search_call", "call_id": "c1", "arguments": {"query": "refund"}}
    item = ToolSearchCallItem(agent=_agent(), raw_item=raw)
    event = RunItemStreamEvent(name="tool_search_called", item=item)
    reply = asyncio.run(OpenAIAgents().read([event], ""))
    assert [(use.call.name, use.call.arguments) for use in reply.tool_uses] == [
        ("tool_search", {"query": "refund"})
    ]
