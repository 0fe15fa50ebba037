"""An HTTP agent that answers only when it is let: a run can be stopped between two answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class GatedAgent:
    """The agent at `url`: it repeats what it is told, once it may."""

    url: str
    _free: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def let(self, answers: int) -> None:
        """Let it give so many more answers."""
        self._free.release(answers)


@contextmanager
def serve_gated_agent() -> Iterator[GatedAgent]:
    """Serve the agent on a free loopback port; at the end all that waits is answered."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["content-length"])))
            agent._free.acquire()
            body = json.dumps({"message": told["message"]}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        agent = GatedAgent(f"http://127.0.0.1:{server.server_address[1]}/chat")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield agent
        finally:
            agent.let(1_000)
            server.shutdown()
            thread.join()
