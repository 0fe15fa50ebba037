"""What of a collection of vectors no test is run with, and rules that no case of ours meets."""

from __future__ import annotations

from typing import Any, Final

import pytest
from held_vectors import held
from vector_cases import FILES, cases_of, departing, folder, is_ours

NO_COUNTERPART: Final = {
    ("evalview.jsonl", "diff_multi_reference"): (
        "a run is compared with one other run: there are no variants of a golden answer"
    ),
    ("scenario.jsonl", "discover.rank"): (
        "no source trees are read: what an agent is for is told, or asked"
    ),
}
"""What others have and kindlm has nothing like, by file and area, with the reason."""


def not_served() -> list[Any]:
    """Return the cases that no test is run with, each with the reason."""
    found = []
    for file in FILES:
        tests = list(held(file))
        served = frozenset[str]().union(*(test.areas for test in tests))
        for case in cases_of(file):
            if not any(test.serves(case) for test in tests):
                reason = _reason(file, case, served)
                found.append(pytest.param(reason, id=f"{case['id']} ({case['area']})"))
    found += [
        pytest.param("no test reads such a file", id=path.name)
        for path in sorted(folder().glob("*.jsonl"))
        if path.name not in FILES
    ]
    return found


def _reason(file: str, case: dict[str, Any], served: frozenset[str]) -> str:
    if case["area"] is None:
        return "it is no case: an id, an area, an input object and expected values make one"
    if case["area"] in served:
        return f"unknown input: no test of {case['area']} is for {', '.join(case['input'])}"
    return NO_COUNTERPART.get((file, case["area"]), f"no test is for {case['area']}")


@pytest.mark.parametrize("reason", not_served())
def test_a_case_that_no_test_serves(reason: str) -> None:
    """Each is told by its name; of our own cases, they are those that have no counterpart."""
    if is_ours():
        assert reason in NO_COUNTERPART.values()
    pytest.xfail(f"not served: {reason}")


@pytest.mark.skipif(not is_ours(), reason="other collections need not meet each rule of ours")
@pytest.mark.parametrize("file", FILES)
def test_each_rule_is_met_by_a_case_of_ours(file: str) -> None:
    met: set[str] = set()
    for test in held(file):
        for case in cases_of(file):
            if test.serves(case):
                met.update(rule.rule for rule in departing(case, test.departures)[1])
    assert {rule.rule for test in held(file) for rule in test.departures} == met


@pytest.mark.skipif(not is_ours(), reason="other collections need not have each area")
@pytest.mark.parametrize("file", FILES)
def test_each_area_that_a_test_serves_is_in_our_cases(file: str) -> None:
    served = frozenset[str]().union(*(test.areas for test in held(file)))
    areas = {case["area"] for case in cases_of(file)}
    assert served <= areas
    assert {area for name, area in NO_COUNTERPART if name == file} <= areas
