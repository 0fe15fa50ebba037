"""Every vector of EvalView is held by some test, or stands here with the reason why it is not."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HERE = Path(__file__).parent
FILE = "evalview.jsonl"

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


def held_areas() -> Iterator[str]:
    """Yield the areas that tests are run with."""
    for path in sorted(set(HERE.glob("test_evalview_*.py")) - {Path(__file__)}):
        spec = importlib.util.spec_from_file_location(f"held_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, value in vars(module).items():
            for mark in getattr(value, "pytestmark", ()) if name.startswith("test_") else ():
                if mark.name == "vectors" and mark.args[0] == FILE:
                    yield from mark.args[1:]


def vectors() -> dict[str, str]:
    lines = (HERE / "data" / FILE).read_text("utf-8").split("\n")
    return {one["id"]: one["area"] for one in map(json.loads, filter(None, lines))}


def test_every_vector_is_held_or_has_no_counterpart() -> None:
    found, held = vectors(), set(held_areas())
    assert {name for name, area in found.items() if area not in held} == set(NO_COUNTERPART)


def test_the_tables_name_what_there_is() -> None:
    assert set(NO_COUNTERPART) <= vectors().keys()
    assert set(NOT_COMPARED) <= set(held_areas())
