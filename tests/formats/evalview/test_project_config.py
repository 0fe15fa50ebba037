"""What `.evalview/config.yaml` says for all cases: prices of models, and programs to start."""

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


Load = Callable[..., Any]

ENDPOINT = "http://127.0.0.1:{{serve.agent.port}}/ask"
SERVE = """\
endpoint: "http://127.0.0.1:{{serve.agent.port}}/ask"
serve:
  - name: agent
    command: "python agent.py --token ${TOKEN}"
    ready: "http://127.0.0.1:{{serve.agent.port}}/ready"
    timeoutMs: 500
"""


@pytest.fixture
def case(case_text: str) -> str:
    return case_text.replace("endpoint: http://127.0.0.1:9/ask\n", "")


def test_programs_run_where_the_configuration_is(load: Load, case: str, tmp_path: Path) -> None:
    suite = load({".evalview/config.yaml": SERVE, "case.yaml": case}, TOKEN="t-1").only
    (service,) = suite.services
    assert service.command == ("python", "agent.py", "--token", "{{env.TOKEN}}")
    assert Path(service.directory) == tmp_path
    assert service.timeout_ms == 500
    assert suite.cases[0].agent.endpoint == ENDPOINT


def test_a_case_may_reach_another_program(load: Load, case: str) -> None:
    config = f"{SERVE}  - {{name: other, command: other}}\n"
    text = f'{case}endpoint: "http://127.0.0.1:{{{{serve.other.port}}}}"\n'
    suite = load({".evalview/config.yaml": config, "case.yaml": text}, TOKEN="t-1").only
    assert [service.name for service in suite.services] == ["agent", "other"]
    assert suite.cases[0].agent.endpoint == "http://127.0.0.1:{{serve.other.port}}"


@pytest.mark.parametrize(
    ("before", "after", "line", "path", "message"),
    [
        ("serve.agent.port}}/ask", "serve.agnt.port}}/ask", 1, "endpoint", "not started yet"),
        ("agent.py", "{{serve.later.port}}", 4, "serve[0].command", "not started yet"),
        ("/ready", "/{{ready}}", 5, "serve[0].ready", "has no value in"),
        (
            "serve:",
            'judge: {model: m, base_url: "http://{{serve.nope.port}}"}\nserve:',
            2,
            "judge.base_url",
            "not started yet",
        ),
        ("timeoutMs", "timeout_ms", 6, "serve[0].timeout_ms", "Unknown key"),
        ("- name: agent", "- name: my agent", 3, "serve[0].name", "may hold letters"),
        (
            "    timeoutMs: 500",
            "  - {name: agent, command: again}",
            6,
            "serve[1].name",
            "occurs twice: first on line 3",
        ),
    ],
)
def test_mistakes_have_their_line(
    load: Load, case: str, before: str, after: str, line: int, path: str, message: str
) -> None:
    config = SERVE.replace(before, after)
    loaded = load({".evalview/config.yaml": config, "case.yaml": case}, strict=True, TOKEN="t-1")
    assert ("config.yaml", line, path) in loaded.lines("error")
    assert any(message in item.error.message for item in loaded.diagnostics), loaded.diagnostics
    assert not loaded.suites


def test_a_port_that_nothing_has_is_an_error_of_the_case(load: Load, case: str) -> None:
    text = f'{case}endpoint: "http://127.0.0.1:{{{{serve.shop.port}}}}"\n'
    loaded = load({".evalview/config.yaml": SERVE, "case.yaml": text}, TOKEN="t-1")
    assert loaded.lines("error") == [("case.yaml", 5, "endpoint")]
    (found,) = [item for item in loaded.diagnostics if item.severity == "error"]
    assert found.error.hint == "Services started by then: agent"


@pytest.mark.parametrize(
    ("config", "line", "path", "message"),
    [
        ("timeout: 5\n---\ntimeout: 7\n", 3, "[1]", "this is a second one"),
        ("judge: {provider: openai, model: m, base_url: x}", 1, "judge.base_url", "must be a URL"),
        ("adapter: openai\nendpoint: https://a:pw@x.de", 2, "endpoint", "contains a password"),
    ],
)
def test_what_no_run_could_use_is_an_error(
    load: Load, case: str, config: str, line: int, path: str, message: str
) -> None:
    loaded = load({CONFIG: config, "case.yaml": case})
    (error,) = loaded.diagnostics
    assert (error.severity, error.error.where.line, error.path) == ("error", line, path)
    assert message in error.error.message


def test_an_empty_document_is_no_second_one(load: Load, case_text: str) -> None:
    assert load({CONFIG: "---\ntimeout: 5\n---\n", "case.yaml": case_text}).only.timeout_ms == 5000
