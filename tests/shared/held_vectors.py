"""Which vectors of a file the tests are run with."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["Held", "held", "vectors"]

_VECTORS: Final = Path(__file__).parents[1] / "vectors"


@dataclass(frozen=True, slots=True)
class Held:
    """What one test is run with: the vectors of these areas, or ids, and its departures."""

    names: frozenset[str]
    departures: Mapping[str, Any]


def vectors(file: str) -> list[dict[str, Any]]:
    """Return the vectors of a file of the repository."""
    lines = (_VECTORS / "data" / file).read_text("utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def held(file: str) -> Iterator[Held]:
    """Yield what each test of a file of vectors is run with."""
    format_name = Path(file).stem
    for path in sorted(_VECTORS.glob(f"test_{format_name}_*.py")):
        for name, value in _loaded(path).items():
            for mark in getattr(value, "pytestmark", ()) if name.startswith("test_") else ():
                if mark.name == "vectors" and mark.args[0] == file:
                    yield Held(frozenset(mark.args[1:]), mark.kwargs.get("departures", {}))


def _loaded(path: Path) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location(f"held_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their own module
    spec.loader.exec_module(module)
    return vars(module)
