"""An agent that answers without a word of its tools, and exports spans of them.

Served, each path is another way to export. With `--lines` it is a program that is talked to in
lines, with `--once` one that is started for a message.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry import context, propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

# Where it sets up the exporter by its environment, the SDK raises at any other.
assert os.environ["OTEL_EXPORTER_OTLP_PROTOCOL"] == "http/protobuf"


def provider(processor: BatchSpanProcessor | None) -> TracerProvider:
    made = TracerProvider()
    if processor is not None:
        made.add_span_processor(processor)
    return made


NOWHERE = OTLPSpanExporter("http://127.0.0.1:9/v1/traces", timeout=0.1)
LATE = BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=600_000)
GOOD = provider(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(GOOD)
PROVIDERS = {
    "good": GOOD,
    "torn": GOOD,
    "bare": GOOD,
    "slow": provider(LATE),
    "dead": provider(BatchSpanProcessor(NOWHERE)),
    "silent": provider(None),
}


def use_tool(tracer: trace.Tracer, name: str, arguments: dict[str, str]) -> None:
    with tracer.start_as_current_span(f"execute_tool {name}") as span:
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.name", name)
        span.set_attribute("gen_ai.tool.call.arguments", json.dumps(arguments))
        span.set_attribute("gen_ai.tool.call.result", json.dumps({"status": "sent"}))


def answer(request: dict[str, str], parent: context.Context, way: str = "good") -> str:
    """Return the answer: it names the conversation, as the arguments of the tool do."""
    arguments = {"conversation": request.get("conversation_id", "none")}
    tracer = PROVIDERS[way].get_tracer("shop")
    name = os.environ.get("SPAN", f"answer {os.environ['OPENAI_API_KEY']}")
    if way == "bare":  # no span encloses the answer
        token = context.attach(parent)
        use_tool(tracer, "lookup", arguments)
        context.detach(token)
    else:
        with tracer.start_as_current_span(name, context=parent):
            if way == "torn":  # the thread does not know of the trace
                thread = threading.Thread(target=use_tool, args=(tracer, "refund", arguments))
                thread.start()
                thread.join()
            else:
                use_tool(tracer, "lookup", arguments)
    return f"Sent, says {arguments['conversation']}."


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        parent = propagate.extract({key.lower(): value for key, value in self.headers.items()})
        with GOOD.get_tracer("shop").start_as_current_span("is ready", context=parent):
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        parent = propagate.extract({key.lower(): value for key, value in self.headers.items()})
        text = answer(request, parent, self.path.strip("/"))
        body = json.dumps({"response": text}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    given = propagate.extract({"traceparent": os.environ.get("TRACEPARENT", "")})
    if "--lines" in sys.argv:
        for line in sys.stdin:
            sys.stdout.write(json.dumps({"text": answer(json.loads(line), given)}) + "\n")
            sys.stdout.flush()
    elif "--once" in sys.argv:
        sys.stdout.write(answer({"conversation_id": sys.stdin.read()}, given))
    else:
        with GOOD.get_tracer("shop").start_as_current_span("warm up"):
            pass
        server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Server)
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        server.serve_forever()


def called(message: str) -> str:
    """Answer as an agent in Python: it opens no span around its answer."""
    use_tool(GOOD.get_tracer("shop"), "lookup", {"message": message})
    return "Sent."


if __name__ == "__main__":
    main()
