"""Pages of a history, asked of a real Datasette in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cheap_settings import without_dask
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from kindlm.browse.datasette_server import make_datasette

with without_dask():
    from datasette.app import Datasette

Ask = Callable[..., Any]


class _Compiled(BytecodeCache):
    """Keeps templates compiled, for all Datasettes of this process."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self.kept:
            bucket.bytecode_from_string(self.kept[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.kept[bucket.key] = bucket.bytecode_to_string()


COMPILED = _Compiled()


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what the Datasettes of a test have open: a thread and a dozen files each."""
    made: list[Datasette] = []
    make = Datasette.__init__

    def remember(self: Datasette, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        self.jinja_env.bytecode_cache = COMPILED
        made.append(self)

    monkeypatch.setattr(Datasette, "__init__", remember)
    # With rich, Datasette highlights a whole traceback for each address that there is not.
    monkeypatch.setattr("datasette.handle_exception.rich", None)
    yield
    for datasette in made:
        datasette.executor.shutdown()
        for database in datasette.databases.values():
            database.close()


@pytest.fixture
def ask(history: Any) -> Ask:
    """Ask for a page below `/-/kindlm/kindlm/` of the history, or for another path."""

    made: dict[Path, Datasette] = {}

    def call(path: str, *, database: Path | None = None, actor: Any = None) -> Any:
        file = database or history.path
        datasette = made.get(file) or made.setdefault(file, make_datasette(file))
        where = path if path.startswith("/") else f"/-/kindlm/kindlm/{path}"

        async def answer() -> Any:
            await datasette.invoke_startup()
            cookies = {"ds_actor": datasette.sign({"a": actor}, "actor")} if actor else {}
            return await datasette.client.get(where, cookies=cookies)

        return asyncio.run(answer())

    return call
