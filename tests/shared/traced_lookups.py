"""Spans of an agent that looks up orders, in the conventions of several instrumentations."""

from __future__ import annotations

import json
from typing import Any

from otlp import otlp_span

SCHEMA = {"type": "object", "properties": {"order_id": {"type": "string"}}}
TOOL = {"name": "lookup", "description": "Looks up.", "parameters": SCHEMA}
ARGUMENTS = {"order_id": "A1"}
SYSTEM, USER, TEXT = "Be kind.", "Where is A1?", json.dumps(ARGUMENTS)


def parts(kind: str, text: str) -> list[dict[str, str]]:
    return [{"type": "text", kind: text}]


DIALECTS: dict[str, dict[str, Any]] = {
    "genai": {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.system_instructions": json.dumps(parts("content", SYSTEM)),
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": parts("content", USER)}]),
        "gen_ai.tool.definitions": json.dumps([{"type": "function", **TOOL}]),
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": parts("content", "Sent.")}]
        ),
    },
    "openinference": {
        "openinference.span.kind": "LLM",
        "llm.system": "openai",
        "llm.model_name": "gpt-4o",
        "llm.input_messages.0.message.role": "system",
        "llm.input_messages.0.message.content": SYSTEM,
        "llm.input_messages.1.message.role": "user",
        "llm.input_messages.1.message.contents.0.message_content.type": "text",
        "llm.input_messages.1.message.contents.0.message_content.text": USER,
        "llm.tools.0.tool.json_schema": json.dumps({"type": "function", "function": TOOL}),
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "Sent.",
    },
    "openllmetry": {
        "llm.request.type": "chat",
        "gen_ai.system": "OpenAI",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": SYSTEM,
        "gen_ai.prompt.1.role": "user",
        "gen_ai.prompt.1.content": json.dumps(parts("text", USER)),
        "llm.request.functions.0.name": "lookup",
        "llm.request.functions.0.description": "Looks up.",
        "llm.request.functions.0.parameters": json.dumps(SCHEMA),
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "Sent.",
    },
    "ai sdk": {
        "ai.operationId": "ai.generateText.doGenerate",
        "gen_ai.system": "openai.chat",
        "ai.model.id": "gpt-4o",
        "ai.prompt.messages": json.dumps(
            [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": parts("text", USER)},
            ]
        ),
        "ai.prompt.tools": [
            json.dumps(
                {k: v for k, v in TOOL.items() if k != "parameters"} | {"inputSchema": SCHEMA}
            )
        ],
        "ai.response.text": "Sent.",
    },
}


def tool_span(number: int, arguments: Any, result: Any, **more: Any) -> dict[str, Any]:
    told = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "lookup",
        "gen_ai.tool.call.arguments": json.dumps(arguments),
        "gen_ai.tool.call.result": json.dumps(result),
    }
    return otlp_span(number, told, **more)


def chat_span(number: int, *users: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "parts": parts("content", text)} for text in users]
    told = {"gen_ai.input.messages": json.dumps(messages)}
    return otlp_span(number, DIALECTS["genai"] | told | more.pop("also", {}), **more)
