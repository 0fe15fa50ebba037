"""Reads the source text of test files and of conftest.py without running them.

A module lacks a scenario that a later function of the same name replaced, or that another decorator
hides. Only the source text shows it.
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
    """The scenarios in the source text of a test file.

    `scenarios` are the names of all functions with `@scenario`, after those of their classes.
    `namesakes` has an error for each scenario that a later test of the same name replaces; the two
    sides of an `if` may define the same name.
    """

    scenarios: frozenset[str] = frozenset()
    namesakes: tuple[KindlmError, ...] = ()


def read_text(source: bytes, file: str) -> FileText:
    """Read a test file; the result is empty if it is not Python, which its import reports."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return FileText()
    lost = tuple(_error(*pair, file) for pair in _pairs(tree.body, ""))
    return FileText(frozenset(_scenario_names(tree, "")), lost)


def _scenario_names(node: ast.AST, prefix: str) -> Iterator[str]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.ClassDef):
            yield from _scenario_names(each, f"{prefix}{each.name}::")
        elif isinstance(each, _Function):
            if _has_scenario(each):
                yield f"{prefix}{each.name}"
        else:
            yield from _scenario_names(each, prefix)


def _pairs(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, _Definition, _Definition]]:
    """Yield tests with the same name, at least one of them a scenario."""
    first: dict[str, _Definition] = {}
    for node in _all_run(body):
        if not isinstance(node, _Definition) or not node.name.lower().startswith("test"):
            continue
        other = first.setdefault(node.name, node)
        if other is not node and (_has_scenario(other) or _has_scenario(node)):
            yield f"{prefix}{node.name}", other, node
        if isinstance(node, ast.ClassDef):
            yield from _pairs(node.body, f"{prefix}{node.name}::")


def _all_run(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements that Python runs one after another, also those in `with` and `try`."""
    for node in body:
        match node:
            case ast.With() | ast.AsyncWith():
                yield from _all_run(node.body)
            case ast.Try() | ast.TryStar():
                yield from _all_run([*node.body, *node.orelse, *node.finalbody])
            case _:
                yield node


def _has_scenario(node: _Definition) -> bool:
    if isinstance(node, ast.ClassDef):
        return any(isinstance(each, _Definition) and _has_scenario(each) for each in node.body)
    return "scenario" in map(_decorator_name, node.decorator_list)


def _decorator_name(decorator: ast.expr) -> str:
    """Return the name of a decorator without its module."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _error(name: str, first: _Definition, second: _Definition, file: str) -> KindlmError:
    return misuse(
        f"There are two functions {name}, in line {first.lineno} and in line {second.lineno}:"
        " the first would be lost",
        "Give one of them another name.",
        SourceLocation(file, second.lineno),
        "duplicate",
    )


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
    # A computed value may be true.
    return any(not isinstance(value, ast.Constant) or value.value for value in values)


def _makes_agent(node: ast.AST) -> bool:
    """Return whether a node may define the fixture `agent`, or imports that name."""
    if isinstance(node, ast.ImportFrom):
        return any((each.asname or each.name) == AGENT_FIXTURE for each in node.names)
    if not isinstance(node, _Function):
        return False
    if "fixture" not in map(_decorator_name, node.decorator_list):
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
