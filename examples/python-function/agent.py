"""A support agent without a framework: it returns all messages, and so reports its tool calls."""

import json
from typing import Any

from openai import AsyncOpenAI

INSTRUCTIONS = "You are a shop's support. Look every order up before you answer."
PARAMETERS = {"type": "object", "properties": {"order_id": {"type": "string"}}}
LOOKUP = {"name": "lookup_order", "description": "Look an order up.", "parameters": PARAMETERS}


def lookup_order(order_id: str) -> dict[str, str]:
    """Return the status of an order."""
    return {"order_id": order_id, "status": "shipped"}


async def agent(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answer the last message."""
    messages = [{"role": "system", "content": INSTRUCTIONS}, *messages]
    while True:
        answer = await AsyncOpenAI().chat.completions.create(
            model="gpt-5-mini", messages=messages, tools=[{"type": "function", "function": LOOKUP}]
        )
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return messages
        for call in message.tool_calls:
            result = lookup_order(**json.loads(call.function.arguments))
            said = {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)}
            messages.append(said)
