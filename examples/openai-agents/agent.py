"""A support agent in the OpenAI Agents SDK."""

import json

from agents import Agent, function_tool, set_default_openai_api


@function_tool
def lookup_order(order_id: str) -> str:
    """Return the status of an order."""
    return json.dumps({"order_id": order_id, "status": "shipped"})


set_default_openai_api("chat_completions")
agent = Agent(
    name="support",
    model="gpt-5-mini",
    tools=[lookup_order],
    instructions="You are a shop's support. Look every order up before you answer.",
)
