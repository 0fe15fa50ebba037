"""The page on EvalView test cases is true: its cases run, its configurations load."""

from __future__ import annotations

import importlib.util
import json
import re
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from kindlm.cli.app import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evalview.md").read_text("utf-8")
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
    """The agent of the example, and where it is."""
    file = ROOT / "examples" / "evalview" / "agent.py"
    spec = importlib.util.spec_from_file_location("example_agent", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = ThreadingHTTPServer(("127.0.0.1", 0), module.Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/ask"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_cases_pass(project: Path, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_ENDPOINT", agent)
    names = ("runs", "repeats", "turns")
    for name in names:
        (project / "tests" / f"{name}.yaml").write_text(BLOCKS[f"case: {name}"], "utf-8")
    (project / ".evalview" / "config.yaml").write_text(BLOCKS["config: runs"], "utf-8")
    assert run(["test", "-x", "-q", "--strict", "--reporter", "json=report.json"]) == 0
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
