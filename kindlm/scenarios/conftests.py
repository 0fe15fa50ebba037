"""Reads the conftest.py files above a test file without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation
from kindlm.scenarios.marks import AGENT_FIXTURE


class Conftests(NamedTuple):
    """The definitions of the conftest.py files that apply to a test file.

    `automatic` is a hint about an automatic fixture, if there is one. `agents` are the files that
    seem to define the fixture `agent`, the nearest first.
    """

    automatic: str | None
    agents: tuple[Path, ...]


def read_conftests(file: Path, root: Path) -> Result[Conftests]:
    """Read each conftest.py from the folder of a test file up to `root`.

    An unreadable file is an error, since pytest would run no test in its folder.
    """
    automatic: list[str] = []
    agents: list[Path] = []
    folder, root = file.resolve().parent, root.resolve()
    for each in [folder, *folder.parents] if folder.is_relative_to(root) else [folder]:
        conftest = each / "conftest.py"
        try:
            fixtures = list(_fixtures(ast.parse(conftest.read_bytes())))
        except FileNotFoundError:
            fixtures = []
        except (OSError, SyntaxError, ValueError) as error:
            return Err(_unreadable(conftest, error))
        automatic += (
            f"it needs the fixture {name} of {each.name}/conftest.py, which is automatic"
            for name, is_automatic in fixtures
            if is_automatic
        )
        if any(name == AGENT_FIXTURE for name, _ in fixtures):
            agents.append(conftest)
        if each == root:
            break
    return Ok(Conftests(next(iter(automatic), None), tuple(agents)))


def _fixtures(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield the names of functions with decorators, and whether each is an automatic fixture.

    Imported names count, too.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((each.asname or each.name, False) for each in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.decorator_list:
            calls = (each for each in node.decorator_list if isinstance(each, ast.Call))
            given = {item.arg: item.value for call in calls for item in call.keywords}
            # A computed value may be true, or be any name.
            name = getattr(given.get("name"), "value", node.name)
            yield name, bool(getattr(given.get("autouse", ast.Constant(False)), "value", True))


def _unreadable(conftest: Path, error: Exception) -> KindlmError:
    line, why = (error.lineno, error.msg) if isinstance(error, SyntaxError) else (None, error)
    return KindlmError(
        ErrorCode.CONFIG_PARSE_ERROR,
        f"The conftest.py cannot be read: {type(error).__name__}: {why}",
        "Fix it: the tests in its folder did not run, since it may prepare something for them.",
        SourceLocation(str(conftest), line),
        {"reason": "conftest"},
    )
