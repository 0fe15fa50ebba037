"""Reads marks, the fixture `agent` and conftest.py without running pytest.

A parametrised test has the same cases as under pytest, with the same names.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import field
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, SourceLocation
from kindlm.user_modules import SkippedFile, import_file


def marks_of(owner: Any) -> list[Any]:
    """Return the marks of a function, a module, or a class with its bases."""
    if isinstance(owner, type):
        values = [vars(each).get("pytestmark", ()) for each in reversed(owner.__mro__)]
    else:
        values = [getattr(owner, "pytestmark", ())]
    marks: list[Any] = []
    for value in values:
        marks += value if isinstance(value, list | tuple) else [value]
    return [mark for mark in marks if hasattr(mark, "kwargs")]


def marks_named(name: str, marks: Iterable[Any]) -> list[Any]:
    """Return the marks with a name."""
    return [mark for mark in marks if getattr(mark, "name", "") == name]


def why_skipped(marks: Sequence[Any]) -> str | None:
    """Return an empty text if marks skip a test: skip, skipif, or xfail with `run=False`.

    If only pytest can evaluate a condition, the text says so. None if no mark skips the test.
    """
    if marks_named("skip", marks):
        return ""
    hint = None
    never = (mark for mark in marks_named("xfail", marks) if not mark.kwargs.get("run", True))
    for mark in (*marks_named("skipif", marks), *never):
        conditions = [mark.kwargs["condition"]] if "condition" in mark.kwargs else mark.args
        texts = [each for each in conditions if isinstance(each, str)]
        if not conditions or any(each for each in conditions if not isinstance(each, str)):
            return ""
        if texts and hint is None:
            condition = f"its {mark.name} has the text {texts[0]!r} for a condition"
            hint = f"{condition}: run pytest --kindlm"
    return hint


_KEYS = ("argnames", "argvalues", "indirect", "ids", "scope")


@dataclass(frozen=True, slots=True)
class Parameters:
    """One case of a parametrised test; `id` is the text in the brackets of its name."""

    id: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    marks: tuple[Any, ...] = ()


def cases_of(marks: Sequence[Any]) -> list[Parameters]:
    """Return the cases of a test with `marks`, the nearest first; without parameters, it has one.

    Raises whatever the user's values and functions raise.
    """
    # As in pytest, the decorator nearest to the function comes first.
    return [_merged(cases) for cases in product(*map(_cases, _sets(marks)))]


def _sets(marks: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the arguments of the marks `parametrize`."""
    given = marks_named("parametrize", marks)
    return [dict(zip(_KEYS, mark.args, strict=False)) | mark.kwargs for mark in given]


def arguments_of(
    function: Callable[..., Any], marks: Sequence[Any], *, bound: bool
) -> tuple[str | None, str | None]:
    """Return the argument of a test for the trial, and one that only pytest can provide.

    With `bound`, the first argument is the object of a method. The trial is the argument that is
    annotated as one, else `t`, else the only one without a value. Any other without a value is a
    fixture. Values are not read here: an iterator can be read only once.
    """
    sets = _sets(marks)
    with_values = [name for each in sets for name in _names(each)]
    parameters = list(inspect.signature(function).parameters.values())[1 if bound else 0 :]
    free = [
        p.name
        for p in parameters
        if p.name not in with_values
        and p.default is inspect.Parameter.empty
        and p.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]
    annotated = next((p.name for p in parameters if is_trial(p)), None)
    trial = annotated or ("t" if "t" in free else free[0] if len(free) == 1 else None)
    names = [p.name for p in parameters]
    fixtures = [
        *(name for name in free if name != trial),
        *(name for each in sets for name in _names(each) if name in _indirect(each)),
        # A value without an argument may be for a fixture that another fixture needs.
        *(name for name in with_values if name not in names),
    ]
    return trial, next(iter(fixtures), None)


def is_trial(parameter: inspect.Parameter) -> bool:
    """Return whether an argument is annotated as a trial."""
    annotation = parameter.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return name.rpartition(".")[2] in ("Trial", "SyncTrial")


def _names(given: Mapping[str, Any]) -> list[str]:
    names = given.get("argnames", ())
    names = names.split(",") if isinstance(names, str) else list(names)
    return [name.strip() for name in names if name.strip()]


def _indirect(given: Mapping[str, Any]) -> Sequence[str]:
    indirect = given.get("indirect", False)
    return indirect if not isinstance(indirect, bool) else _names(given) if indirect else ()


def _merged(cases: Sequence[Parameters]) -> Parameters:
    arguments = {name: value for case in cases for name, value in case.arguments.items()}
    ids = [case.id for case in cases if case.id is not None]
    marks = tuple(mark for case in cases for mark in case.marks)
    return Parameters("-".join(ids) if ids else None, arguments, marks)


def _cases(given: Mapping[str, Any]) -> list[Parameters]:
    """Return the cases of one mark, made by pytest's own code."""
    import pytest
    from _pytest.mark.structures import ParameterSet
    from _pytest.python import IdMaker

    values, ids = list(given["argvalues"]), given.get("ids")
    names, is_single = ParameterSet._parse_parametrize_args(given["argnames"], values)  # noqa: SLF001
    rows = [ParameterSet.extract_from(value, force_tuple=is_single) for value in values]
    # None everywhere else stands for the defaults of pytest.
    fields: dict[str, Any] = dict.fromkeys(IdMaker.__slots__)
    fields |= {"argnames": names, "parametersets": rows}
    fields |= {"idfn": ids} if callable(ids) else {"ids": None if ids is None else list(ids)}
    try:
        case_ids = IdMaker(**fields).make_unique_parameterset_ids()
    except pytest.fail.Exception as error:
        raise ValueError(str(error)) from error
    return [
        Parameters(
            case_id if isinstance(case_id, str) else None,  # else it is `pytest.HIDDEN_PARAM`
            dict(zip(names, row.values, strict=True)),
            tuple(row.marks),
        )
        for case_id, row in zip(case_ids, rows, strict=True)
    ] or [Parameters("NOTSET", marks=(pytest.mark.skip,))]  # as in pytest


AGENT_FIXTURE = "agent"
"""The fixture that makes the agent under test.

pytest calls its function once in its scope, `kindlm test` once for each conversation."""


@dataclass(frozen=True, slots=True)
class AgentFixture:
    """The function that makes the agent; `hint` says why only pytest can call it."""

    make: Callable[[], Any]
    hint: str | None = None


def agent_fixture(owner: ModuleType | type) -> AgentFixture | None:
    """Return the fixture `agent` of a test file, a class or a conftest.py, if there is one."""
    for name, value in list(vars(owner).items()):
        marker = getattr(value, "_fixture_function_marker", None)
        if marker is not None and (getattr(marker, "name", None) or name) == AGENT_FIXTURE:
            function: Any = inspect.unwrap(value)
            needs = next(iter(inspect.signature(function).parameters), None)
            if inspect.isasyncgenfunction(function):
                function = asynccontextmanager(function)
            elif inspect.isgeneratorfunction(function):
                function = contextmanager(function)
            hint = f"the fixture {AGENT_FIXTURE} needs the fixture {needs}"
            return AgentFixture(function, hint if needs else None)
    return None


def read_conftests(
    file: Path, root: Path, agent: AgentFixture | None
) -> Result[tuple[str | None, AgentFixture | None]]:
    """Read each conftest.py from the folder of a test file up to `root`.

    An unreadable file is an error, since pytest would run no test in its folder. A file is imported
    only if it seems to define the fixture `agent`, which the test file lacks: most of it is for
    pytest.

    Returns:
        A hint about an automatic fixture, if there is one, and `agent` or the nearest such fixture.
    """
    automatic: list[str] = []
    agents: list[Path] = []
    folder, root = file.resolve().parent, root.resolve()
    above = [each for each in (folder, *folder.parents) if each.is_relative_to(root)]
    for each in above or [folder]:
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
    for conftest in agents:
        if agent is not None:
            break
        module = import_file(conftest)
        if isinstance(module, Err):
            return module
        if not isinstance(module.value, SkippedFile):
            agent = agent_fixture(module.value)
    return Ok((next(iter(automatic), None), agent))


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
