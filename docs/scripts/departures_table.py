"""Writes the table of `departures.md`: where scenarios do otherwise than the cases expect."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "shared"))

from scenario_departures import DEPARTURES, NO_TREES
from vector_cases import OURS, cases_of, departing


def departures_table() -> str:
    """Return a line on how many cases there are, and a row for each one that a rule is about."""
    cases = cases_of("scenario.jsonl", within=OURS)
    rows = []
    for case in cases:
        rules = [rule.rule for rule in departing(case, DEPARTURES)[1]]
        if case["area"] == "discover.rank":
            rules = [NO_TREES]
        if rules:
            told = (case.get("note", ""), "; ".join(rules))
            there, here = (text.replace("|", "\\|") for text in told)
            rows.append(f"| `{case['id']}` | `{case['area']}` | {there} | {here} |")
    head = "| case | about | seen there | in kindlm |\n| --- | --- | --- | --- |"
    counted = f"Of {len(cases)} cases, these are the {len(rows)} that kindlm departs from:"
    return "\n".join([counted, "", head, *rows]) + "\n"
