"""What tests of several packages share: histories, written as the engine writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from recorded_history import History, Make


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """An empty history in a file of its own."""
    opened = History(tmp_path / "kindlm.db")
    yield opened
    opened.close()


@pytest.fixture
def make() -> type[Make]:
    """Constructors for the parts of a run."""
    return Make
