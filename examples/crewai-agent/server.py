"""Serves the crew: POST /kickoff answers with what CrewAI returns, as JSON."""

from __future__ import annotations

import json
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

# CrewAI asks nobody, and tells nobody.
os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
}

# CrewAI reads the variables when it is imported.
from shop_crew import answer


class Handler(BaseHTTPRequestHandler):
    """Takes `{"inputs": {"query"}}`."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(answer(asked["inputs"])).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
    print("listening on", server.server_port, flush=True)
    server.serve_forever()
