"""The comments of one pull request, on a loopback server that speaks GitHub's API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class GitHub(BaseHTTPRequestHandler):
    """Comments of acme/shop#7; the token `a-token` is one of the app `login`, which has no user.

    By default that is the token of a workflow. `seen` are the requests that change something.
    """

    comments: list[Any]
    seen: list[str]
    login = "github-actions[bot]"

    def do_GET(self) -> None:
        if self.path == "/user":
            self.answer(403, {})
        else:
            assert self.path.startswith("/repos/acme/shop/issues/7/comments?")
            self.answer(200, self.comments if self.path.endswith("&page=1") else [])

    def do_POST(self) -> None:
        content = self.body()
        if self.path == "/graphql":
            assert content == {"query": "{ viewer { login } }"}
            self.answer(200, {"data": {"viewer": {"login": self.login}}})
            return
        assert self.path == "/repos/acme/shop/issues/7/comments"
        self.seen.append("POST")
        self.comments.append({"id": 100, "user": {"login": self.login}, **content})
        self.answer(201, {})

    def do_PATCH(self) -> None:
        number = int(self.path.removeprefix("/repos/acme/shop/issues/comments/"))
        (comment,) = [each for each in self.comments if each["id"] == number]
        self.seen.append("PATCH")
        comment.update(self.body())
        self.answer(200, {})

    def body(self) -> Any:
        assert self.headers["authorization"] == "Bearer a-token"
        return json.loads(self.rfile.read(int(self.headers["content-length"])))

    def answer(self, status: int, content: object) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_args: object) -> None:
        pass


@contextmanager
def serve_github() -> Iterator[tuple[str, type[GitHub]]]:
    """Serve comments of its own; yields the address of the API, and what it has."""

    class Fresh(GitHub):
        comments: list[Any] = []  # noqa: RUF012 - of this server alone
        seen: list[str] = []  # noqa: RUF012

    server = ThreadingHTTPServer(("127.0.0.1", 0), Fresh)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", Fresh
    finally:
        server.shutdown()
        server.server_close()
