"""The cases of a collection of vectors, the rules by which kindlm departs from them, and gaps.

A collection is a folder with files of cases: that of the repository, or the one that the
environment variable `KINDLM_VECTORS` names. A case of any collection is run by its area, or is
reported by name as not served; nothing here knows a case by its id.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn

Case = dict[str, Any]

OURS: Final = Path(__file__).parents[1] / "vectors" / "data"
FILES: Final = ("suite.jsonl", "evalview.jsonl", "scenario.jsonl")
_ABOUT: Final = {"case", "upstream_quirk", "note"}
"""What describes a case to a reader: no test has to look at it."""
_NOT_UNDERSTOOD: Final = (KeyError, TypeError, AttributeError, IndexError, ValueError)


class NoCounterpart(Exception):  # noqa: N818
    """kindlm has nothing that the case could be run against; says what there is instead."""


class UnknownInput(Exception):  # noqa: N818
    """The tests cannot tell what the case wants; says which part of it they do not know."""


def unknown(what: str) -> NoReturn:
    raise UnknownInput(f"unknown input: {what}")


def known(part: Any, *names: str) -> Any:
    """Return a part of a case whose keys are all among `names`; others are unknown input."""
    if isinstance(part, Mapping) and (more := [name for name in part if name not in names]):
        unknown(", ".join(map(str, more)))
    return part


class Tracked(dict[str, Any]):
    """The input, or the expected values, of a case; knows which of them nobody has looked at."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self._unread = set(values) - _ABOUT

    @property
    def unread(self) -> frozenset[str]:
        return frozenset(self._unread)

    def __missing__(self, name: str) -> NoReturn:
        unknown(f"no {name}")

    def __getitem__(self, name: str) -> Any:
        self._unread.discard(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401

    def __iter__(self) -> Iterator[str]:
        self._unread.clear()
        return super().__iter__()

    def keys(self) -> Any:
        self._unread.clear()
        return super().keys()

    def values(self) -> Any:
        self._unread.clear()
        return super().values()

    def items(self) -> Any:
        self._unread.clear()
        return super().items()

    def __or__(self, other: Any) -> Any:
        return dict(self.items()) | dict(other)

    def __eq__(self, other: object) -> bool:
        self._unread.clear()
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]


def safely(predicate: Callable[[Case], bool], case: Case) -> bool:
    """Return what a predicate says of a case; of one of another shape, that it does not hold."""
    try:
        return bool(predicate(case))
    except _NOT_UNDERSTOOD:
        return False


@dataclass(frozen=True, slots=True)
class Departure:
    """A rule of ours that other programs do not have, and the cases in which that shows.

    `where` tells by input and expected values whether a case is one. `ours` makes what kindlm does
    instead: values that take the place of those of the case (`...` takes one away), and those
    beyond them tell more. Without it, a test is held to fail: kindlm has to differ somehow.
    """

    rule: str
    where: Callable[[Case], bool]
    ours: Mapping[str, Any] | Callable[[Case], Any] | None = None

    def holds_for(self, case: Case) -> bool:
        """Tell whether a case is met by the rule, and expects something else.

        One of another shape is not: it is for the test to say what it does not know.
        """
        return safely(self.where, case) and (
            self.ours is None
            or safely(lambda case: self.of(case)["expected"] != case["expected"], case)
        )

    def of(self, case: Case) -> Case:
        """Return a case with what kindlm is expected to do."""
        if self.ours is None:
            return case
        ours = self.ours(case) if callable(self.ours) else self.ours
        if isinstance(ours, Mapping) and isinstance(case["expected"], Mapping):
            ours = {
                name: value
                for name, value in {**case["expected"], **ours}.items()
                if value is not ...
            }
        return case | {"expected": ours}


def departing(case: Case, rules: Iterable[Departure]) -> tuple[Case, tuple[Departure, ...]]:
    """Return a case with what kindlm is expected to do, and the rules that say so."""
    met = []
    for rule in rules:
        if rule.holds_for(case):
            met.append(rule)
            case = rule.of(case)
    return case, tuple(met)


def folder() -> Path:
    """Return the folder of the collection that the tests are to run."""
    return Path(os.environ.get("KINDLM_VECTORS") or OURS)


def is_ours() -> bool:
    """Tell whether the collection is that of the repository, of which no case may be unknown."""
    return folder().resolve() == OURS.resolve()


def cases_of(file: str, *, within: Path | None = None) -> list[Case]:
    """Return the cases of a file; another collection need not have each file.

    With those of the repository are the cases of our own, in `added/`. A line that is no case is
    one without an area, so that it is reported by its place.
    """
    if within is not None:
        return [*_read(within / file)]
    if is_ours():
        return [*_read(OURS / file), *_read(OURS / "added" / file)]
    path = folder() / file
    return [*_read(path)] if path.exists() else []


@cache
def _read(path: Path) -> list[Case]:
    # Not splitlines(): texts hold other line separators of Unicode.
    lines = path.read_text(encoding="utf-8").split("\n")
    file = path.name
    return [_case(line, f"{file}:{number}") for number, line in enumerate(lines, start=1) if line]


def _case(line: str, place: str) -> Case:
    try:
        read = json.loads(line)
        has_all = isinstance(read["area"], str) and "expected" in read and "input" in read
    except _NOT_UNDERSTOOD:
        read, has_all = {}, False
    if not has_all or not isinstance(read["input"], dict):
        name = read.get("id", "") if isinstance(read, dict) else ""
        return {"id": f"{place} {name}".strip(), "area": None, "input": {}, "expected": None}
    return {**read, "id": str(read.get("id", place))}
