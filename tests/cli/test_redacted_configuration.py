"""A configuration that says a secret in pieces is recorded as `[redacted]`: commands go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SECRET = "hunter2-hunter3"


@pytest.fixture
def recorded(here: Path, kindlm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of a suite, the second one with another text."""
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    tools = [
        {"name": "a", "description": SECRET[:7]},
        {"name": "b", "description": SECRET[7:]},
    ]
    expect = {"output": {"contains": "Hi"}}
    test = {"name": "greets", "input": "Hi", "tools": tools, "expect": expect}
    suite = {
        "suite": {"name": "shop", "description": SECRET},
        "providers": {"scripted": {"replies": {"text": "Hi"}}},
        "models": {"id": "clerk", "provider": "scripted", "model": "clerk-1"},
        "tests": [test],
    }
    for text in ("Hi", "Hello"):
        test["input"] = text
        (here / "kindlm.yaml").write_text(json.dumps(suite), encoding="utf-8")
        assert kindlm("test").code == 0


@pytest.mark.usefixtures("recorded")
def test_runs_with_it_are_compared_shown_and_tested_again(kindlm: Any) -> None:
    compared = kindlm("diff", "previous", "latest")
    assert compared.code == 0, compared.err
    assert "Configuration" in compared.out
    document = kindlm("report", "latest", "--format", "compliance")
    assert (document.code, "was withheld from the history" in document.out) == (0, True)
    left_out = kindlm("gen", "--from-run", "latest", "1")
    assert "pass --agent, or --provider and --model" in left_out.err
    again = kindlm("test", "--cache")
    assert (again.code, "itself failed" in again.err) == (0, False)
