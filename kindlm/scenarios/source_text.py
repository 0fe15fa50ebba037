"""Reads the text of test files and of conftest.py without running them.

Python keeps only the last function of a name, as its decorators leave it, so a scenario may be in a
file and not in its module. What a conftest.py does before tests, only pytest does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation, misuse
from kindlm.scenarios.marks import AGENT_FIXTURE

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Definition: TypeAlias = _Function | ast.ClassDef


@dataclass(frozen=True, slots=True)
class FileText:
    """What the text of a test file says, whatever came of it when it was imported.

    `scenarios` are the names of all functions under `@scenario`, with those of their classes.
    `namesakes` has an error for each scenario that is lost since a later test has its name; only
    what stands beside each other counts, not the two sides of an `if`.
    """

    scenarios: frozenset[str] = frozenset()
    namesakes: tuple[KindlmError, ...] = ()


def read_text(source: bytes, file: str) -> FileText:
    """Return what a test file says; nothing if it is not Python, which its import reports."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return FileText()
    lost = tuple(_error(*pair, file) for pair in _pairs(tree.body, ""))
    return FileText(frozenset(_written(tree, "")), lost)


def _written(node: ast.AST, inside: str) -> Iterator[str]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.ClassDef):
            yield from _written(each, f"{inside}{each.name}::")
        elif isinstance(each, _Function):
            if _holds_scenario(each):
                yield f"{inside}{each.name}"
        else:
            yield from _written(each, inside)


def _pairs(body: Sequence[ast.stmt], inside: str) -> Iterator[tuple[str, _Definition, _Definition]]:
    first: dict[str, _Definition] = {}
    for node in _beside(body):
        if not isinstance(node, _Definition) or not node.name.lower().startswith("test"):
            continue
        other = first.setdefault(node.name, node)
        if other is not node and (_holds_scenario(other) or _holds_scenario(node)):
            yield f"{inside}{node.name}", other, node
        if isinstance(node, ast.ClassDef):
            yield from _pairs(node.body, f"{inside}{node.name}::")


def _beside(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements that all are run, those in `with` and `try` among them."""
    for node in body:
        match node:
            case ast.With() | ast.AsyncWith():
                yield from _beside(node.body)
            case ast.Try() | ast.TryStar():
                yield from _beside([*node.body, *node.orelse, *node.finalbody])
            case _:
                yield node


def _holds_scenario(node: _Definition) -> bool:
    if isinstance(node, ast.ClassDef):
        return any(isinstance(each, _Definition) and _holds_scenario(each) for each in node.body)
    return "scenario" in map(_called, node.decorator_list)


def _called(decorator: ast.expr) -> str:
    """Return the name of a decorator, without the module that it is from."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _error(name: str, first: _Definition, second: _Definition, file: str) -> KindlmError:
    return misuse(
        f"There are two functions {name}, in line {first.lineno} and in line {second.lineno}:"
        " the first would be lost",
        "Give one of them another name.",
        SourceLocation(file, second.lineno),
        "duplicate",
    )


class Conftests(NamedTuple):
    """What the conftest.py files that apply to a test file define.

    `automatic` says which automatic fixture there is; `agents` are the files that seem to have the
    fixture `agent`, the nearest first.
    """

    automatic: str | None
    agents: tuple[Path, ...]


def read_conftests(file: Path, root: Path) -> Result[Conftests]:
    """Read the files in the folder of a test file and in those above it up to `root`.

    They are not run. One that cannot be read is an error, since pytest would run no test there.
    """
    automatic: str | None = None
    agents: list[Path] = []
    folder, root = file.resolve().parent, root.resolve()
    for each in [folder, *folder.parents] if folder.is_relative_to(root) else [folder]:
        conftest = each / "conftest.py"
        try:
            tree = ast.parse(conftest.read_bytes())
        except FileNotFoundError:
            tree = ast.Module([], [])
        except (OSError, SyntaxError, ValueError) as error:
            return Err(_unreadable(conftest, error))
        functions = (node for node in ast.walk(tree) if isinstance(node, _Function))
        found = next((node.name for node in functions if _is_automatic(node)), None)
        if found is not None and automatic is None:
            automatic = (
                f"it needs the fixture {found} of {each.name}/conftest.py, which is automatic"
            )
        if any(map(_makes_agent, ast.walk(tree))):
            agents.append(conftest)
        if each == root:
            break
    return Ok(Conftests(automatic, tuple(agents)))


def _is_automatic(function: _Function) -> bool:
    calls = (each for each in function.decorator_list if isinstance(each, ast.Call))
    values = [given.value for call in calls for given in call.keywords if given.arg == "autouse"]
    # A value that is computed may be true.
    return any(not isinstance(value, ast.Constant) or value.value for value in values)


def _makes_agent(node: ast.AST) -> bool:
    """Return whether a node defines something that may be the fixture, or imports it by name."""
    if isinstance(node, ast.ImportFrom):
        return any((each.asname or each.name) == AGENT_FIXTURE for each in node.names)
    if not isinstance(node, _Function) or "fixture" not in map(_called, node.decorator_list):
        return False
    calls = (each for each in node.decorator_list if isinstance(each, ast.Call))
    named = (given.value for call in calls for given in call.keywords if given.arg == "name")
    constants = (value.value for value in named if isinstance(value, ast.Constant))
    return AGENT_FIXTURE in (node.name, *constants)


def _unreadable(conftest: Path, error: Exception) -> KindlmError:
    line, why = (error.lineno, error.msg) if isinstance(error, SyntaxError) else (None, error)
    return KindlmError(
        ErrorCode.CONFIG_PARSE_ERROR,
        f"The conftest.py cannot be read: {type(error).__name__}: {why}",
        "Fix it: the tests in its folder did not run, since it may prepare something for them.",
        SourceLocation(str(conftest), line),
        {"reason": "conftest"},
    )
