"""A history server in this process, and what is pushed to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from recorded_history import History

from kindlm.errors import Ok
from kindlm.history.runs import streams_of
from kindlm.projections import PROJECTIONS
from kindlm.team.bodies import bodies
from kindlm.team.history_api import HistoryApi
from kindlm.team.team_server import RunningServer
from kindlm.team.token_store import TokenStore
from kindlm_store import EventLog

GZIP = {"content-encoding": "gzip"}


@dataclass
class Served:
    """A history server in this process."""

    url: str
    log: EventLog
    tokens: TokenStore
    api: HistoryApi
    server: RunningServer

    def token(self, name: str = "ci", scopes: str = "push pull", **more: Any) -> str:
        created = self.tokens.create(name, scopes.split(), **more)
        assert isinstance(created, Ok)
        return created.value

    def client(self, token: str | None) -> httpx.Client:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False)


def body_of(history: History, run: str = "aaaa2222") -> bytes:
    """All of a small run as the one body of a push."""
    with closing(history.log.reader()) as db:
        (body,) = bodies(db, run, streams_of(db, run)[1], {})
    return body


@contextmanager
def history_server(path: Path) -> Iterator[Served]:
    """Serve a new history from a thread."""
    with ExitStack() as stack:
        tokens = stack.enter_context(closing(TokenStore(path)))
        log = stack.enter_context(EventLog.open(path, projections=PROJECTIONS))
        api = HistoryApi(log, tokens)
        stack.callback(api.close)
        server = stack.enter_context(RunningServer(api))
        yield Served(server.url, log, tokens, api, server)
