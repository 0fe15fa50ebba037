"""Pages of a history, asked of a real Datasette in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from datasette.app import Datasette

from kindlm.browse.server import make_datasette

Ask = Callable[..., Any]


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what the Datasettes of a test have open: a thread and a dozen files each."""
    made: list[Datasette] = []
    make = Datasette.__init__

    def remember(self: Datasette, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(Datasette, "__init__", remember)
    yield
    for datasette in made:
        datasette.executor.shutdown()
        for database in datasette.databases.values():
            database.close()


@pytest.fixture
def ask(history: Any) -> Ask:
    """Ask for a page below `/-/kindlm/kindlm/` of the history, or for another path."""

    def call(path: str, *, database: Path | None = None, actor: Any = None) -> Any:
        datasette = make_datasette(database or history.path)
        where = path if path.startswith("/") else f"/-/kindlm/kindlm/{path}"

        async def answer() -> Any:
            await datasette.invoke_startup()
            cookies = {"ds_actor": datasette.sign({"a": actor}, "actor")} if actor else {}
            return await datasette.client.get(where, cookies=cookies)

        return asyncio.run(answer())

    return call
