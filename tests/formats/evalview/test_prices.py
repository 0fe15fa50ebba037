"""What the tokens of an agent cost: the price of the model that it names, else of the project's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from evalview_agents import handler_of, serving

from kindlm.cli.app import run

CONFIG = ".evalview/config.yaml"


@pytest.fixture
def answering() -> Iterator[Callable[[dict[str, Any]], str]]:
    """Start an agent that answers this; return where it is."""
    with ExitStack() as agents:
        yield lambda reply: agents.enter_context(serving(handler_of(lambda *_: reply)))


@pytest.mark.parametrize(
    ("told", "config", "usd"),
    [
        ({"model": "gpt-4o"}, "", 2.5),
        ({}, "", None),
        ({}, "model: gpt-4o", 2.5),
        ({}, "model: {name: ours, pricing: {input_per_1m: 7, output_per_1m: 9}}", 7.0),
        ({"model": "ours"}, "model: {name: ours, pricing: {input_per_1m: 7, output_per_1m: 9}}", 7),
        ({"model": "x"}, "model: {name: ours, pricing: {input_per_1m: 7, output_per_1m: 9}}", None),
    ],
)
def test_tokens_have_the_price_of_the_model_that_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answering: Callable[[dict[str, Any]], str],
    case_text: str,
    told: dict[str, Any],
    config: str,
    usd: float | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KINDLM_DB", raising=False)
    url = answering({"response": "x", "tokens": {"input": 1_000_000, "output": 0}, **told})
    (tmp_path / "tests").mkdir()
    (tmp_path / ".evalview").mkdir()
    (tmp_path / CONFIG).write_text(config or "{}", "utf-8")
    text = case_text.replace("min_score: 70", "min_score: 70, max_cost: 2.6")
    text = text.replace("http://127.0.0.1:9/ask", url)
    (tmp_path / "tests" / "case.yaml").write_text(text, "utf-8")
    run(["test", "--no-progress", "-q", "tests", "--reporter", "json=report.json"])
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    (test,) = report["tests"]
    (cost,) = [item for item in test["executions"][0]["assertions"] if item["kind"] == "cost"]
    outcome = "inconclusive" if usd is None else "passed" if usd < 2.6 else "failed"
    assert (cost["outcome"], test["executions"][0]["costUsd"]) == (outcome, usd)


def test_a_price_needs_the_name_of_its_model(load: Callable[..., Any], case_text: str) -> None:
    config = "model: {pricing: {input_per_1m: 1, output_per_1m: 2}}"
    loaded = load({CONFIG: config, "case.yaml": case_text})
    assert not loaded.suites
    (error,) = loaded.diagnostics
    assert (error.path, "`name:`" in error.error.hint) == ("model", True)
