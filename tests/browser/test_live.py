"""The page of a run while the run goes on: it renews itself, and leaves readers where they are."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from gated_agent import GatedAgent, serve_gated_agent
from playwright.sync_api import expect
from served_history import served
from visits import Visit
from workspace import Workspace, new_workspace, until

NEXT_MS = 2_000
"""So often a page asks for news."""


@pytest.fixture
def agent() -> Iterator[GatedAgent]:
    with serve_gated_agent() as agent:
        yield agent


@pytest.fixture
def workspace(tmp_path: Path, agent: GatedAgent) -> Workspace:
    """A suite of four tests, the first of which fails three checks and the third one."""
    workspace = new_workspace(tmp_path)
    fails = {"output": {"contains": ["never", "said", "like that"]}}
    tests = [
        {"name": f"k{number}", "prompt": "ask", "vars": {"order": f"k{number}"}, "expect": expected}
        for number, expected in enumerate(
            [fails, {"output": {"contains": ["order k1"]}}, {"output": {"contains": ["never"]}}, {}]
        )
    ]
    workspace.suite(
        "http://127.0.0.1:9",
        providers={},
        models=[],
        agents=[{"id": "shop", "adapter": "http", "endpoint": agent.url}],
        tests=tests,
    )
    return workspace


def test_it_renews_itself_until_the_run_ends_and_the_focus_stays(
    visit: Visit, workspace: Workspace, agent: GatedAgent
) -> None:
    def finished(number: int) -> bool:
        query = "SELECT count(*) FROM executions WHERE status IS NOT NULL"
        try:
            return workspace.database.exists() and workspace.query(query) == [(number,)]
        except sqlite3.OperationalError:
            return False  # its tables are not made yet

    process = workspace.start("test", "-j", "1")
    agent.let(1)
    until(lambda: process.poll() is not None or finished(1))
    assert process.poll() is None, process.communicate()
    with served(workspace.database) as address:
        visit.page.clock.install()
        page = visit.open(f"{address}run/latest")
        tests = page.get_by_role("region", name="Tests")
        expect(page.get_by_role("status")).to_contain_text("RUNNING")
        expect(tests.get_by_role("link", name="repeat 1: failed")).to_have_count(1)
        expect(tests.get_by_role("row", name="k1")).to_contain_text("running")
        causes = page.get_by_role("region", name="Failed assertions")
        failure = causes.get_by_text("like that").first
        expect(failure).to_be_visible()
        expect(page).to_have_title(re.compile("RUNNING"))
        opened = tests.get_by_role("link", name="repeat 1: failed").first
        opened.focus()
        visit.picture("run-live")

        agent.let(1)
        until(lambda: finished(2))
        page.clock.fast_forward(NEXT_MS)
        expect(tests.get_by_role("link", name="repeat 1: passed")).to_have_count(1)
        expect(failure).to_be_visible()
        expect(opened).to_be_focused()

        agent.let(2)
        told, _ = process.communicate(timeout=60)
        assert "FAILED" in told
        page.clock.fast_forward(NEXT_MS)
        expect(page.get_by_text("FAILED", exact=True)).to_be_visible()
        expect(tests.get_by_role("link", name="repeat 1: failed")).to_have_count(2)
        expect(page.get_by_role("status")).to_have_count(0)
        expect(page).to_have_title(re.compile("FAILED"))
        expect(opened).to_be_focused()
        expect(failure).to_be_visible()

        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.clock.fast_forward(10 * NEXT_MS)
        # What had been asked for by now would have been before this.
        page.evaluate("fetch(location.href).then((answer) => answer.text())")
        assert asked == [page.url]
