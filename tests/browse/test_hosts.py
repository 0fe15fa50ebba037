"""Who else is refused when a server is meant for this machine alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kindlm.browse.datasette_server import LOOPBACK_NAMES, answers_to, guarded


@pytest.mark.parametrize(
    ("host", "answered"),
    [
        ("localhost", True),
        ("LocalHost:8001", True),
        ("127.0.0.1:1", True),
        ("[::1]", True),
        ("[::1]:8001", True),
        ("", False),
        ("evil.example", False),
        ("evil.example:8001", False),
        ("localhost.evil.example", False),
        ("localhost:8001.evil.example", False),
        ("evil.example:localhost", False),
        ("localhost@evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("127.0.0.2", False),
        ("::1", False),
        ("[::1", False),
    ],
)
def test_only_names_of_this_machine_are_answered_to(host: str, answered: bool) -> None:
    assert answers_to([(b"host", host.encode())], LOOPBACK_NAMES) is answered


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b"host", b"localhost:8001")], 200),
        ([(b"host", b"evil.example")], 421),
        ([], 421),
        ([(b"host", b"localhost"), (b"host", b"evil.example")], 421),
        ([(b"x-forwarded-host", b"localhost"), (b"host", b"\xff\xfe")], 421),
    ],
)
def test_a_request_to_another_name_reads_nothing(headers: Any, status: int, tmp_path: Path) -> None:
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {}

    served = guarded(app, tmp_path, LOOPBACK_NAMES)
    asyncio.run(served({"type": "http", "headers": headers}, receive, send))
    assert sent[0]["status"] == status
