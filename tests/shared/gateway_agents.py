"""Agents that look up an order, for tests of the gateway."""

from __future__ import annotations

from typing import Any

RESULT = '{"paid": 7}'

_SCHEMA = {"type": "object", "properties": {"order_id": {"type": "string"}}}
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "lookup_order", "description": "Finds it.", "parameters": _SCHEMA},
}
RESPONSES_TOOL = {"type": "function", "name": "lookup_order", "parameters": _SCHEMA}
ANTHROPIC_TOOL = {"name": "lookup_order", "description": "Finds it.", "input_schema": _SCHEMA}


async def chat_loop(client: Any, *, stream: bool, question: str = "Where is my order?") -> str:
    """Answer with OpenAI's client and Chat Completions."""
    said: list[dict[str, Any]] = [{"role": "user", "content": question}]
    asked = {"model": "gpt-4o", "tools": [CHAT_TOOL]}
    while True:
        if stream:
            async with client.chat.completions.stream(**asked, messages=said) as events:
                got = await events.get_final_completion()
        else:
            got = await client.chat.completions.create(**asked, messages=said)
        message = got.choices[0].message
        calls = message.tool_calls or []
        if not calls:
            return str(message.content)
        written = [
            {
                "id": each.id,
                "type": "function",
                "function": {"name": each.function.name, "arguments": each.function.arguments},
            }
            for each in calls
        ]
        said.append({"role": "assistant", "content": message.content, "tool_calls": written})
        said += [{"role": "tool", "tool_call_id": each.id, "content": RESULT} for each in calls]
