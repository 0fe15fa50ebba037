"""A support agent in AutoGen's AgentChat."""

import json

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient


def lookup_order(order_id: str) -> str:
    """Return the status of an order."""
    return json.dumps({"order_id": order_id, "status": "shipped"})


agent = AssistantAgent(
    "support",
    OpenAIChatCompletionClient(model="gpt-4o-2024-08-06"),
    tools=[lookup_order],
    system_message="You are a shop's support. Look every order up before you answer.",
    reflect_on_tool_use=True,
)
