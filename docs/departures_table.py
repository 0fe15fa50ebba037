"""Writes the table of `departures.md`: where scenarios do otherwise than the cases expect."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "shared"))

from scenario_departures import DEPARTURES, scenario_vectors

__all__ = ["departures_table"]


def departures_table() -> str:
    """Return a line on how many cases there are, and a row for each departure."""
    vectors = list(scenario_vectors())
    told = [
        (vector["id"], vector["area"], vector.get("note", ""), DEPARTURES[vector["id"]])
        for vector in vectors
        if vector["id"] in DEPARTURES
    ]
    rows = [
        f"| `{name}` | `{area}` | {_cell(there)} | {_cell(here.rule)} |"
        for name, area, there, here in told
    ]
    head = "| case | about | seen there | in kindlm |\n| --- | --- | --- | --- |"
    counted = f"Of {len(vectors)} cases, these are the {len(rows)} that kindlm departs from:"
    return "\n".join([counted, "", head, *rows]) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
