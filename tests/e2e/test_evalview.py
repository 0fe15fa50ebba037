"""EvalView cases from end to end: the example, and the same verdict as by other formats."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from evalview_agents import handler_of_the_example, serving

from kindlm.cli.app import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "evalview"

CASE = """\
name: refund
input: {{query: "Please refund order A-17."}}
expected:
  tools: [lookup_order]
  forbidden_tools: [delete_order]
  output: {{contains: [A-17], not_contains: [sorry], no_pii: true}}
thresholds: {{min_score: 0, max_cost: 0.01, max_latency: 20000}}
endpoint: {url}
"""

SUITE = """\
kindlm: 1
project: shop
suite: {{name: same}}
agents: [{{id: http, adapter: http, endpoint: "{url}", request: query}}]
prompts: {{ask: {{user: "Please refund order A-17."}}}}
tests:
  - name: refund
    prompt: ask
    expect:
      toolCalls: [{{tool: lookup_order}}, {{tool: delete_order, shouldNotCall: true}}]
      output: {{contains: [A-17], notContains: [sorry]}}
      guardrails: {{pii: {{enabled: true}}}}
      cost: {{maxUsd: 0.01}}
      latency: {{maxMs: 20000}}
"""

SCENARIO = """\
from kindlm import Trial, scenario


@scenario("refund", agent={{"type": "http", "url": "{url}", "request": "query"}})
async def test_refund(t: Trial) -> None:
    reply = await t.agent.send("Please refund order A-17.")
    checks = t.check(reply).tool_called("lookup_order").tool_not_called("delete_order")
    checks.contains("A-17").not_contains("sorry").latency(max_ms=20000)
"""

FRONT_ENDS = {"evalview": CASE, "kindlm": SUITE}
"""The same test in each format. `url` is where the agent is."""

SAME_KINDS = {"forbidden_tool": "tool_not_called", "no_pii": "pii"}
"""Kinds of EvalView that are another one of kindlm."""

ALONE = {"weighted_score"}
"""Kinds that one format has and the others have not."""

EVERYTHING = {
    "tool_called",
    "tool_not_called",
    "contains",
    "not_contains",
    "pii",
    "cost",
    "latency",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("KINDLM_DB", "CI", "GITHUB_ACTIONS", "OPENAI_API_KEY", "AGENT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def report_of(*arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code of `kindlm test`, and its report."""
    code = run(["test", "-q", "--reporter", "json=report.json", *arguments])
    return code, json.loads(Path("report.json").read_text("utf-8"))


def failed(test: dict[str, Any]) -> set[str]:
    """The kinds of what a test expects that did not come out."""
    return {
        assertion["kind"]
        for execution in test["executions"]
        for assertion in execution["assertions"]
        if assertion["outcome"] == "failed"
    }


@pytest.fixture
def start() -> Iterator[Callable[[str], str]]:
    """Start the agent of the example, of a kind; return where it is."""
    with ExitStack() as agents:
        yield lambda kind: agents.enter_context(serving(handler_of_the_example(kind)))


def test_the_example_passes(project: Path) -> None:
    shutil.copytree(EXAMPLE, project / "example")
    code, report = report_of("example/tests")
    assert code == 0, report["tests"]
    statuses = {(test["suite"], test["name"]): test["status"] for test in report["tests"]}
    assert len(statuses) == 7
    assert set(statuses.values()) == {"passed"}
    kinds = {
        assertion["kind"]
        for test in report["tests"]
        for assertion in test["executions"][0]["assertions"]
        if assertion["outcome"] == "passed"
    }
    assert kinds >= {"tool_category", "tool_sequence", "regex", "output_schema", "metric"}
    assert kinds >= {"uncertainty", "hallucination", "safety", "no_pii", "weighted_score"}
    assert report["summary"]["judgeCostUsd"] > 0


def test_each_case_of_the_example_can_fail(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(EXAMPLE, project / "example")
    monkeypatch.setenv("AGENT", "rude")
    code, report = report_of("example/tests")
    assert code == 1
    assert {test["status"] for test in report["tests"]} == {"failed"}
    kinds = {kind for test in report["tests"] for kind in failed(test)}
    assert kinds >= {"tool_called", "tool_category", "tool_sequence", "forbidden_tool", "contains"}
    assert kinds >= {"regex", "output_schema", "no_pii", "metric", "uncertainty", "hallucination"}


@pytest.mark.parametrize("front_end", FRONT_ENDS)
@pytest.mark.parametrize(
    ("kind", "status", "missed"),
    [
        ("good", "passed", set()),
        ("rude", "failed", {"tool_called", "tool_not_called", "contains", "pii"}),
        ("broken", "errored", set()),
    ],
)
def test_the_same_agent_gets_the_same_verdict_in_each_format(
    project: Path,
    start: Callable[[str], str],
    front_end: str,
    kind: str,
    status: str,
    missed: set[str],
) -> None:
    file = project / "tests" / "same.yaml"
    file.parent.mkdir()
    file.write_text(FRONT_ENDS[front_end].format(url=start(kind)), "utf-8")
    code, report = report_of("tests")
    (test,) = report["tests"]
    (execution,) = test["executions"]
    kinds = {SAME_KINDS.get(item["kind"], item["kind"]) for item in execution["assertions"]}
    assert (code, test["status"]) == (0 if status == "passed" else 1, status)
    assert {SAME_KINDS.get(found, found) for found in failed(test)} - ALONE == missed
    assert kinds - ALONE == (EVERYTHING if status != "errored" else set())
    assert execution["costUsd"] == (None if status == "errored" else 0.0004)


@pytest.mark.parametrize(
    ("kind", "status", "missed"),
    [
        ("good", "passed", set()),
        ("rude", "failed", {"tool_called", "tool_not_called", "contains"}),
        ("broken", "errored", set()),
    ],
)
def test_a_scenario_gives_the_agent_that_verdict_too(
    project: Path, start: Callable[[str], str], kind: str, status: str, missed: set[str]
) -> None:
    file = project / "tests" / "test_same.py"
    file.parent.mkdir()
    file.write_text(SCENARIO.format(url=start(kind)), "utf-8")
    code, report = report_of("tests")
    (test,) = report["tests"]
    (execution,) = test["executions"]
    assert (code, test["status"]) == (0 if status == "passed" else 1, status)
    assert failed(test) == missed
    kinds = {assertion["kind"] for assertion in execution["assertions"]}
    # Of personal data and costs a scenario has no checks.
    assert kinds == (EVERYTHING - {"pii", "cost"} if status != "errored" else set())
    assert execution["costUsd"] == (None if status == "errored" else 0.0004)
