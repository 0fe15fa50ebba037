"""`pytest.mark.parametrize` where no pytest runs: the same cases, with the same names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

__all__ = ["Parameters", "Unsupported", "parameters_of"]


@dataclass(frozen=True, slots=True)
class Parameters:
    """One case of a parametrised test; `id` stands in the brackets of its name."""

    id: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Why a test can only be run by pytest."""

    why: str


def parameters_of(
    function: Callable[..., Any], *, bound: bool
) -> tuple[str, list[Parameters] | Unsupported]:
    """Return the argument that takes the trial, and the cases of a test.

    `bound` tells that the first argument is the object of a method. There is one argument that is
    no parameter; any other would be a fixture.
    """
    marks = getattr(function, "pytestmark", ())
    marks = marks if isinstance(marks, list) else [marks]
    sets = [_cases(mark) for mark in marks if getattr(mark, "name", "") == "parametrize"]
    given = {name for cases in sets for case in cases for name in case.arguments}
    names = list(inspect.signature(function).parameters.values())[1 if bound else 0 :]
    free = [p.name for p in names if p.name not in given and p.default is inspect.Parameter.empty]
    trial = _trial_in(names, free)
    fixtures = [name for name in free if name != trial]
    if trial not in [p.name for p in names]:
        return trial, Unsupported("it takes no trial: give it an argument t: Trial")
    if fixtures:
        return trial, Unsupported(f"it needs the fixture {fixtures[0]}: run pytest --kindlm")
    # As in pytest, the decorator that is nearest to the function comes first.
    return trial, [_merged(cases) for cases in product(*sets)] if sets else []


def _trial_in(parameters: Sequence[inspect.Parameter], free: Sequence[str]) -> str:
    """Return the argument that says it is a trial, else `t`, else the first one."""
    annotated = next((p.name for p in parameters if _is_trial(p)), None)
    return annotated or ("t" if "t" in free or not free else free[0])


def _is_trial(parameter: inspect.Parameter) -> bool:
    written = parameter.annotation
    name = written if isinstance(written, str) else getattr(written, "__name__", "")
    return name.rpartition(".")[2] in ("Trial", "SyncTrial")


def _merged(cases: Sequence[Parameters]) -> Parameters:
    arguments = {name: value for case in cases for name, value in case.arguments.items()}
    return Parameters("-".join(case.id or "" for case in cases), arguments)


def _cases(mark: Any) -> list[Parameters]:
    given = dict(zip(("argnames", "argvalues"), mark.args, strict=False)) | mark.kwargs
    names, values = given["argnames"], given["argvalues"]
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    names = [name for name in names if name]
    found = []
    for index, value in enumerate(values):
        own_id = None
        if hasattr(value, "marks"):  # a pytest.param
            own_id, value = value.id, value.values  # noqa: PLW2901 - what it stands for
        elif len(names) == 1:
            value = (value,)  # noqa: PLW2901 - as above
        row = tuple(value)
        name = own_id or _id(given.get("ids"), index, names, row)
        found.append(Parameters(name, dict(zip(names, row, strict=True))))
    return list(_distinct(found))


def _id(ids: Any, index: int, names: Sequence[str], row: Sequence[Any]) -> str:
    if ids is not None and not callable(ids):
        given = list(ids)[index]
        if given is not None:
            return str(given)
    parts = []
    for name, value in zip(names, row, strict=True):
        made = ids(value) if callable(ids) else None
        parts.append(_word(value, f"{name}{index}") if made is None else str(made))
    return "-".join(parts)


def _word(value: Any, otherwise: str) -> str:
    if isinstance(value, str):
        return value.encode("unicode_escape").decode("ascii")
    if value is None or isinstance(value, bool | int | float | complex):
        return str(value)
    named = getattr(value, "__name__", None)
    return named if isinstance(named, str) else otherwise


def _distinct(cases: Sequence[Parameters]) -> Iterator[Parameters]:
    """Number cases of the same name, as pytest does."""
    ids = [case.id for case in cases]
    seen: dict[str | None, int] = {}
    for case in cases:
        if ids.count(case.id) == 1:
            yield case
            continue
        number = seen.get(case.id, 0)
        seen[case.id] = number + 1
        joint = "_" if (case.id or "")[-1:].isdigit() else ""
        yield Parameters(f"{case.id}{joint}{number}", case.arguments)
