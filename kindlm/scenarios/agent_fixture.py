"""The fixture `agent` of a project, where no pytest runs: its function makes the agent under test.

pytest calls it once for each test, or less often, as its scope says; `kindlm test` once for each
conversation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from types import ModuleType
from typing import Any

from kindlm.dataclass import dataclass

NAME = "agent"


@dataclass(frozen=True, slots=True)
class AgentFixture:
    """What makes the agent; `hint` says why pytest alone can call it."""

    make: Callable[[], Any]
    hint: str | None = None


def agent_fixture(owner: ModuleType | type) -> AgentFixture | None:
    """Return the fixture of a test file, a class or a conftest.py; None if there is none."""
    for name, value in list(vars(owner).items()):
        marker = getattr(value, "_fixture_function_marker", None)
        if marker is not None and (getattr(marker, "name", None) or name) == NAME:
            return _made_by(inspect.unwrap(value))
    return None


def _made_by(function: Callable[..., Any]) -> AgentFixture:
    needs = next(iter(inspect.signature(function).parameters), None)
    hint = None if needs is None else f"the fixture {NAME} needs the fixture {needs}"
    if inspect.isasyncgenfunction(function):
        function = asynccontextmanager(function)
    elif inspect.isgeneratorfunction(function):
        function = contextmanager(function)
    return AgentFixture(function, hint)
