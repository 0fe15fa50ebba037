"""LlamaIndex: agents, workflows of agents, what they return and stream."""

from __future__ import annotations

import asyncio
import json

import framework_shop
import pytest
from framework_shop import LOOP, Talk, check_lookup, line_of

NEEDS = ("llama_index.core", "llama_index.llms.openai")

pytestmark = pytest.mark.filterwarnings("ignore")  # what frameworks warn of themselves


def lookup_order(order: str) -> str:
    """Return the state of an order."""
    return json.dumps(framework_shop.lookup_order(order))


def _model(kind=None):
    from llama_index.llms.openai import OpenAI

    # LlamaIndex streams from the model, which counts tokens then only if it is asked to.
    return (kind or OpenAI)("gpt-4o", additional_kwargs={"stream_options": {"include_usage": True}})


def _agent(**more):
    from llama_index.core.agent.workflow import FunctionAgent

    return FunctionAgent(**{"name": "desk", "tools": [lookup_order], "llm": _model(), **more})


def test_an_agent_remembers(server):
    from llama_index.core.agent.workflow import AgentWorkflow

    for agent in (_agent(), AgentWorkflow(agents=[_agent()], root_agent="desk")):
        first, second = Talk(agent).say("Where is A1?", "And A2?")
        assert first.text == "A1 is shipped."
        check_lookup(first, "A1")
        assert first.model == "gpt-4o"
        assert second.text == "A2 too: shipped."
        check_lookup(second, "A2")


def test_a_tool_that_fails_was_called(server):
    (reply,) = Talk(_agent()).say("Where is LOST?")
    (use,) = reply.tool_uses
    assert use.response == {"error": "'LOST'"}


def test_what_it_raises_shows_the_line_of_the_user(server):
    from llama_index.llms.openai import OpenAI

    class Broken(OpenAI):
        async def astream_chat_with_tools(self, *args, **kwargs):
            framework_shop.lookup_order("LOST")

    error = Talk(_agent(llm=_model(Broken))).fail("Where is A1?")
    assert "KeyError: 'LOST'" in error.message
    assert f"framework_shop.py:{line_of('raise KeyError(order)')})" in error.message


def test_a_function_may_return_an_output_or_yield_events(server):
    async def output(text):
        return await _agent().run(text)

    async def events(text):
        async for event in _agent().run(text).stream_events():
            yield event

    for function in (output, events):
        (reply,) = Talk(function).say("Where is A1?")
        assert reply.text == "A1 is shipped."
        check_lookup(reply, "A1", has_usage=function is events)
    # The output is the last of several, and its tokens are not those of all.
    (reply,) = Talk(output).say("Where is A1?")
    assert reply.usage.input_tokens is None


def test_the_system_text_is_passed_on(server):
    (reply,) = Talk(_agent(), system="Be short.").say("Hello")
    assert (reply.warnings, "Be short." in str(server.requests[0].body)) == ((), True)


def test_a_run_that_takes_too_long_takes_no_further_step(server):
    call = {"toolCalls": [{"name": "lookup_order", "arguments": {"order": "A1"}}], "delayMs": 500}
    server.use_script({"rules": [{"when": {"notCalled": "lookup_order"}, "reply": call}]})
    Talk(_agent()).fail("Where is A1?", timeout_s=0.2)

    async def left() -> None:
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    LOOP.run(left())
    assert len(server.requests) <= 1


def test_calls_with_the_same_id_are_different_calls(server):
    """Not all models give calls an id; the name of the tool may stand for it."""
    from llama_index.core.agent.workflow import AgentOutput, ToolCall, ToolCallResult
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import ToolOutput, ToolSelection

    def output(*asked):
        calls = [
            ToolSelection(tool_id="refund", tool_name="refund", tool_kwargs={"order": order})
            for order in asked
        ]
        said = ChatMessage(role="assistant", content="Done.")
        return AgentOutput(response=said, tool_calls=calls, raw=None, current_agent_name="desk")

    def events(text):
        for order in ("A1", "A2"):
            known = {
                "tool_id": "refund", "tool_name": "refund", "tool_kwargs": {"order": order}
            }  # fmt: skip
            yield output(order)
            yield ToolCall(**known)
            told = ToolOutput(
                tool_name="refund", content=f"{order} done", raw_input={}, raw_output=0
            )
            yield ToolCallResult(**known, tool_output=told, return_direct=False)
        yield output("A1", "A2")

    (reply,) = Talk(events).say("Refund both.")
    calls = [(use.call.arguments, use.response) for use in reply.tool_uses]
    assert calls == [({"order": "A1"}, "A1 done"), ({"order": "A2"}, "A2 done")]
    (reply,) = Talk(lambda text: output("A1", "A2")).say("Refund both.")
    assert [use.call.arguments for use in reply.tool_uses] == [{"order": "A1"}, {"order": "A2"}]
