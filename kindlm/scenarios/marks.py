"""The marks of pytest where no pytest runs: which a test has, and whether they skip it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def marks_of(owner: Any) -> list[Any]:
    """Return the marks that a function, a class with those it comes from, or a module has."""
    if isinstance(owner, type):
        written = [vars(each).get("pytestmark", ()) for each in reversed(owner.__mro__)]
    else:
        written = [getattr(owner, "pytestmark", ())]
    marks: list[Any] = []
    for each in written:
        marks += each if isinstance(each, list | tuple) else [each]
    return [mark for mark in marks if hasattr(mark, "kwargs")]


def marks_named(name: str, marks: Iterable[Any]) -> list[Any]:
    """Return the marks of a name."""
    return [mark for mark in marks if getattr(mark, "name", "") == name]


def is_skipped(marks: Sequence[Any]) -> bool:
    """Tell whether marks keep a test from being run: skip, skipif, or xfail with `run=False`."""
    if marks_named("skip", marks):
        return True
    if any(_holds(mark) for mark in marks_named("skipif", marks)):
        return True
    never = (mark for mark in marks_named("xfail", marks) if not mark.kwargs.get("run", True))
    return any(_holds(mark) for mark in never)


def open_condition(marks: Sequence[Any]) -> str | None:
    """Return a condition of skipif that is a text: only pytest has the names that it may use."""
    for mark in marks_named("skipif", marks):
        for condition in _conditions(mark):
            if isinstance(condition, str):
                return condition
    return None


def _holds(mark: Any) -> bool:
    conditions = _conditions(mark)
    if not conditions:
        return True
    return any(not isinstance(each, str) and bool(each) for each in conditions)


def _conditions(mark: Any) -> tuple[Any, ...]:
    return (mark.kwargs["condition"],) if "condition" in mark.kwargs else tuple(mark.args)
