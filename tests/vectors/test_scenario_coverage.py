"""Every vector of scenarios is held by one test; departures name vectors, and differ from them."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scenario_departures import DEPARTURES, scenario_vectors

HERE = Path(__file__).parent
FILE = "scenario.jsonl"


def held() -> Iterator[tuple[set[str], Any]]:
    """Yield the areas and ids of each test, and its departures."""
    for path in sorted(set(HERE.glob("test_scenario_*.py")) - {Path(__file__)}):
        spec = importlib.util.spec_from_file_location(f"scenarios_held_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, value in vars(module).items():
            for mark in getattr(value, "pytestmark", ()) if name.startswith("test_") else ():
                if mark.name == "vectors" and mark.args[0] == FILE:
                    yield set(mark.args[1:]), mark.kwargs.get("departures", {})


def test_every_vector_is_held_once_or_has_no_counterpart() -> None:
    tests = list(held())
    times = Counter(
        {
            vector["id"]: sum(bool({vector["id"], vector["area"]} & named) for named, _ in tests)
            for vector in scenario_vectors()
        }
    )
    without = {name for name, departure in DEPARTURES.items() if not departure.ours}
    assert {name for name, number in times.items() if number == 0} == without
    assert {name for name, number in times.items() if number > 1} == set()


def test_the_tests_of_departures_know_them() -> None:
    for named, departures in held():
        for vector in scenario_vectors():
            if {vector["id"], vector["area"]} & named and vector["id"] in DEPARTURES:
                assert departures == DEPARTURES, vector["id"]


def test_departures_are_of_vectors_and_differ_from_them() -> None:
    vectors = {vector["id"]: vector["expected"] for vector in scenario_vectors()}
    assert DEPARTURES.keys() <= vectors.keys()
    for name, departure in DEPARTURES.items():
        expected = vectors[name]
        alike = [key for key, ours in departure.ours.items() if expected.get(key, ...) == ours]
        assert not alike, f"{name}: {alike} is as the vector has it"


def test_the_table_says_what_a_timeout_comes_to() -> None:
    departure = DEPARTURES["fab-cli-024"]
    assert "timeout of the agent" in departure.rule
    assert departure.ours["status_of_a_timeout"] == "errored"
