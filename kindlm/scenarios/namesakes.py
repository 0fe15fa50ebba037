"""Scenarios that stand in a file and not in its module.

Python keeps the last of a name, and what a decorator makes of a function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from kindlm.errors import ErrorCode, KindlmError, SourceLocation

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Definition: TypeAlias = _Function | ast.ClassDef


def namesakes(source: bytes, file: str) -> list[KindlmError]:
    """Return an error for each scenario that is lost since a later test has its name.

    Only what stands beside each other counts, not the two sides of an `if`.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []  # told by the import
    return [_error(*pair, file) for pair in _pairs(tree.body, "")]


def written_scenarios(source: bytes) -> frozenset[str]:
    """Return the names of all functions that have `@scenario`, with those of their classes."""
    try:
        return frozenset(_written(ast.parse(source), ""))
    except (SyntaxError, ValueError):
        return frozenset()  # told by the import


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
    return any(_is_scenario(decorator) for decorator in node.decorator_list)


def _is_scenario(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name == "scenario"


def _error(name: str, first: _Definition, second: _Definition, file: str) -> KindlmError:
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"There are two {name}, in line {first.lineno} and in line {second.lineno}:"
        " the first would be lost",
        "Give one of them another name.",
        SourceLocation(file, second.lineno),
        {"reason": "duplicate"},
    )
