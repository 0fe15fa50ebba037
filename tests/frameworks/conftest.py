"""What tests of frameworks share: a stand-in for the model."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from checked_server import LoopbackServer
from framework_shop import SCRIPT
from frameworks import need


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore connections that are left open: clients of frameworks have no end."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Drop what clients left open once tests of other folders follow: it takes a second.

    Before the protocol of a test has ended, pytest itself holds what its fixtures made. This hook
    is called for the tests of all folders.
    """
    result = yield
    here = Path(__file__).parent
    if item.path.parent == here and (nextitem is None or nextitem.path.parent != here):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return result


@pytest.fixture(scope="module", autouse=True)
def _needed(request: pytest.FixtureRequest) -> None:
    """Load the packages that a file NEEDS once its tests run: those who collect it need not."""
    for name in getattr(request.module, "NEEDS", ()):
        need(name)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    """Stand in for the model; clients find it by the usual variables."""
    with LoopbackServer(SCRIPT) as server:
        for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):  # LlamaIndex knows the latter alone
            monkeypatch.setenv(name, f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "a-key")
        yield server
    # LangChain keeps its clients, one for each address.
    kept = sys.modules.get("langchain_openai.chat_models._client_utils")
    for name in ("_cached_sync_httpx_client", "_cached_async_httpx_client") if kept else ():
        getattr(kept, name).cache_clear()
