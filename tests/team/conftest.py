"""What the tests of a history server share: a history at home, and a server of another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from history_server import Served, history_server
from recorded_history import History


@pytest.fixture
def home(tmp_path: Path, make: Any) -> Iterator[History]:
    """A history with one finished run of the project `shop`."""
    opened = History(tmp_path / "home.db")
    run = opened.run("aaaa2222")
    run.suite(tests=[make.planned(repeat=3)])
    for number in range(3):
        run.execution(user=f"Question {number}", repeat=number + 1)
    run.finish()
    yield opened
    opened.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A history server without runs."""
    with history_server(tmp_path / "team.db") as server:
        yield server
