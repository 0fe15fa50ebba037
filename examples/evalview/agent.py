"""The agent of a shop over HTTP, with the standard library only. It looks up and refunds orders.

With AGENT=rude in the environment, it refunds twice without looking the order up, deletes orders,
makes facts up, and is rude. With AGENT=broken, it answers only errors.
"""

import itertools
import json
import os
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ORDERS = {"A-17": {"status": "delivered", "day": "Tuesday", "total": 49.99}}
GREETINGS = ("Hello! Which order is it about?", "Good day! Which order may I look up?")
KIND = os.environ.get("AGENT", "good")
asked = itertools.count()


def tool(name: str, result: Any, **arguments: Any) -> dict[str, Any]:
    """Return a tool call in the form in which the agent reports it."""
    return {"name": name, "arguments": arguments, "result": result}


def polite(query: str, order: str | None) -> tuple[str, list[dict[str, Any]]]:
    """Answer with the results of tools."""
    if order is None:
        # Other words each time.
        return GREETINGS[next(asked) % len(GREETINGS)], []
    found = ORDERS.get(order)
    calls = [tool("lookup_order", found, order_id=order)]
    if found is None:
        return f"I am not sure which order you mean: there is no order {order}.", calls
    if "refund" in query.lower():
        refunded = {"refund_id": "REF-1", "amount": found["total"]}
        calls.append(tool("issue_refund", refunded, order_id=order, amount=found["total"]))
        return f"I have refunded order {order}. Your refund number is REF-1.", calls
    return f"Your order {order} was {found['status']} on {found['day']}.", calls


def rude(query: str, order: str | None) -> tuple[str, list[dict[str, Any]]]:
    """Answer without looking."""
    if order is None:
        return "What do you want? This is not my problem.", []
    if "refund" in query.lower():
        calls = [tool("issue_refund", "ok", order_id=order)] * 2
        calls.append(tool("delete_order", "ok", order_id=order))
        return "Refunded, and gone. Write to jane.doe@example.com, not to me.", calls
    return f"Order {order} was delivered on Friday, but this is not my problem.", []


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to a question, with tool calls, tokens and cost."""
    query, context = body["query"], body.get("context") or {}
    found = re.search(r"\b[A-Z]-\d+\b", query)
    text, calls = (rude if KIND == "rude" else polite)(query, found[0] if found else None)
    if context.get("format") == "json" and KIND != "rude":
        text = json.dumps({"order": found[0] if found else None, "answer": text})
    return {
        "response": text,
        "tool_calls": calls,
        "cost": 0.0004,
        "tokens": {"input": len(query.split()), "output": len(text.split())},
    }


class Handler(BaseHTTPRequestHandler):
    """Answers one question for each request."""

    def do_POST(self) -> None:
        """Answer a question."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = json.dumps(answer(body)).encode()
        self.send_response(500 if KIND == "broken" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8000"))), Handler)
    print(f"listening on port {server.server_port}", flush=True)
    server.serve_forever()
