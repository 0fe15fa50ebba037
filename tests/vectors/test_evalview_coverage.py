"""Every vector of EvalView is held by some test, or stands here with the reason why it is not."""

from __future__ import annotations

from typing import Final

from held_vectors import held, vectors

FILE: Final = "evalview.jsonl"

NO_COUNTERPART: Final = {
    "mr-best": "a run is compared with one other run: there are no variants of a golden answer",
    "mr-severity": "a run is compared with one other run: there are no variants of a golden answer",
}
"""What EvalView has and kindlm has nothing like, by vector."""

NOT_COMPARED: Final = {
    "statistics": "least, largest and percentiles of scores: mean, spread and interval are told",
    "statistical_mode": "the number and the name of flakiness (`kindlm runs --test` tells how often"
    " repeats, and runs, disagree), and reasons that decide nothing",
    "diff_status": "the similarity of two answers as a number: words that changed are told",
    "diff_per_turn": "a status for each turn: calls are compared over the whole conversation",
    "diff_command": "the similarity of two answers as a number: words that changed are told",
}
"""What of the vectors of an area is not looked at, since kindlm does not tell it."""


def held_areas() -> set[str]:
    return {name for test in held(FILE) for name in test.names}


def test_every_vector_is_held_or_has_no_counterpart() -> None:
    areas = held_areas()
    left_out = {one["id"] for one in vectors(FILE) if one["area"] not in areas}
    assert left_out == set(NO_COUNTERPART)


def test_the_tables_name_what_there_is() -> None:
    assert set(NO_COUNTERPART) <= {one["id"] for one in vectors(FILE)}
    assert set(NOT_COMPARED) <= held_areas()
