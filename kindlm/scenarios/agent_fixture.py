"""The fixture `agent` of a project, where no pytest runs: its function makes the agent under test.

pytest calls it once for each test, or less often, as its scope says; `kindlm test` once for each
conversation.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

NAME = "agent"


@dataclass(frozen=True, slots=True)
class AgentFixture:
    """What makes the agent; `hint` says why pytest alone can call it."""

    make: Callable[[], Any]
    hint: str | None = None


def agent_fixture(module: ModuleType) -> AgentFixture | None:
    """Return the fixture of a test file or a conftest.py; None if there is none."""
    for name, value in list(vars(module).items()):
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


def conftest_with_agent(file: Path, root: Path) -> Path | None:
    """Return the conftest.py with the fixture that applies to a file; it is read and not run.

    It is in the folder of the file, or in the next one above it up to `root`.
    """
    folder, root = file.resolve().parent, root.resolve()
    for each in [folder, *folder.parents] if folder.is_relative_to(root) else [folder]:
        conftest = each / "conftest.py"
        try:
            tree = ast.parse(conftest.read_bytes())
        except (OSError, SyntaxError, ValueError):
            tree = ast.Module([], [])  # what cannot be read is reported elsewhere
        if any(_defines_agent(node) for node in tree.body):
            return conftest
        if each == root:
            break
    return None


def _defines_agent(node: ast.stmt) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return node.name == NAME and "fixture" in map(_called, node.decorator_list)


def _called(decorator: ast.expr) -> str:
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")
