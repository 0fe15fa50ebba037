"""The agent over HTTP, with the standard library only, on the port SHOP_PORT or 8000."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from shop import chat


class Handler(BaseHTTPRequestHandler):
    """Answers one message for each request."""

    def do_POST(self) -> None:
        """Answer a message."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        data = json.dumps(chat(body)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("SHOP_PORT", "8000"))), Handler)
    print(f"listening on port {server.server_port}", flush=True)
    server.serve_forever()
