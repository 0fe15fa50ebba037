"""A support agent in Pydantic AI."""

from pydantic_ai import Agent

agent = Agent(
    "openai-chat:gpt-5-mini",
    instructions="You are a shop's support. Look every order up before you answer.",
)


@agent.tool_plain
def lookup_order(order_id: str) -> dict[str, str]:
    """Return the status of an order."""
    return {"order_id": order_id, "status": "shipped"}
