"""`kindlm diff` of a suite whose tests expect something else, with the same result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SUITE: dict[str, Any] = {
    "kindlm": 1,
    "project": "shop",
    "suite": {"name": "orders"},
    "providers": {"fake": {"type": "scripted", "replies": [{"text": "A good day."}]}},
    "models": [{"id": "fake", "provider": "fake", "model": "fake-1"}],
    "prices": {"fake-1": {"input": 0, "output": 0}},
    "prompts": {"ask": {"user": "hello"}},
}

Record = Callable[..., None]


@pytest.fixture
def record(here: Path, kindlm: Any) -> Record:
    """Run a suite whose test `greets` expects of the output what is given."""

    def call(*, repeats: int = 3, **output: Any) -> None:
        test = {"name": "greets", "prompt": "ask", "expect": {"output": output}}
        suite = json.dumps(SUITE | {"tests": [test]})
        (here / "kindlm.yaml").write_text(suite, "utf-8")
        done = kindlm("test", "--quiet", "--runs", str(repeats))
        assert done.code == 0, done.err

    return call


@pytest.mark.parametrize("repeats", [1, 3])
def test_an_expectation_that_was_taken_away_is_named_at_its_test(
    kindlm: Any, record: Record, repeats: int
) -> None:
    record(contains=["good"], maxLength=100, repeats=repeats)
    record(contains=["good"], repeats=repeats)
    done = kindlm("diff")
    assert done.code == 0
    assert "Same result, different checks" in done.out
    assert f"greets · fake  passed {repeats}/{repeats}  unchanged" in done.out
    assert "test definition changed: expect" in done.out
    assert f"{repeats}/{repeats} → not checked" in done.out
    assert "UNCHANGED: 1 test checked something else with the same result" in done.out
    assert "as before" not in done.out
    (test,) = json.loads(kindlm("diff", "--format", "json").out)["tests"]
    (gone,) = (check for check in test["details"]["checks"] if not check["after"]["of"])
    assert gone["before"] == {"passed": repeats, "of": repeats, "score": 1.0}
    assert test["changed"]["checksMade"]


def test_the_same_expectations_are_no_other_checks(kindlm: Any, record: Record) -> None:
    record(contains=["good"], maxLength=100)
    record(contains=["good"], maxLength=100)
    done = kindlm("diff")
    assert "Unchanged: 1 test" in done.out
    assert "1 as before" in done.out
