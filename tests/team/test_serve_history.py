"""`kindlm serve-history` as a process: it starts, is killed at any moment, and ends cleanly."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any

import httpx
import loaded_kindlm
import pytest
from history_server import GZIP, body_of
from loaded_kindlm import Started
from recorded_history import History, Make
from small_disk import mounted

from kindlm.cli.commands.serve_history import reviews_in
from kindlm.errors import Ok
from kindlm.events.run import PURGES, SEALED_HEADS
from kindlm.projections import PROJECTIONS
from kindlm.team.token_store import TokenStore
from kindlm_store import EventLog, StoreError
from kindlm_store.verification import verify_file


@contextmanager
def serving(database: Path) -> Iterator[tuple[Started, str]]:
    """Start a server; yield it, and where it answers."""
    process = loaded_kindlm.start(
        ["serve-history", "--db", str(database), "--port", "0"],
        cwd=database.parent,
        env=os.environ,
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().partition("/-/")[0].strip()
        finally:
            process.kill()


@pytest.fixture
def token(tmp_path: Path) -> str:
    with closing(TokenStore(tmp_path / "team.db")) as store:
        created = store.create("ci", ["push", "pull"])
    assert isinstance(created, Ok)
    return created.value


def client_of(url: str, token: str) -> httpx.Client:
    headers = {"authorization": f"Bearer {token}"}
    return httpx.Client(base_url=url, headers=headers, trust_env=False)


def test_it_is_killed_in_mid_push_and_nothing_is_lost(
    tmp_path: Path, home: History, token: str
) -> None:
    body = body_of(home)

    def push(client: httpx.Client) -> Any:
        return client.post("/v1/events", content=body, headers=GZIP).json()

    def push_on(client: httpx.Client) -> None:
        while True:
            push(client)

    with serving(tmp_path / "team.db") as (process, url), client_of(url, token) as client:
        Timer(0.02, process.kill).start()
        with pytest.raises(httpx.HTTPError):
            push_on(client)
    with serving(tmp_path / "team.db") as (process, url), client_of(url, token) as client:
        answer = push(client)
        assert answer["added"] + answer["known"] == len(list(home.log.read()))
        assert push(client)["added"] == 0
        # What changes beside it counts at once.
        with closing(TokenStore(tmp_path / "team.db")) as store:
            store.revoke("ci")
        answer = client.get("/v1/runs")
        assert (answer.status_code, answer.json()["message"]) == (401, "The token is revoked.")
        (tmp_path / "team.db").rename(tmp_path / "moved.db")
        answer = client.get("/v1/runs")
        assert (answer.status_code, "serve-history again" in answer.text) == (503, True)
        (tmp_path / "moved.db").rename(tmp_path / "team.db")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with EventLog.open(tmp_path / "team.db", projections=PROJECTIONS) as log:
        assert verify_file(log.path, claims=SEALED_HEADS, erasures=PURGES).ok
        assert log.head("run/aaaa2222") == home.log.head("run/aaaa2222")
    written = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    assert token.encode() not in written


def test_reviews_and_pushes_go_on_when_a_full_disk_has_room_again(tmp_path: Path) -> None:
    with (
        mounted(tmp_path / "small", "2m") as folder,
        closing(History(folder / "team.db")) as history,
    ):
        run = history.run("aaaa2222")
        run.suite(tests=[Make.planned()])
        run.execution()
        run.finish()
        filler = folder / "filler"
        review = reviews_in(history.path)({"name": "ann", "may_review": True})
        assert review is not None
        with suppress(OSError), filler.open("wb", buffering=0) as filling:
            while True:
                filling.write(bytes(4096))
        with pytest.raises(StoreError):
            review("aaaa2222-1", True, "a note" * 2_000)
        filler.unlink()
        assert review("aaaa2222-1", True, None) == Ok(None)
        assert history.log.failure is None
