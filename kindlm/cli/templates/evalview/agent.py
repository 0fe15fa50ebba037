"""The agent that the cases in `tests` talk to. Put your own in its place.

It answers POST requests: {"query", "context"} gets {"response", "tool_calls", "cost"}.
"""

import json
import os
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ORDERS = {"A-17": {"status": "delivered", "day": "Tuesday", "total": 49.99}}


def answer(query: str) -> dict[str, object]:
    """Look the order of a question up, and say what became of it."""
    found = re.search(r"\b[A-Z]-\d+\b", query)
    if found is None:
        return {"response": "Hello! Which order is it about?", "tool_calls": [], "cost": 0.0001}
    order = found[0]
    looked_up = ORDERS.get(order)
    calls = [{"name": "lookup_order", "arguments": {"order_id": order}, "result": looked_up}]
    if looked_up is None:
        text = f"I am not sure which order you mean: there is no order {order}."
    elif "refund" in query.lower():
        refund = {"order_id": order, "amount": looked_up["total"]}
        calls.append({"name": "issue_refund", "arguments": refund, "result": {"id": "REF-1"}})
        text = f"I have refunded order {order}. Your refund number is REF-1."
    else:
        text = f"Your order {order} was {looked_up['status']} on {looked_up['day']}."
    return {"response": text, "tool_calls": calls, "cost": 0.0004}


class Handler(BaseHTTPRequestHandler):
    """Answers one question for each request."""

    def do_POST(self) -> None:
        """Answer a question."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = json.dumps(answer(body["query"])).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8000"))), Handler)
    print(f"listening on port {server.server_port}", flush=True)
    server.serve_forever()
