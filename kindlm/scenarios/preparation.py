"""What pytest does before a test without being asked for it by an argument.

Where no pytest runs, none of this happens, and a test that counts on it is not run.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation
from kindlm.scenarios.marks import marks_named

_OF_MODULES = (
    "setup_module",
    "setUpModule",
    "teardown_module",
    "tearDownModule",
    "pytest_generate_tests",
)
_OF_FUNCTIONS = ("setup_function", "teardown_function")
_OF_CLASSES = (
    "setup_class",
    "teardown_class",
    "setup_method",
    "teardown_method",
    "pytest_generate_tests",
)


def prepares(owner: type | ModuleType, *, functions: bool = False) -> str | None:
    """Return what a module or a class does before its tests; None if it does nothing.

    `functions` asks about the functions of a module that are in no class.
    """
    if isinstance(owner, type):
        named: Sequence[str] = _OF_CLASSES
        values = {
            name: value for each in reversed(owner.__mro__) for name, value in vars(each).items()
        }
    else:
        named = _OF_FUNCTIONS if functions else _OF_MODULES
        values = vars(owner)
    found = next((name for name in named if callable(getattr(owner, name, None))), None)
    if found is not None:
        return f"only pytest calls {found}"
    if functions:
        return None
    fixture = next((name for name, value in values.items() if _is_automatic(value)), None)
    return None if fixture is None else f"it needs the fixture {fixture}, which is automatic"


def prepared_by_marks(marks: Sequence[Any]) -> str | None:
    """Return which fixture a mark asks for."""
    asked = (name for mark in marks_named("usefixtures", marks) for name in mark.args)
    name = next(asked, None)
    return None if name is None else f"it needs the fixture {name}"


def prepared_by_conftest(file: Path, root: Path) -> Result[str | None]:
    """Return which automatic fixture is defined in a conftest.py that applies to a file.

    Those are in its folder and in the folders above it up to `root`. They are read, not run; what
    one prepares that can not be read, nobody knows, and pytest would run no test there.
    """
    folder, root = file.resolve().parent, root.resolve()
    folders = [folder, *folder.parents] if folder.is_relative_to(root) else [folder]
    for each in folders:
        found = _automatic_in(each / "conftest.py")
        if isinstance(found, Err):
            return found
        if found.value is not None:
            place = f"{each.name}/conftest.py"
            return Ok(f"it needs the fixture {found.value} of {place}, which is automatic")
        if each == root:
            break
    return Ok(None)


def _is_automatic(value: object) -> bool:
    """Tell whether something is a fixture with `autouse`; pytest keeps that in one of these."""
    for name in ("_fixture_function_marker", "_pytestfixturefunction"):
        marker = getattr(value, name, None)
        if getattr(marker, "autouse", False) is True:
            return True
    return False


def _automatic_in(conftest: Path) -> Result[str | None]:
    try:
        tree = ast.parse(conftest.read_bytes())
    except FileNotFoundError:
        return Ok(None)
    except (OSError, SyntaxError, ValueError) as error:
        return Err(_unreadable(conftest, error))
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in node.decorator_list:
            given = decorator.keywords if isinstance(decorator, ast.Call) else []
            # A value that is computed may be true.
            if any(each.arg == "autouse" and not _is_false(each.value) for each in given):
                return Ok(node.name)
    return Ok(None)


def _unreadable(conftest: Path, error: Exception) -> KindlmError:
    line, why = (error.lineno, error.msg) if isinstance(error, SyntaxError) else (None, error)
    return KindlmError(
        ErrorCode.CONFIG_PARSE_ERROR,
        f"The conftest.py can not be read: {type(error).__name__}: {why}",
        "Mend it: the tests in its folder did not run, since it may prepare something for them.",
        SourceLocation(str(conftest), line),
        {"reason": "conftest"},
    )


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value
