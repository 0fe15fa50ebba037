"""A folder of cases as people have them: all that can run runs, what cannot is told once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kindlm.cli.app import run

Run = Callable[..., tuple[int, dict[str, Any], str]]

SINGLE = """\
name: "{name}"
description: >
  Folded
  text.
input:
  query: "{query}"
  context: {{max_results: 5}}
expected:
  tools: [search]
  output:
    contains: ["{contains}"]
    not_contains: ["I cannot"]
thresholds:
  min_score: 50
  max_cost: 0.10
  max_latency: 60000
metadata: {{owner: someone}}
headers: {{a: b}}
tags: [Wild]
"""

LISTED = """\
- name: {name}
  input: {{query: {query}}}
  expected: {{tool_sequence: [search], forbidden_tools: [delete_user]}}
  thresholds: {{min_score: 40}}
"""

TOML = """\
name = "{name}"
[input]
query = "{query}"
[expected]
tools = ["search"]
[thresholds]
min_score = 40
"""

SUITE = """\
kindlm: 1
project: shop
suite: {name: own}
providers: {fake: {type: scripted, replies: [{text: hello}]}}
models: [{id: m, provider: fake, model: m}]
prompts: {ask: {user: Hi}}
tests: [{name: greets, prompt: ask, expect: {output: {contains: [hello]}}}]
"""


@pytest.fixture
def test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run `kindlm test` in a project; return its exit code, its report, and what it told."""
    monkeypatch.chdir(tmp_path)
    for name in ("KINDLM_DB", "CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> tuple[int, dict[str, Any], str]:
        code = run(["test", "--no-progress", "--reporter", "json=report.json", *arguments])
        told = capsys.readouterr().err
        return code, json.loads((tmp_path / "report.json").read_text("utf-8")), told

    return call


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def single(name: str, contains: str = "asked") -> str:
    return SINGLE.format(name=name, query=f"What of {name}?", contains=contains)


def thirty_cases(root: Path) -> None:
    for number in range(12):
        write(root, f"tests/case-{number:02}.yaml", single(f"single {number} — a/b + ü"))
    write(root, "tests/fails.yaml", single("fails", contains="Paris"))
    listed = "".join(LISTED.format(name=f"listed {n}", query=f"Say {n}") for n in range(8))
    write(root, "tests/listed.yaml", f"# a list\n{listed}")
    several = "---\n".join(single(f"document {n}") for n in range(4))
    write(root, "tests/several.yml", several)
    for number in range(3):
        text = TOML.format(name=f"toml {number}", query=f"Ask {number}")
        write(root, f"tests/deep/{number}.toml", text)
    write(root, "tests/deep/variance.yaml", single("repeated").replace(
        "  max_cost", "  variance: {runs: 3, pass_rate: 0.5}\n  max_cost"))  # fmt: skip
    write(root, "tests/broken.yaml", single("broken").replace("tools: [search]", "tools: [search"))


def statuses(report: dict[str, Any]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for test in report["tests"]:
        found.setdefault(test["suite"], {})[test["name"]] = test["status"]
    return found


def test_thirty_cases_in_the_wild_style_run_beside_a_broken_one(
    tmp_path: Path, agent: Any, test: Run
) -> None:
    thirty_cases(tmp_path)
    write(tmp_path, ".evalview/config.yaml", f"adapter: http\nendpoint: {agent.url}\ntimeout: 20\n")
    code, report, told = test("tests")
    assert code == 1
    found = statuses(report)
    assert set(found) >= {"tests", "tests/deep"}
    everything = {**found["tests"], **found["tests/deep"]}
    assert len(everything) == 29
    assert {name for name, status in everything.items() if status != "passed"} == {"fails"}
    assert told.count("✗") == 1 + told.count("✗ fails")
    assert "tests/broken.yaml:" in told
    assert len(agent.asked) == 28 + 3


def test_a_mixed_folder_is_one_run_and_one_file_may_be_named(
    tmp_path: Path, agent: Any, test: Run
) -> None:
    write(tmp_path, "tests/suite.yaml", SUITE)
    write(tmp_path, "tests/a.yaml", single("a"))
    write(tmp_path, "tests/b.yaml", single("b"))
    write(tmp_path, ".evalview/config.yaml", f"endpoint: {agent.url}\n")
    code, report, _ = test("tests", "--tags", "wild")
    assert (code, statuses(report)["tests"]) == (0, {"a": "passed", "b": "passed"})
    code, report, _ = test("tests")
    assert (code, set(statuses(report))) == (0, {"tests", "own"})
    code, report, _ = test("tests/b.yaml")
    assert (code, statuses(report)) == (0, {"tests": {"b": "passed"}})


def test_variables_reach_the_agent_and_not_the_history(
    tmp_path: Path, agent: Any, test: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_URL", agent.url)
    monkeypatch.setenv("AGENT_TOKEN", "tok-1234567890")
    text = single("secret") + (
        "endpoint: ${AGENT_URL}\n"
        'adapter_config: {headers: {Authorization: "Bearer ${AGENT_TOKEN}"}}\n'
    )
    write(tmp_path, "a.yaml", text)
    write(tmp_path, ".evalview/README.txt", "marks the root")
    code, report, _ = test(".")
    assert code == 0, report
    assert agent.headers[0]["authorization"] == "Bearer tok-1234567890"
    assert b"tok-1234567890" not in (tmp_path / ".kindlm" / "kindlm.db").read_bytes()


def test_variables_are_taken_from_the_project_of_the_cases(
    tmp_path: Path, agent: Any, test: Run
) -> None:
    write(tmp_path, ".kindlm/README.txt", "marks the root")
    write(tmp_path, "shop/.evalview/config.yaml", "endpoint: ${AGENT_URL}\n")
    write(tmp_path, "shop/.env", f"AGENT_URL={agent.url}\n")
    write(tmp_path, "shop/tests/deep/a.yaml", single("a"))
    code, report, told = test("shop")
    assert (code, statuses(report)) == (0, {"shop/tests/deep": {"a": "passed"}}), told


def test_strict_takes_unknown_keys_for_errors(tmp_path: Path, agent: Any, test: Run) -> None:
    write(tmp_path, "tests/a.yaml", single("a") + f"endpoint: {agent.url}\n")
    code, _, told = test("tests")
    assert (code, "metadata" in told) == (0, True)
    code, report, _ = test("tests", "--strict")
    assert code == 1
    assert not agent.asked[1:]
    assert "a" not in statuses(report).get("tests", {})


def test_what_was_recorded_is_checked_again_without_what_agents_are_called_with(
    tmp_path: Path, agent: Any, test: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_URL", agent.url)
    write(tmp_path, "tests/a.yaml", single("a") + "endpoint: ${AGENT_URL}\n")
    write(tmp_path, "tests/b.yaml", single("b") + "endpoint: ${AGENT_URL}\n")
    assert test("tests")[0] == 0
    monkeypatch.delenv("AGENT_URL")
    assert run(["rescore", "-q"]) == 0
    write(tmp_path, "tests/b.yaml", single("b") + "endpoint: [\n")
    assert run(["rescore", "-q"]) == 1
    assert len(agent.asked) == 2
