"""Serves the graph: POST /invoke answers with its state, POST /stream with what changes in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from langchain_core.messages import BaseMessage
from shop_graph import make_graph

GRAPH = make_graph()


class Handler(BaseHTTPRequestHandler):
    """Takes `{"messages": [{"role", "content"}]}`."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages = [*asked.get("conversation_history", []), *asked["messages"]]
        if self.path == "/stream":
            changes = GRAPH.stream({"messages": messages}, stream_mode="updates")
            self._send("text/event-stream", "".join(_frames(changes)))
        else:
            state = GRAPH.invoke({"messages": messages})
            self._send("application/json", json.dumps(state, default=_as_json))

    def _send(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _frames(changes: Iterator[dict[str, Any]]) -> Iterator[str]:
    return (f"data: {json.dumps(change, default=_as_json)}\n\n" for change in changes)


def _as_json(value: object) -> Any:
    if isinstance(value, BaseMessage):
        return value.model_dump()
    raise TypeError(f"{type(value).__name__} is not JSON")


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
    print("listening on", server.server_port, flush=True)
    server.serve_forever()
