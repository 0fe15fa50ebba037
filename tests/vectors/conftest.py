"""Runs language-neutral cases: see data/README.md."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from scenario_departures import Departure

_DATA = Path(__file__).parent / "data"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker that gives a test its cases."""
    config.addinivalue_line(
        "markers",
        "vectors(file, *areas, departures): run with each `vector` of these areas, or ids, as it "
        "is in the file; `departures` says by id which rule of ours differs, and is held to "
        "differ: its values stand in those that the vector expects, or, of a text, the test fails",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each case that it names, by area or id."""
    marker = metafunc.definition.get_closest_marker("vectors")
    if marker is None:
        return
    file, *areas = marker.args
    departures: Mapping[str, str | Departure] = marker.kwargs.get("departures", {})
    cases = [
        _case(vector, departures.get(vector["id"]))
        for vector in _read(file)
        if {vector["area"], vector["id"]} & set(areas)
    ]
    metafunc.parametrize("vector", cases)


def _case(vector: dict[str, Any], departure: str | Departure | None) -> Any:
    if isinstance(departure, Departure):
        return pytest.param(departure.of(vector), id=vector["id"])
    return pytest.param(vector, id=vector["id"], marks=_departs(departure))


def _departs(rule: str | None) -> list[pytest.MarkDecorator]:
    """Let an assertion fail, and nothing else: a crash is no rule of ours."""
    if rule is None:
        return []
    return [pytest.mark.xfail(reason=rule, strict=True, raises=AssertionError)]


def _read(file: str) -> list[dict[str, Any]]:
    given = os.environ.get("KINDLM_VECTORS")
    path = (Path(given) if given else _DATA) / file
    # Another folder need not have all files; one that is missed here would skip its tests.
    if given and not path.exists():
        return []
    # Not splitlines(): texts hold other line separators of Unicode.
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
