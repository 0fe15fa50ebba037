"""Every vector of suites is held by some test; tests and departures name vectors that there are."""

from __future__ import annotations

from typing import Final

from held_vectors import held, vectors

FILE: Final = "suite.jsonl"


def test_every_vector_is_held() -> None:
    names = {name for test in held(FILE) for name in test.names}
    left_out = [one["id"] for one in vectors(FILE) if not {one["id"], one["area"]} & names]
    assert left_out == []


def test_tests_and_departures_name_what_there_is() -> None:
    ids = {one["id"] for one in vectors(FILE)}
    areas = {one["area"] for one in vectors(FILE)}
    for test in held(FILE):
        assert test.names <= ids | areas
        assert test.departures.keys() <= ids
