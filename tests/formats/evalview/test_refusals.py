"""What was taken in silence, and is an error where it is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kindlm.cli.app import run

CONFIG = ".evalview/config.yaml"
TURNS = "turns: [{query: hi}, {query: "
STREAMING = "adapter_config: {streaming: "


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("What is the capital of France?", "''", "input.query"),
        ("What is the capital of France?", "'  '", "input.query"),
        ("input: {query: What is the capital of France?}", TURNS + "''}]", "turns[1].query"),
        ("name:", STREAMING + '"yes"}\nname:', "adapter_config.streaming"),
        ("name:", STREAMING + "1}\nname:", "adapter_config.streaming"),
        ("name:", 'adapter_config: {headers: {"a b": c}}\nname:', "adapter_config.headers"),
        ("http://127.0.0.1:9/ask", "file:///etc/hosts", "endpoint"),
        ("France?}", 'France?, context: {"${NAME}": 1}}', "input.context.${NAME}"),
    ],
)
def test_it_is_an_error(
    load: Callable[..., Any], case_text: str, old: str, new: str, path: str
) -> None:
    loaded = load(case_text.replace(old, new), NAME="x")
    assert [item.path for item in loaded.diagnostics if item.severity == "error"] == [path]
    assert not loaded.suites


@pytest.mark.parametrize("value", ["true", "'true'", "'False'", "'${ON}'"])
def test_true_and_false_may_be_texts(load: Callable[..., Any], case_text: str, value: str) -> None:
    adapter = "adapter: streaming\nadapter_config: {streaming: " + value + "}\n"
    case = load(case_text + adapter, ON="TRUE").case
    assert case.agent.options.streaming is ("False" not in value)


def test_the_address_and_headers_of_a_project_are_checked(
    load: Callable[..., Any], case_text: str
) -> None:
    case = case_text.replace("endpoint: http://127.0.0.1:9/ask", "")
    loaded = load({CONFIG: "endpoint: file:///etc/hosts\n", "case.yaml": case})
    assert loaded.lines("error") == [("config.yaml", 1, "endpoint")]
    loaded = load({CONFIG: "headers: {'a:b': c}\n", "case.yaml": case_text})
    assert loaded.lines("error") == [("config.yaml", 1, "headers")]


def test_what_an_unknown_key_was_meant_to_be_is_reported_as_missing(
    load: Callable[..., Any], case_text: str
) -> None:
    config = "model:\n  nme: gpt\n  pricing: {input_per_1m: 1, output_per_1m: 2}\n"
    loaded = load({CONFIG: config, "case.yaml": case_text})
    assert loaded.lines("warning") == [("config.yaml", 2, "model.nme")]
    assert loaded.lines("error") == [("config.yaml", 2, "model")]


def test_a_run_reports_all_variables_that_a_file_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case_text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KINDLM_DB", raising=False)
    (tmp_path / "tests").mkdir()
    text = case_text.replace(
        "What is the capital of France?", "'${NOT_SET_1} ${NOT_SET_2} ${NOT_SET_1}'"
    )
    (tmp_path / "tests" / "case.yaml").write_text(text + "description: ${NOT_SET_3}\n", "utf-8")
    assert run(["test", "--no-progress", "-q", "tests", "--reporter", "json=report.json"]) == 1
    told = Path("report.json").read_text("utf-8")
    assert "NOT_SET_1, NOT_SET_2 and NOT_SET_3 are not set" in told
