"""Which cases of a file of vectors the tests are run with."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vector_cases import Departure, safely

VECTORS: Final = Path(__file__).parents[1] / "vectors"


@dataclass(frozen=True, slots=True)
class Held:
    """What one test is run with: the cases of these areas for which `where` holds."""

    name: str
    areas: frozenset[str]
    departures: tuple[Departure, ...]
    where: Callable[[dict[str, Any]], bool]

    def serves(self, case: dict[str, Any]) -> bool:
        return case["area"] in self.areas and safely(self.where, case)


def held(file: str) -> Iterator[Held]:
    """Yield what each test of a file of vectors is run with."""
    for path in sorted(VECTORS.glob(f"test_{Path(file).stem}_*.py")):
        for name, value in loaded(path).items():
            for mark in getattr(value, "pytestmark", ()) if name.startswith("test_") else ():
                if mark.name == "vectors" and mark.args[0] == file:
                    yield Held(
                        f"{path.stem}::{name}",
                        frozenset(mark.args[1:]),
                        tuple(mark.kwargs.get("departures", ())),
                        mark.kwargs.get("where", lambda case: True),
                    )


def loaded(path: Path) -> dict[str, Any]:
    """Return the names in a module of tests, as a module of its own: to change them is harmless."""
    spec = importlib.util.spec_from_file_location(f"held_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their own module
    spec.loader.exec_module(module)
    return vars(module)
