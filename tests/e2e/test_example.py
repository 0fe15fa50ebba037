"""The support agent of the examples: both wire formats, the real SDKs, no key and no network."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "support-agent"


@pytest.fixture
def example(workspace):
    shutil.copytree(EXAMPLE, workspace.root / "examples" / "support-agent")
    del workspace.env["OPENAI_API_KEY"]
    return workspace


def test_it_passes_with_everything_in_the_tables(example):
    done = example.run("test", "examples/support-agent")
    assert done.returncode == 0, done.stdout + done.stderr
    per_model = example.query(
        "SELECT target, count(*), count(DISTINCT test), sum(status = 'passed')"
        "  FROM executions GROUP BY target ORDER BY target"
    )
    assert per_model == [("claude-sonnet", 12, 4, 12), ("gpt-4o", 12, 4, 12)]
    providers = example.query("SELECT DISTINCT provider FROM provider_calls ORDER BY provider")
    assert providers == [("anthropic",), ("openai",)]
    scores = example.query("SELECT count(*), min(score) FROM assertions WHERE kind = 'judge'")
    assert scores == [(24 * 7 // 4, pytest.approx(1.0, abs=0.2))]
    gates = dict(example.query("SELECT name, passed FROM gates"))
    assert gates["judgeAvgMin"] == 1
    assert set(gates.values()) == {1}


def test_the_documented_query_answers_what_a_failing_execution_called(example):
    agent = example.root / "examples" / "support-agent" / "agent.yaml"
    agent.write_text("extends: support-changed\n", encoding="utf-8")
    assert example.run("test", "examples/support-agent", "--runs", "1").returncode == 1
    page = Path(__file__).parents[2] / "docs" / "tutorial" / "getting-started.md"
    docs = page.read_text("utf-8")
    query = docs.partition("<!-- query: answers -->\n```sql\n")[2].partition("```")[0]
    rows = example.query(query)
    refunds = [row for row in rows if row[:2] == ("refund-double-charge", "gpt-4o")]
    assert refunds
    assert all(tool == "issue_refund" for _, _, _, tool, _ in refunds)
    assert json.loads(refunds[0][4])["order_id"] == "ORD-1234"


def test_two_of_them_run_at_once_and_leave_nothing_running(example):
    words = ("test", "examples/support-agent", "-t", "greeting", "--model", "gpt-4o")
    running = [
        example.start(*words, "--runs", "1", "--quiet", stdout=subprocess.DEVNULL) for _ in range(2)
    ]
    for process in running:
        _, stderr = process.communicate(timeout=240)
        assert process.returncode == 0, stderr
    assert example.query("SELECT count(*) FROM executions WHERE status = 'passed'") == [(2,)]
    lines = Path("/proc").glob("[0-9]*/environ")
    marker = f"PWD={example.root}"
    assert not [path for path in lines if _holds(path, marker)]


def _holds(path: Path, marker: str) -> bool:
    try:
        return marker.encode() in path.read_bytes()
    except OSError:
        return False
