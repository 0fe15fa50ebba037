"""Every vector of scenarios is held by one test; departures name vectors, and differ from them."""

from __future__ import annotations

from collections import Counter
from typing import Final

from held_vectors import held
from scenario_departures import DEPARTURES, scenario_vectors

FILE: Final = "scenario.jsonl"


def test_every_vector_is_held_once_or_has_no_counterpart() -> None:
    tests = list(held(FILE))
    times = Counter(
        {
            vector["id"]: sum(bool({vector["id"], vector["area"]} & test.names) for test in tests)
            for vector in scenario_vectors()
        }
    )
    without = {name for name, departure in DEPARTURES.items() if not departure.ours}
    assert {name for name, number in times.items() if number == 0} == without
    assert {name for name, number in times.items() if number > 1} == set()


def test_the_tests_of_departures_know_them() -> None:
    for test in held(FILE):
        for vector in scenario_vectors():
            if {vector["id"], vector["area"]} & test.names and vector["id"] in DEPARTURES:
                assert test.departures == DEPARTURES, vector["id"]


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
