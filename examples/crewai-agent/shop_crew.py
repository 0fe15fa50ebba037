"""A crew of CrewAI that looks orders up. Its model is played: no key, no network."""

from __future__ import annotations

import json
import re
from typing import Any

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool

ORDERS = {"A1": "shipped", "B2": "delivered"}


@tool("look_up_order")
def look_up_order(order_id: str) -> str:
    """Tell where an order is."""
    return json.dumps({"id": order_id, "status": ORDERS[order_id]})


class PlayedModel(BaseLLM):
    """Asks for the tool once for each order that it reads of, then says what it learned."""

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        results = [json.loads(m["content"]) for m in messages if m["role"] == "tool"]
        if results:
            return " ".join(f"Order {order['id']} is {order['status']}." for order in results)
        asked = next(m["content"] for m in reversed(messages) if m["role"] == "user")
        named = dict.fromkeys(re.findall(r"\b[A-Z]\d\b", asked))
        if not named:
            return "Which order is it?"
        return [
            {
                "id": f"call-{order}",
                "type": "function",
                "function": {"name": "look_up_order", "arguments": f'{{"order_id": "{order}"}}'},
            }
            for order in named
        ]

    def supports_function_calling(self) -> bool:
        return True


def answer(inputs: dict[str, Any]) -> dict[str, Any]:
    """Let a crew answer a query; return what CrewAI returns."""
    support = Agent(
        role="Support",
        goal="Tell customers where their orders are",
        backstory="You serve the customers of ACME.",
        llm=PlayedModel(model="played-1"),
        tools=[look_up_order],
        max_iter=4,
    )
    task = Task(description="{query}", expected_output="One sentence for each order", agent=support)
    return Crew(agents=[support], tasks=[task]).kickoff(inputs=inputs).model_dump(mode="json")
