"""A shop's support in LangGraph, as an object and as a program that exports its spans.

The program also appends what it exports to the file in TRACE_FILE.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def lookup_order(order_id: str) -> dict[str, str]:
    """Return the status of an order."""
    return {"order_id": order_id, "status": "delivered", "email": "ann.lee@shop.org"}


def issue_refund(order_id: str) -> dict[str, bool]:
    """Refund an order."""
    return {"ok": True}


def graph(model: str):
    return create_agent(
        ChatOpenAI(model=model),
        tools=[lookup_order, issue_refund],
        system_prompt="Refund only {{env.HOME}} orders that you have looked up.",
    )


agent = graph("careful")
careless = graph("careless")
"""It refunds without a look at the order."""


def main() -> None:
    from openinference.instrumentation.openai import OpenAIInstrumentor
    from opentelemetry import propagate
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import (
        SimpleSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )

    class ToFile(SpanExporter):
        def export(self, spans):
            with Path(os.environ["TRACE_FILE"]).open("ab") as file:
                file.write(encode_spans(spans).SerializeToString())
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    provider.add_span_processor(SimpleSpanProcessor(ToFile()))
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    parent = propagate.extract({"traceparent": os.environ["TRACEPARENT"]})
    for line in sys.stdin:
        with provider.get_tracer("shop").start_as_current_span("answer", context=parent):
            state = agent.invoke({"messages": [("user", json.loads(line)["message"])]})
        text = state["messages"][-1].content
        sys.stdout.write(json.dumps({"text": text}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
