"""A support agent in smolagents."""

from smolagents import OpenAIServerModel, ToolCallingAgent, tool


@tool
def lookup_order(order_id: str) -> dict:
    """Return the status of an order.

    Args:
        order_id: The number of the order.
    """
    return {"order_id": order_id, "status": "shipped"}


agent = ToolCallingAgent(
    model=OpenAIServerModel("gpt-5-mini"),
    tools=[lookup_order],
    instructions="You are a shop's support. Look every order up before you answer.",
    verbosity_level=0,
)
