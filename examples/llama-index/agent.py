"""A support agent in LlamaIndex."""

import json

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI


def lookup_order(order_id: str) -> str:
    """Return the status of an order."""
    return json.dumps({"order_id": order_id, "status": "shipped"})


agent = FunctionAgent(
    # LlamaIndex streams from the model, which counts tokens then only if it is asked to.
    llm=OpenAI("gpt-4o", additional_kwargs={"stream_options": {"include_usage": True}}),
    tools=[lookup_order],
    system_prompt="You are a shop's support. Look every order up before you answer.",
)
