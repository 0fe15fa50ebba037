"""The tutorial is true: each of its four ways is green, and red once the agent misbehaves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_project import run_pytest
from workspace import Workspace, new_workspace

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "scripts"))

from five_minutes import blocks, refund_first, serving, without_lookup  # noqa: E402

BLOCKS = blocks()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return new_workspace(tmp_path)


def test_no_way_takes_more_than_fifteen_lines() -> None:
    asked = [name for name in BLOCKS if name.endswith(".yaml") or ": test_" in name]
    assert len(asked) == 4
    assert [name for name in asked if len(BLOCKS[name].splitlines()) > 15] == []


def test_the_readme_shows_the_same_suite() -> None:
    assert BLOCKS["http: kindlm.yaml"] in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (str, None),
        (without_lookup, "✗ No call to lookup_order"),
        (refund_first, "✗ issue_refund was called before lookup_order"),
    ],
)
def test_an_agent_at_a_url(
    workspace: Workspace, change: Callable[[str], str], why: str | None
) -> None:
    with serving(change) as address:
        suite = BLOCKS["http: kindlm.yaml"].replace("http://127.0.0.1:8000", address)
        (workspace.root / "kindlm.yaml").write_text(suite, "utf-8")
        done = workspace.run("test")
    assert done.returncode == (0 if why is None else 1), done.stdout + done.stderr
    assert (why or "PASSED") in done.stdout


@pytest.mark.parametrize("healthy", [True, False])
def test_a_function_of_python(workspace: Workspace, healthy: bool) -> None:
    _write_shop(workspace, "function: test_shop.py", healthy=healthy)
    done = workspace.run("test", "test_shop.py")
    assert done.returncode == (0 if healthy else 1), done.stdout + done.stderr


def test_under_pytest(workspace: Workspace) -> None:
    _write_shop(workspace, "pytest: test_refunds.py", healthy=False)
    done = run_pytest(workspace.root, "--kindlm")
    assert done.returncode == 1, done.stdout + done.stderr
    found = workspace.query("SELECT kind, outcome FROM assertions")
    assert found == [("tool_called", "failed")]


def test_an_agent_of_a_framework_is_that_of_the_example() -> None:
    """Whose tests let it fail, too."""
    example = (ROOT / "examples" / "langgraph" / "test_agent.py").read_text("utf-8")
    assert example.endswith(BLOCKS["framework: test_agent.py"])


def _write_shop(workspace: Workspace, test: str, *, healthy: bool) -> None:
    shop = BLOCKS["function: shop.py"]
    (workspace.root / "shop.py").write_text(
        shop if healthy else shop.replace("[call]", "[]"), "utf-8"
    )
    (workspace.root / test.partition(": ")[2]).write_text(BLOCKS[test], "utf-8")
