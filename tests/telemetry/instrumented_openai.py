"""Calls tools with the OpenAI SDK under two instrumentations; prints the spans as JSON.

A program of its own, since one of them cannot be taken off again.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from typing import Any

from openai import OpenAI
from openinference.instrumentation.openai import OpenAIInstrumentor as OpenInference
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.instrumentation.openai import OpenAIInstrumentor as OpenLLMetry
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kindlm.testing import LoopbackServer

TOOL = {"name": "lookup_order", "parameters": {"type": "object", "properties": {}}}
MODEL = {
    "rules": [
        {
            "name": "look up",
            "when": {"notCalledThisTurn": "lookup_order"},
            "reply": {"toolCalls": [{"name": "lookup_order", "arguments": {"order_id": "A1"}}]},
        },
        {"name": "answer", "when": {}, "reply": {"text": "It was delivered."}},
    ]
}


def ask(client: OpenAI, *, streams: bool) -> tuple[int, int]:
    """Let a model call a tool and answer; return the tokens of both calls."""
    messages: list[Any] = [{"role": "user", "content": "Where is A1?"}]
    tools: list[Any] = [{"type": "function", "function": TOOL}]
    tokens = [0, 0]
    for _ in range(2):
        if streams:
            options: Any = {"stream": True, "stream_options": {"include_usage": True}}
            pieces = list(
                client.chat.completions.create(
                    model="gpt-test", messages=messages, tools=tools, **options
                )
            )
            deltas = [piece.choices[0].delta for piece in pieces if piece.choices]
            text = "".join(delta.content or "" for delta in deltas)
            parts = [call for delta in deltas for call in delta.tool_calls or ()]
            calls = [
                {
                    "id": parts[0].id,
                    "type": "function",
                    "function": {
                        "name": parts[0].function.name,
                        "arguments": "".join(part.function.arguments or "" for part in parts),
                    },
                }
            ] if parts else []  # fmt: skip
            usage = pieces[-1].usage
        else:
            done = client.chat.completions.create(model="gpt-test", messages=messages, tools=tools)
            said = done.choices[0].message
            text, usage = said.content, done.usage
            calls = [call.model_dump() for call in said.tool_calls or ()]
        tokens[0] += usage.prompt_tokens
        tokens[1] += usage.completion_tokens
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": '{"status": "delivered"}'}
            for call in calls
        ]
    return tokens[0], tokens[1]


def main() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    found = {}
    OpenLLMetry().instrument(tracer_provider=provider)
    OpenInference().instrument(tracer_provider=provider)
    with LoopbackServer(MODEL) as server:
        client = OpenAI(base_url=f"{server.url}/v1", api_key="x")
        for case in ("whole", "stream", "hidden"):
            if case == "hidden":
                os.environ |= {"TRACELOOP_TRACE_CONTENT": "false"}
                os.environ |= {"OPENINFERENCE_HIDE_OUTPUTS": "true"}
                OpenInference().uninstrument()
                OpenInference().instrument(tracer_provider=provider)
            tokens = ask(client, streams=case == "stream")
            body = encode_spans(exporter.get_finished_spans()).SerializeToString()
            exporter.clear()
            found[case] = {"tokens": tokens, "body": base64.b64encode(body).decode()}
    sys.stdout.write(json.dumps(found))


main()
