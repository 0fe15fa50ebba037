"""One agent that is reached in four ways: as Python code, as a command, by lines, and over HTTP.

Over HTTP, it also plays a model of Ollama.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKENS = {"input_tokens": 40, "output_tokens": 10}


def answer(message: str) -> dict[str, Any]:
    """Return the state of the order in a message, with the tool call and the tokens."""
    order_id = (re.findall(r"[A-Z]\d", message) or ["unknown"])[-1]
    call = {"name": "lookup_order", "arguments": {"order_id": order_id}, "result": "delivered"}
    text = f"Order {order_id} was delivered."
    return {"text": text, "tool_calls": [call], "usage": TOKENS, "model": "shop-1"}


def report(order_id: str) -> None:
    """Print the answer as the lines that kindlm reads from a command."""
    call = {"kindlm": "tool_call", "name": "lookup_order", "arguments": {"order_id": order_id}}
    print(json.dumps({**call, "response": {"status": "delivered"}}))
    print(json.dumps({"kindlm": "output_json", "value": {"id": order_id, "done": True}}))


class Handler(BaseHTTPRequestHandler):
    """Serves the agent in four forms, and a model.

    `/chat`, `/envelope` and `/events` have forms of their own, `/threads` has that of LangGraph's
    server. `/api/chat` is the model, in the form of Ollama.
    """

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/api/chat":
            text = str(answer(body["messages"][-1]["content"])["text"])
            self._send(200, _as_ollama(body["model"], text))
        elif self.headers["Authorization"] != f"Bearer {os.environ['SHOP_TOKEN']}":
            self._send(401, {"error": "wrong token"})
        elif self.path == "/envelope":
            reply = answer(body["input"]["text"])
            data = {"reply": {"text": reply["text"]}, "steps": reply["tool_calls"]}
            self._send(200, {"data": data, "usage": TOKENS, "model": "shop-1"})
        elif self.path == "/events":
            self._send(200, _as_events(answer(body["message"])))
        elif self.path == "/threads":
            self._send(200, {"thread_id": "thread-1"})
        elif self.path == "/threads/thread-1/runs/stream":
            self._send(200, _as_run(answer(body["input"]["question"])), "text/event-stream")
        else:
            self._send(200, answer(body["messages"][-1]["content"]))

    def do_GET(self) -> None:
        self._send(200, {"status": "ok", "shop": os.environ["SHOP"]})

    def _send(self, status: int, value: object, kind: str = "application/json") -> None:
        body = (value if isinstance(value, str) else json.dumps(value)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _as_ollama(model: str, text: str) -> dict[str, object]:
    message = {"role": "assistant", "content": text}
    counts = {"prompt_eval_count": 40, "eval_count": 10}
    return {"model": model, "message": message, "done": True, "done_reason": "stop", **counts}


def _as_events(reply: dict[str, Any]) -> str:
    call = reply["tool_calls"][0]
    events = [
        {"type": "tool_call", "data": {"name": call["name"], "args": call["arguments"]}},
        {"type": "tool_result", "data": {"result": call["result"]}},
        {"type": "usage", "data": {**TOKENS, "model": reply["model"]}},
        {"type": "final_message", "data": {"text": reply["text"]}},
    ]
    return "".join(json.dumps(event) + "\n" for event in events)


def _as_run(reply: dict[str, Any]) -> str:
    call = reply["tool_calls"][0]
    asked = {"id": "call-1", "name": call["name"], "args": call["arguments"]}
    messages = [
        {"type": "ai", "content": "", "tool_calls": [asked]},
        {"type": "tool", "tool_call_id": "call-1", "content": call["result"]},
        {
            "type": "ai",
            "content": reply["text"],
            "usage_metadata": TOKENS,
            "response_metadata": {"model_name": reply["model"]},
        },
    ]
    return f"event: updates\ndata: {json.dumps({'shop': {'messages': messages}})}\n\n"


def main() -> None:
    """Report an order, answer lines of a conversation, or serve on the port PORT."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--order")
    parser.add_argument("--lines", action="store_true")
    arguments = parser.parse_args()
    if arguments.order:
        report(arguments.order)
        return
    if arguments.lines:
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line)["message"])), flush=True)
        return
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()


if __name__ == "__main__":
    main()
