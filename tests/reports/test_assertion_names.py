"""How reports name an assertion: by its kind and its label."""

from __future__ import annotations

import pytest

from kindlm.history.rows import AssertionView
from kindlm.outcome import Outcome
from kindlm.reports.conversation import assertion_name


@pytest.mark.parametrize(
    ("kind", "label", "name"),
    [
        ("word_count", "word_count", "word_count"),
        ("word_count", "word_count #2", "word_count #2"),
        ("contains", "lost", "contains lost"),
        ("contains", "lost #2", "contains lost #2"),
        ("contains", "contains it", "contains contains it"),
        ("latency", "turn 2: latency", "latency turn 2: latency"),
    ],
)
def test_the_kind_is_not_said_twice(kind: str, label: str, name: str) -> None:
    failed = AssertionView(kind, label, Outcome.FAILED, duration_ms=0.0, line=None, advisory=False)
    assert assertion_name(failed) == name
