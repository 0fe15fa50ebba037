"""What a client of a history server makes of answers, none of which it trusts."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Event, Thread
from typing import Any

import pytest
from history_server import body_of
from recorded_history import History

from kindlm.errors import Err, ErrorCode, KindlmError, Ok
from kindlm.team import client as client_module
from kindlm.team.client import HistoryClient
from kindlm.team.protocol import Control, PushAnswer
from kindlm.team.pulling import pull_run
from kindlm_store import open_reader

TOKEN = "kdl_" + "t" * 43
PUSHED = {"added": 2, "known": 1, "filled": 0}


class Answers:
    """A server that gives these answers, one after the other, the last one again and again."""

    def __init__(self, *answers: tuple[int, Any, dict[str, str]]) -> None:
        self.left = [*answers]
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.url = ""

    def next(self) -> tuple[int, Any, dict[str, str]]:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


@contextmanager
def answering(*answers: Any) -> Iterator[Answers]:
    given = Answers(*[(*each, {})[:3] if len(each) < 3 else each for each in answers])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            given.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
            status, body, headers = given.next()
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"content-length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        given.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield given
        finally:
            server.shutdown()
            thread.join()


def ask(server: Answers, **options: Any) -> tuple[Any, list[float]]:
    waited: list[float] = []
    client = HistoryClient(server.url, TOKEN, wait=waited.append, **options)
    try:
        return client.send(b"x"), waited
    finally:
        client.close()


def failure(answered: Any) -> KindlmError:
    assert isinstance(answered, Err)
    return answered.error


@pytest.mark.parametrize(
    ("status", "code", "hint"),
    [
        (401, ErrorCode.CLOUD_AUTH_ERROR, "kindlm login --url http://127.0.0.1"),
        (403, ErrorCode.CLOUD_PLAN_LIMIT, "quota"),
        (404, ErrorCode.CLOUD_UPLOAD_ERROR, "name of the run"),
        (409, ErrorCode.CLOUD_UPLOAD_ERROR, "two histories"),
        (413, ErrorCode.CLOUD_UPLOAD_ERROR, "A proxy may take less than 6 MB"),
        (422, ErrorCode.CLOUD_UPLOAD_ERROR, "kindlm history verify"),
        (405, ErrorCode.CLOUD_UPLOAD_ERROR, "kindlm serve-history"),
    ],
)
def test_a_refusal_is_an_error_with_a_way_out(status: int, code: ErrorCode, hint: str) -> None:
    said = {"error": "x", "message": f"No, {TOKEN}\x1b[31m.", "details": {}}
    with answering((status, said)) as server:
        answered, waited = ask(server)
    error = failure(answered)
    assert (error.code, error.details["status"], waited) == (code, status, [])
    assert f"answered {status}: No, " in error.message
    assert "\x1b" not in error.message
    assert TOKEN not in f"{error.message}{error.hint}"
    assert hint in (error.hint or "")


def test_a_server_that_is_away_or_busy_is_asked_again() -> None:
    busy = (429, {"message": "slow"}, {"retry-after": "7"})
    with answering((503, {}), busy, (200, PUSHED)) as server:
        answered, waited = ask(server)
    assert answered == Ok(PushAnswer(2, 1, 0))
    assert waited == [0.5, 7.0]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ((429, {}, {"retry-after": "3600"}), ErrorCode.CLOUD_RATE_LIMIT),
        ((500, {"message": "The server failed."}), ErrorCode.CLOUD_UPLOAD_ERROR),
    ],
)
def test_patience_ends(answer: Any, code: ErrorCode) -> None:
    with answering(answer) as server:
        answered, waited = ask(server)
    assert failure(answered).code is code
    assert sum(waited) <= 60


def test_a_server_that_cannot_be_reached_says_so() -> None:
    with answering((200, PUSHED)) as server:
        gone = server.url
    client = HistoryClient(gone, TOKEN, patience_s=0)
    error = failure(client.send(b""))
    client.close()
    assert error.message == f"The history server {gone} cannot be reached: connection refused."


def test_a_token_follows_no_redirect() -> None:
    with answering((200, PUSHED)) as other, answering((302, b"", {"location": "x"})) as server:
        server.left[0][2]["location"] = f"{other.url}/v1/events"
        answered, _ = ask(server)
    assert "redirects (302)" in failure(answered).message
    assert other.requests == []


def test_no_proxy_is_asked_for_a_server_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering((200, PUSHED)) as proxy, answering((200, PUSHED)) as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        answered, _ = ask(server, lease="3.2")
    assert isinstance(answered, Ok)
    assert proxy.requests == []
    [(path, headers)] = server.requests
    assert path == "/v1/events"
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["kindlm-lease"] == "3.2"
    assert headers["content-encoding"] == "gzip"


@pytest.mark.parametrize(
    "body",
    [
        b"<html>", b"", b"[]", b"\xff", b"{" * 2000, {"added": -1, "known": 0, "filled": 0},
        {"added": "1", "known": 0, "filled": 0}, {**PUSHED, "control": {"max_rpm": -3}},
        {**PUSHED, "control": {"at_once": 1}}, {**PUSHED, "control": {"max_rpm": "30"}},
    ],
)  # fmt: skip
def test_an_answer_in_another_form_is_none(body: Any) -> None:
    with answering((200, body)) as server:
        answered, _ = ask(server)
    error = failure(answered)
    assert error.message.endswith("gave an answer that is not one of a history server.")
    assert error.code is ErrorCode.CLOUD_UPLOAD_ERROR


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_MOST_OF_AN_ANSWER", 1000)
    monkeypatch.setattr(client_module, "_MOST_OF_A_RUN", 1000)
    with answering((200, b" " * 100_000)) as server:
        client = HistoryClient(server.url, TOKEN)
        assert "is too long" in failure(client.runs()).message
        assert "is too long" in failure(client.fetch("a/../b?c", BytesIO())).message
        client.close()
        assert len(server.requests) == 2, "it is not asked again"
    assert server.requests[-1][0] == "/v1/runs/a%2F..%2Fb%3Fc"


def test_a_packed_answer_is_unpacked_once() -> None:
    packed = gzip.compress(b"[]")
    twice = (200, gzip.compress(packed), {"content-encoding": "gzip, gzip"})
    more = (200, packed + b"x" * 100_000, {"content-encoding": "gzip"})
    damaged = (200, b"x" * 100, {"content-encoding": "gzip"})
    with answering(twice, more, damaged) as server:
        client = HistoryClient(server.url, TOKEN, patience_s=0)
        assert "has an encoding that was not requested" in failure(client.runs()).message
        assert client.runs() == Ok([])
        assert "cannot be reached" in failure(client.runs()).message
        client.close()
    assert {headers["accept-encoding"] for _, headers in server.requests} == {"gzip"}


@contextmanager
def dripping(first: bytes, drop: bytes, last: bytes) -> Iterator[str]:
    """A server whose answer is whole after two seconds, and sends a hundred drops until then."""
    ended = Event()

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            with suppress(OSError):  # once the client has gone
                self.wfile.write(first)
                for _ in range(100):
                    self.wfile.write(drop)
                    ended.wait(0.02)
                self.wfile.write(last)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            ended.set()
            server.shutdown()
            thread.join()


OK = b"HTTP/1.1 200 OK\r\n"
PACKED = OK + b"content-encoding: gzip\r\nconnection: close\r\n\r\n"
NAMED = b"\x1f\x8b\x08\x08" + b"\0" * 6
"""How a gzip begins whose file has a name."""


@pytest.mark.parametrize(
    ("first", "drop", "last"),
    [
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", OK + b"content-length: 2\r\n\r\n[]"),
        (OK + b"x-slow: ", b"x", b"\r\ncontent-length: 2\r\n\r\n[]"),
        (OK + b"content-length: 102\r\n\r\n", b" ", b"[]"),
        # Much is received, and nothing comes out of it.
        (PACKED + NAMED, b"x" * 10_000, b"\0" + gzip.compress(b"[]")[10:]),
    ],
)
def test_a_request_has_one_deadline_whatever_comes_meanwhile(
    first: bytes, drop: bytes, last: bytes
) -> None:
    with dripping(first, drop, last) as url:
        client = HistoryClient(url, TOKEN, answer_s=0.3)
        error = failure(client.runs())
        client.close()
    assert error.message == f"The history server {url} takes too long to answer."


def test_an_answer_that_moves_is_not_cut_off() -> None:
    first = OK + b"content-length: 300102\r\n\r\n" + b" " * 300_000
    with dripping(first, b" ", b"[]") as url:
        client = HistoryClient(url, TOKEN, answer_s=1)
        assert client.runs() == Ok([])
        client.close()


@pytest.mark.parametrize("run", ["", "../x", "\ud800", "a\x1b[31m", "x" * 101])
def test_a_run_whose_id_can_be_none_is_not_listed(run: str) -> None:
    with answering((200, [{"run": run}])) as server:
        client = HistoryClient(server.url, TOKEN)
        assert "that is not one of a history server" in failure(client.runs()).message
        client.close()


def test_what_a_coordinator_says_is_handed_on() -> None:
    said = {**PUSHED, "control": {"stop": "cost\x07", "at_once": True, "max_rpm": 30}, "more": 1}
    with answering((200, said)) as server:
        answered, _ = ask(server)
    assert answered == Ok(PushAnswer(2, 1, 0, Control("cost\\x07", at_once=True, max_rpm=30.0)))


def test_a_pull_takes_only_the_run_that_was_asked_for(tmp_path: Path, home: History) -> None:
    gzipped = {"content-encoding": "gzip"}
    with answering((200, body_of(home), gzipped)) as server:
        client = HistoryClient(server.url, TOKEN)
        there = tmp_path / "there.db"
        assert "sent another run" in failure(pull_run(client, there, "bbbb2222")).message
        with closing(open_reader(there)) as db:
            assert db.execute("SELECT count(*) FROM events").fetchone()[0] == 0
        assert isinstance(pull_run(client, there, "aaaa2222"), Ok)
        client.close()
