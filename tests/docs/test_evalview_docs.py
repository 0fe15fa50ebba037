"""The page on EvalView test cases is true: its cases run, its configurations load."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from evalview_agents import handler_of_the_example, serving

from kindlm.cli.app import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "evalview.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"<!-- ((?:case|config): \w+) -->\n```yaml\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("KINDLM_DB", "CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tests").mkdir()
    (tmp_path / ".evalview").mkdir()
    return tmp_path


@pytest.fixture
def agent() -> Iterator[str]:
    """Where the agent of the example is."""
    with serving(handler_of_the_example()) as url:
        yield url


def test_the_cases_pass(project: Path, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_ENDPOINT", agent)
    names = ("runs", "repeats", "turns")
    for name in names:
        (project / "tests" / f"{name}.yaml").write_text(BLOCKS[f"case: {name}"], "utf-8")
    (project / ".evalview" / "config.yaml").write_text(BLOCKS["config: runs"], "utf-8")
    assert run(["test", "-q", "--strict", "--reporter", "json=report.json"]) == 0
    report = json.loads((project / "report.json").read_text("utf-8"))
    executions = {test["name"]: len(test["executions"]) for test in report["tests"]}
    assert sorted(executions.values()) == [1, 1, 4]


@pytest.mark.parametrize("config", sorted(name for name in BLOCKS if name.startswith("config")))
def test_each_block_is_valid(
    project: Path, config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENT_ENDPOINT", "http://127.0.0.1:9/ask")
    where = "" if "endpoint" in BLOCKS[config] else "endpoint: http://127.0.0.1:9/ask\n"
    (project / ".evalview" / "config.yaml").write_text(where + BLOCKS[config], "utf-8")
    cases = [text for name, text in BLOCKS.items() if name.startswith("case")]
    assert len(cases) == 4
    (project / "tests" / "all.yaml").write_text("---\n".join(cases), "utf-8")
    assert run(["validate", "--strict", "tests"]) == 0
    told = capsys.readouterr()
    assert told.out == "1 file, 4 tests: no problems\n", told.err
