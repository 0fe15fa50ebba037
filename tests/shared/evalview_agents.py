"""Agents on this machine that EvalView cases can ask: the one of the example, and any other."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Answer = Callable[[dict[str, Any], Mapping[str, str]], dict[str, Any]]
"""Makes the answer to the body and the headers of a request; names of headers are lower case."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve an agent from a thread; yield where it is."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/ask"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def handler_of(answer: Answer) -> type[BaseHTTPRequestHandler]:
    """Return what handles the requests to an agent that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            data = json.dumps(answer(body, headers)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    return Handler


def handler_of_the_example(kind: str = "good") -> type[BaseHTTPRequestHandler]:
    """Return what handles the requests to the agent of the example, of a kind."""
    file = Path(__file__).parents[2] / "examples" / "evalview" / "agent.py"
    spec = importlib.util.spec_from_file_location("example_agent", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.KIND = kind  # type: ignore[attr-defined]
    handler: type[BaseHTTPRequestHandler] = module.Handler
    return handler
