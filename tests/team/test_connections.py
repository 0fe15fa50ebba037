"""A client that is idle, slow or wrong keeps no other from being answered."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from history_server import Served, history_server
from recorded_history import History

from kindlm.team import team_server


def opened(stack: ExitStack, served: Served, sent: bytes = b"") -> socket.socket:
    host, _, port = served.url.removeprefix("http://").partition(":")
    made = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
    made.sendall(sent)
    return made


def answer(to: socket.socket) -> bytes:
    """All that comes until the server closes; a reset ends it, too."""
    received = b""
    try:
        while piece := to.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


_POST = b"POST /v1/events HTTP/1.1\r\nHost: x\r\n"
_GET = b"GET /v1/runs HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team_server, "HEADERS_S", 0.2)


def get(token: str, path: str = "/v1/runs", version: str = "1.1", more: str = "") -> bytes:
    return (
        f"GET {path} HTTP/{version}\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"{more}\r\n"
    ).encode()


def post(token: str, more: str) -> bytes:
    return get(token, "/v1/events", more=more).replace(b"GET", b"POST", 1)


@pytest.mark.parametrize("begun", [b"", b"GET /v1/runs HTTP/1.1\r\nHost: x\r\n"])
def test_a_head_that_does_not_come_ends_the_connection(
    served: Served, stack: ExitStack, impatient: None, begun: bytes
) -> None:
    assert answer(opened(stack, served, begun)) == b""


def test_a_body_that_does_not_come_ends_the_connection(
    served: Served, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(team_server, "BODY_S", 0.2)
    begun = post(served.token(), "Content-Length: 100\r\n") + b"x"
    assert answer(opened(stack, served, begun)) == b""
    refused = post("kdl_wrong", "Content-Length: 100\r\n") + b"x"
    assert answer(opened(stack, served, refused)).startswith(b"HTTP/1.1 401")


def test_an_answer_that_is_not_read_ends_the_connection(
    tmp_path: Path, stack: ExitStack, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(team_server, "READ_S", 0.2)
    history = History(tmp_path / "team.db")
    run = history.run("aaaa2222")
    run.suite(tests=[make.planned()])
    run.execution(user="x" * 9_000_000)
    run.finish()
    history.close()
    served = stack.enter_context(history_server(tmp_path / "team.db"))
    asked = get(served.token(), "/v1/runs/aaaa2222")
    to = opened(stack, served)
    to.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    to.sendall(asked)
    assert to.recv(1) == b"H"
    # More is unread than fits between both ends: it goes only if the server gives up.
    with served.client(served.token("other")) as client:
        while len(served.server._server.server_state.connections) > 1:
            assert client.get("/v1/runs").status_code == 200


def test_many_idle_connections_keep_nobody_waiting(served: Served, stack: ExitStack) -> None:
    for _ in range(100):
        opened(stack, served, b"GET /v1/runs HTTP/1.1\r\n")
    with served.client(served.token()) as client:
        assert client.get("/v1/runs").json() == []


def test_above_the_bound_the_oldest_goes_that_is_not_being_answered(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(team_server, "_most_connections", lambda: 5)
    served = stack.enter_context(history_server(tmp_path / "team.db"))
    first = opened(stack, served)
    later = [opened(stack, served, b"GET /") for _ in range(4)]
    token = served.token()
    last = opened(stack, served, get(token, more="Connection: close\r\n"))
    assert b"200 OK" in answer(last)
    assert answer(first) == b""
    for each in later:
        each.sendall(get(token, more="Connection: close\r\n")[5:])
        assert b"200 OK" in answer(each)


def test_pipelined_and_old_requests_are_answered(served: Served, stack: ExitStack) -> None:
    token = served.token()
    last = get(token, more="Connection: close\r\n")
    assert answer(opened(stack, served, get(token) * 3 + last)).count(b"200 OK") == 4
    old = f"GET /v1/runs HTTP/1.0\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    assert answer(opened(stack, served, old)).count(b"200 OK") == 1


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /v1/runs HTTP/1.1\r\n\r\n",
        b"GET /v1/runs HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 400_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        _POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        _POST + b"Content-Length: -5\r\n\r\n",
        _POST + b"Transfer-Encoding: x\r\n\r\n",
        _POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        _POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + _GET,
    ],
    ids=["no host", "huge head", "tls", "two lengths", "negative", "coding", "chunk", "both"],
)
def test_what_is_no_request_is_refused_and_nothing_follows(
    served: Served, stack: ExitStack, request_: bytes
) -> None:
    received = answer(opened(stack, served, request_))
    assert received.count(b"HTTP/1.1 ") == 1
    assert received.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431", b"HTTP/1.1 501"))


def test_who_goes_away_in_the_middle_of_a_body_leaves_nothing(
    served: Served, stack: ExitStack
) -> None:
    token = served.token()
    with ExitStack() as inner:
        opened(inner, served, post(token, "Content-Length: 1000000\r\n") + bytes(500_000))
    with served.client(token) as client:
        assert client.get("/v1/runs").json() == []
    assert next(served.log.read(), None) is None


def test_a_refusal_is_read_by_who_sends_a_large_body(served: Served) -> None:
    with served.client("kdl_wrong") as client:
        assert client.post("/v1/events", content=bytes(4_900_000)).status_code == 401
        assert client.post("/v1/events", content=bytes(4_900_000)).status_code == 401
