"""A real browser, and a real history to look at with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from served_history import served
from shop_history import Shop, record_shop
from visits import Driven, Visit, find_chromium
from workspace import new_workspace


def pytest_runtest_setup() -> None:
    """Skip all tests of this folder in one line where there is no browser."""
    find_chromium()


@pytest.fixture(scope="session")
def driven() -> Iterator[Driven]:
    """One browser for all tests of this process."""
    path = find_chromium()
    with sync_playwright() as playwright:
        driven = Driven(
            playwright.chromium.launch(executable_path=path), asyncio.get_running_loop()
        )
        asyncio._set_running_loop(None)
        yield driven
        asyncio._set_running_loop(driven.loop)
        driven.browser.close()


@pytest.fixture(scope="session")
def pictures() -> Path | None:
    """The folder that pictures are kept in, `KINDLM_SCREENSHOTS`; there are none without it."""
    if not (kept := os.environ.get("KINDLM_SCREENSHOTS")):
        return None
    folder = Path(kept)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def visit(driven: Driven, pictures: Path | None) -> Iterator[Visit]:
    """A window of its own; the test fails if anything went wrong in it."""
    with driven.awake() as browser:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        visit = Visit(context.new_page(), pictures)
        yield visit
        context.close()
    visit.assert_clean()


@pytest.fixture(scope="session")
def shop(driven: Driven, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A history of real runs: failures, retries, tools, judges, repeats, targets."""
    return record_shop(new_workspace(tmp_path_factory.mktemp("shop")))


@pytest.fixture(scope="session")
def address(shop: Shop) -> Iterator[str]:
    """The address below which the pages of the shop's history are served."""
    with served(shop.workspace.database) as found:
        yield found
