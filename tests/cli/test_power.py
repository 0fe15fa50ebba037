"""What a comparison can show is said once by each command, before anything is compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ONE = (
    "With 1 repeat in each run, kindlm cannot tell a regression from bad luck. Use 10 repeats"
    " to tell them apart."
)
TEN = (
    "With 10 repeats in each run, kindlm confirms a drop from 100 % to 0 %, and one to 70 % in 35"
    " of 100 comparisons. Use 30 repeats to find drops more often."
)


@pytest.fixture
def suite(here: Path) -> Any:
    """Write a suite of three tests, whose one model answers as given."""

    def call(answer: str) -> None:
        test = {"prompt": "ask", "expect": {"output": {"contains": ["good"]}}}
        config = {
            "kindlm": 1,
            "project": "shop",
            "suite": {"name": "orders"},
            "providers": {"fake": {"type": "scripted", "replies": [{"text": answer}]}},
            "models": [{"id": "fake", "provider": "fake", "model": "fake-1"}],
            "prices": {"fake-1": {"input": 0, "output": 0}},
            "prompts": {"ask": {"user": "hello"}},
            "tests": [test | {"name": name} for name in ("a", "b", "c")],
        }
        (here / "kindlm.yaml").write_text(json.dumps(config), "utf-8")

    return call


def said(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(("repeats", "sentence"), [(1, ONE), (10, TEN)])
def test_each_command_says_once_what_a_comparison_can_show(
    kindlm: Any, suite: Any, repeats: int, sentence: str
) -> None:
    suite("a good day")
    planned = kindlm("test", "--dry-run", "--runs", str(repeats))
    assert said(planned.out).count(sentence) == 1
    kindlm("test", "--quiet", "--runs", str(repeats))
    chosen = kindlm("baseline", "set")
    assert said(chosen.err).count(sentence) == 1
    suite("a bad day")
    kindlm("test", "--quiet", "--runs", str(repeats))

    compared = kindlm("diff", "previous")
    assert said(compared.err) == sentence
    assert "kindlm confirms" not in compared.out
    data = kindlm("diff", "previous", "--format", "json")
    assert said(data.err) == sentence
    assert json.loads(data.out)["verdict"]["fails"]


def test_that_one_repeat_decides_nothing_is_said_once(kindlm: Any, suite: Any) -> None:
    for answer in ("a good day", "a bad day"):
        suite(answer)
        kindlm("test", "--quiet")
    compared = kindlm("diff", "previous")
    assert compared.code == 1
    assert said(compared.err) == ONE
    assert "would settle" not in compared.out
    assert "by one sample" not in compared.out
    assert "3 tests newly failed" in compared.out
