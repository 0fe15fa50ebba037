"""The command line as a user runs it, against a loopback provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from altering_server import AlteringServer
from workspace import KEY, Workspace, new_workspace

ECHO_AGENT = {
    "rules": [
        {
            "name": "look up",
            "when": {"offered": "lookup_order", "notCalledThisTurn": "lookup_order"},
            "reply": {"toolCalls": [{"name": "lookup_order", "arguments": {"order_id": "A1"}}]},
        },
        {"name": "answer", "when": {}, "reply": {"text": "Order A1 was delivered."}},
    ]
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return new_workspace(tmp_path)


@pytest.fixture
def server() -> Iterator[AlteringServer]:
    with AlteringServer(ECHO_AGENT) as server:
        yield server


@pytest.fixture
def key() -> str:
    """The key that no trace may be left of."""
    return KEY
