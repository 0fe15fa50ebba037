"""Faults that vectors find: each is put into kindlm, and some case has to fail by it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from held_vectors import VECTORS, loaded
from recorded_history import History, Make
from vector_cases import cases_of, departing, is_ours

from kindlm import matching
from kindlm.engine.calls import retry_delay
from kindlm.history import verdict
from kindlm.matching import Mismatch
from kindlm.outcome import Gate
from kindlm.patterns import DEFAULT_PATTERNS

pytestmark = pytest.mark.skipif(not is_ours(), reason="other collections may find other faults")


class Served:
    """The tests in a module of `tests/vectors`, run with the cases of an area."""

    def __init__(self, module: str, folder: Path) -> None:
        self.names = loaded(VECTORS / module)
        self._folder = folder

    def notice(self, test: str, area: str) -> bool:
        """Tell whether a test fails with any case of an area."""
        departures = self.names.get("DEPARTURES", ())
        return any(
            self._fails(test, departing(case, departures)[0])
            for case in cases_of("suite.jsonl")
            if case["area"] == area
        )

    def _fails(self, test: str, case: dict[str, Any]) -> bool:
        function = self.names[test]
        file = self._folder / f"{case['id'].replace('/', '-')}.db"
        file.unlink(missing_ok=True)
        try:
            if "history" in inspect.signature(function).parameters:
                with closing(History(file)) as history:
                    function(case, history, Make)
            else:
                function(case)
        except AssertionError:
            return True
        return False


def test_a_matcher_to_which_all_texts_are_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = matching._walk

    def without_texts(expected: Any, actual: Any, **options: Any) -> Iterator[Mismatch]:
        for found in walk(expected, actual, **options):
            if not (isinstance(found.expected, str) and isinstance(found.actual, str)):
                yield found

    tests = Served("test_suite_checks.py", tmp_path)
    assert not tests.notice("test_verdicts", "assertion/toolCalls")
    monkeypatch.setattr(matching, "_walk", without_texts)
    assert tests.notice("test_verdicts", "assertion/toolCalls")
    assert tests.notice("test_simulated_tools", "tool_sim")


@pytest.mark.parametrize("gate", ["latencyMaxMs", "costMaxUsd", "passRateMin", "judgeAvgMin"])
def test_a_gate_that_fails_at_its_limit(
    gate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeps_to = verdict._keeps_to

    def strict(of: Gate, actual: float) -> bool:
        return keeps_to(of, actual) and not (of.name == gate and actual == of.threshold)

    tests = Served("test_suite_verdict.py", tmp_path)
    monkeypatch.setattr(verdict, "_keeps_to", strict)
    assert tests.notice("test_gates", "gate")


def test_a_delay_that_does_not_ask_the_provider(tmp_path: Path) -> None:
    tests = Served("test_suite_retry.py", tmp_path)
    assert not tests.notice("test_retries", "retry")
    tests.names["retry_delay"] = lambda attempt, asked_for, jitter, **limits: retry_delay(
        attempt, None, jitter, **limits
    )
    assert tests.notice("test_retries", "retry")


@pytest.mark.parametrize("number", range(len(DEFAULT_PATTERNS)))
def test_a_default_pattern_of_personal_data_that_is_nonsense(number: int, tmp_path: Path) -> None:
    tests = Served("test_suite_checks.py", tmp_path)
    assert not tests.notice("test_personal_data", "assertion/pii")
    broken = list(DEFAULT_PATTERNS)
    broken[number] = "nonsense that is nowhere"
    tests.names["DEFAULT_PATTERNS"] = broken
    assert tests.notice("test_personal_data", "assertion/pii")
