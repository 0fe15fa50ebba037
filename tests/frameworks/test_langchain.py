"""LangGraph and LangChain: graphs, agents, models, and what functions return of them."""

from __future__ import annotations

from typing import Annotated

import pytest
from framework_shop import Talk, check_lookup, line_of, lookup_order

NEEDS = ("langchain", "langchain_openai")


def _agent(tools=(lookup_order,), **more):
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    return create_agent(ChatOpenAI(model="gpt-5-mini"), list(tools), **more)


def _nested():
    from langgraph.graph import START, MessagesState, StateGraph

    graph = StateGraph(MessagesState)
    graph.add_node("desk", _agent())
    graph.add_edge(START, "desk")
    return graph.compile()


def _says_where(replies):
    first, second = replies
    assert first.text == "A1 is shipped."
    check_lookup(first, "A1")
    assert first.model == "gpt-5-mini"
    assert second.text == "A2 too: shipped."
    check_lookup(second, "A2")


def test_a_graph_is_an_agent_that_remembers(server):
    _says_where(Talk(_agent()).say("Where is A1?", "And A2?"))


def test_a_graph_with_a_checkpointer_has_a_thread_for_each_conversation(server):
    from langgraph.checkpoint.memory import InMemorySaver

    graph = _agent(checkpointer=InMemorySaver())
    _says_where(Talk(graph).say("Where is A1?", "And A2?"))
    thread = graph.get_state({"configurable": {"thread_id": "c-1"}})
    assert len(thread.values["messages"]) == 8


def test_what_a_tool_raises_shows_the_line_of_the_tool(server):
    error = Talk(_agent()).fail("Where is LOST?")
    assert "KeyError: 'LOST'" in error.message
    assert f"framework_shop.py:{line_of('raise KeyError(order)')})" in error.message


def test_a_function_may_return_the_state_or_all_messages_or_the_last_one(server):
    graph = _agent()

    async def state(text):
        return await graph.ainvoke({"messages": [("user", text)]})

    def messages(text):
        return graph.invoke({"messages": [("user", text)]})["messages"]

    def last(text):
        return graph.invoke({"messages": [("user", text)]})["messages"][-1]

    for function in (state, messages):
        (reply,) = Talk(function).say("Where is A1?")
        check_lookup(reply, "A1")
        (reply,) = Talk(function).say("Hello")
        assert (reply.tool_uses, reply.reports_tools) == ((), True)
    (reply,) = Talk(last).say("Where is A1?")
    assert (reply.text, reply.tool_uses, reply.reports_tools) == ("A1 is shipped.", (), None)


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("subgraphs", [False, True])
@pytest.mark.parametrize(
    "mode", ["updates", "values", "messages", ["updates", "values"], ["messages", "updates"]]
)
def test_a_function_may_yield_what_a_graph_streams(server, mode, subgraphs, version):
    graph = _nested()

    async def stream(text):
        more = {"stream_mode": mode, "subgraphs": subgraphs, "version": version}
        async for piece in graph.astream({"messages": [("user", text)]}, **more):
            yield piece

    (reply,) = Talk(stream).say("Where is A1?")
    assert reply.text == "A1 is shipped."
    check_lookup(reply, "A1", has_usage="messages" not in mode)
    (reply,) = Talk(stream).say("Hello")
    assert (reply.tool_uses, reply.reports_tools) == ((), True if "values" in mode else None)


def test_a_function_may_yield_events(server):
    graph = _nested()

    async def stream(text):
        async for event in graph.astream_events({"messages": [("user", text)]}, version="v2"):
            yield event

    async def pieces(text):
        async for event in stream(text):
            if event["event"] == "on_chat_model_stream":
                yield event

    for function, is_whole in ((stream, True), (pieces, None)):
        (reply,) = Talk(function).say("Where is A1?")
        assert reply.text == "A1 is shipped."
        assert [use.call.name for use in reply.tool_uses] == ["lookup_order"]
        (reply,) = Talk(function).say("Hello")
        assert (reply.text, reply.reports_tools) == ("How can I help?", is_whole)


def test_pieces_of_agents_that_stream_at_the_same_time_belong_to_their_messages():
    from langchain_core.messages import AIMessageChunk

    def piece(name, args, one):
        call = {"name": name, "args": args, "id": name and one, "index": 0}
        return AIMessageChunk("", id=f"run-{one}", tool_call_chunks=[call]), {}

    async def stream(text):
        for name, args in (("refund", '{"order": '), (None, '"A1"}')):
            yield piece(name, args, "a")
            yield piece(name, args, "b")

    (reply,) = Talk(stream).say("Refund A1")
    assert [use.call.arguments for use in reply.tool_uses] == [{"order": "A1"}] * 2


def test_the_result_of_a_command_is_its_message(server):
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import InjectedToolCallId, tool
    from langgraph.types import Command

    def look_up(order, call):
        found = ToolMessage('{"state": "shipped"}', tool_call_id=call)
        return Command(update={"messages": [found]})

    look_up.__annotations__ = {"order": str, "call": Annotated[str, InjectedToolCallId]}
    agent = _agent(tools=[tool("lookup_order", description="Look an order up.")(look_up)])
    (reply,) = Talk(agent).say("Where is A1?")
    (use,) = reply.tool_uses
    assert (use.call.arguments, use.response) == ({"order": "A1"}, '{"state": "shipped"}')


@pytest.mark.parametrize("mode", ["updates", "values"])
def test_the_last_piece_of_a_stream_is_no_proof_of_no_calls(server, mode):
    graph = _agent()

    async def last(text):
        async for piece in graph.astream({"messages": [("user", text)]}, stream_mode=mode):
            kept = piece
        yield kept

    (reply,) = Talk(last).say("Where is A1?")
    assert reply.text == "A1 is shipped."
    assert bool(reply.tool_uses) == bool(reply.reports_tools) == (mode == "values")


def test_a_model_is_an_agent_that_shows_no_calls_but_its_own(server):
    from langchain_openai import ChatOpenAI

    first, _ = Talk(ChatOpenAI(model="gpt-5-mini")).say("Hello", "Hello again")
    assert (first.text, first.reports_tools) == ("How can I help?", None)
    assert [len(request.body["messages"]) for request in server.requests] == [1, 3]


def test_a_chain_gets_the_text(server):
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_openai import ChatOpenAI

    prompt = ChatPromptTemplate([("system", "Be kind."), ("user", "{question}")])
    (reply,) = Talk(prompt | ChatOpenAI(model="gpt-5-mini") | StrOutputParser()).say("Hello")
    assert reply.text == "How can I help?"
    assert server.requests[0].body["messages"][1]["content"] == "Hello"


def test_tools_that_no_message_tells_of_are_heard_of(server):
    from langchain_core.runnables import RunnableLambda
    from langchain_core.tools import tool
    from langgraph.graph import END, START, MessagesState, StateGraph

    inner = _agent()
    refund = tool(description="Refund it.")(_refund)

    async def desk(state):
        said = await inner.ainvoke({"messages": [("user", state["messages"][-1].content)]})
        refund.invoke({"order": "A1"})
        return {"messages": [("ai", said["messages"][-1].content)]}

    graph = StateGraph(MessagesState)
    graph.add_node("desk", desk)
    graph.add_edge(START, "desk")
    graph.add_edge("desk", END)
    (reply,) = Talk(graph.compile()).say("Where is A1?")
    assert reply.text == "A1 is shipped."
    calls = [(use.call.name, use.call.arguments) for use in reply.tool_uses]
    assert calls == [("lookup_order", {"order": "A1"}), ("_refund", {"order": "A1"})]
    assert reply.tool_uses[1].response == "done"
    assert (reply.usage.input_tokens or 0) > 0
    (reply,) = Talk(RunnableLambda(lambda _: refund.invoke({"order": "A1"}))).say("Refund it.")
    assert (reply.text, reply.tool_uses[0].call.name) == ("done", "_refund")


def test_a_graph_whose_models_are_not_of_langchain_shows_no_calls():
    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    graph = StateGraph(MessagesState)
    graph.add_node("desk", lambda state: {"messages": [AIMessage("It is shipped.")]})
    graph.add_edge(START, "desk")
    graph.add_edge("desk", END)
    graph = graph.compile()

    async def state(text):
        return await graph.ainvoke({"messages": [("user", text)]})

    async def stream(text):
        async for piece in graph.astream({"messages": [("user", text)]}):
            yield piece

    for agent in (graph, state, stream):
        (reply,) = Talk(agent).say("Where is A1?")
        assert (reply.text, reply.reports_tools) == ("It is shipped.", None)


def _refund(order: str) -> str:
    return "done"


def test_a_state_may_keep_a_log_of_calls_that_were_heard():
    from langchain_core.tools import tool
    from langgraph.graph import END, START, StateGraph

    refund = tool(description="Refund it.")(_refund)

    def desk(state):
        refund.invoke({"order": "A1"})
        return {
            "messages": [],
            "answer": "done",
            "log": [{"tool": "_refund", "args": {"order": "A1"}}],
        }

    graph = StateGraph(dict)
    graph.add_node("desk", desk)
    graph.add_edge(START, "desk")
    graph.add_edge("desk", END)
    (reply,) = Talk(graph.compile()).say("Refund it.")
    assert [use.call.name for use in reply.tool_uses] == ["_refund"]
    assert not reply.warnings
