"""A support agent in Google's Agent Development Kit."""

from google.adk.agents import LlmAgent
from google.adk.models.anthropic_llm import AnthropicLlm


def lookup_order(order_id: str) -> dict[str, str]:
    """Return the status of an order."""
    return {"order_id": order_id, "status": "shipped"}


agent = LlmAgent(
    name="support",
    model=AnthropicLlm(model="claude-haiku-4-5"),  # or "gemini-…", which asks Google
    tools=[lookup_order],
    instruction="You are a shop's support. Look every order up before you answer.",
)
