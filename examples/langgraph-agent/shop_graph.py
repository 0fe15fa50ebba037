"""A graph of LangGraph that looks up orders. Its model is simulated: no key, no network."""

from __future__ import annotations

import json
import re
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

ORDERS = {"A1": "shipped", "B2": "delivered"}


@tool
def look_up_order(order_id: str) -> dict[str, str]:
    """Tell where an order is."""
    return {"id": order_id, "status": ORDERS[order_id]}


class PlayedModel(BaseChatModel):
    """Calls the tool once for each order in the messages, then answers with the results."""

    @property
    def _llm_type(self) -> str:
        return "played"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        answer = self._answer(messages)
        answer.usage_metadata = {"input_tokens": 40, "output_tokens": 10, "total_tokens": 50}
        answer.response_metadata = {"model_name": "played-1"}
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        results = [json.loads(m.text) for m in messages if isinstance(m, ToolMessage)]
        if results:
            said = [f"Order {order['id']} is {order['status']}." for order in results]
            return AIMessage(" ".join(said))
        named = dict.fromkeys(re.findall(r"\b[A-Z]\d\b", messages[-1].text))
        if not named:
            return AIMessage("Which order is it?")
        calls = [
            {"id": f"call-{order}", "name": "look_up_order", "args": {"order_id": order}}
            for order in named
        ]
        return AIMessage("", tool_calls=calls)


def _ask(state: MessagesState) -> dict[str, list[BaseMessage]]:
    return {"messages": [PlayedModel().invoke(state["messages"])]}


def make_graph() -> Any:
    """Return the graph: the model, its tool, and the model again."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", _ask)
    graph.add_node("tools", ToolNode([look_up_order]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()
