"""`kindlm browse`: a real Datasette on a real history, asked over loopback."""

from __future__ import annotations

import html
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import loaded_kindlm
import pytest
from recorded_history import History, Make

from kindlm.browse.datasette_server import listen
from kindlm.browse.descriptions import QUERIES, START_PAGE, metadata
from kindlm.errors import Err, Ok

DEADLINE = 60


@pytest.fixture
def recorded(history: History) -> History:
    _record_failure(history)
    return history


def _record_failure(history: History) -> None:
    """Record a run whose failing execution called a tool."""
    writer = history.run("k3f9x2ab", label="<script>alert(1)</script>")
    writer.suite(tests=[Make.planned(), Make.planned("refunds")])
    writer.execution(assertions=(Make.passed(),), tools=(("lookup", {"order": "GOOD"}, 1),))
    writer.execution(
        "refunds",
        output="<img src=x onerror=alert(1)>",
        assertions=(Make.failed(),),
        tools=(("issue_refund", {"order_id": "A-100"}, {"ok": True}),),
    )
    writer.finish()


class Browsing:
    """A `kindlm browse` that is running."""

    def __init__(self, process: loaded_kindlm.Started) -> None:
        self.process = process
        assert process.stdout is not None
        # The deadline: a process that never gets ready is ended, and reading with it.
        watchdog = threading.Timer(DEADLINE, process.kill)
        watchdog.start()
        self.url = process.stdout.readline().strip()
        watchdog.cancel()
        assert self.url.startswith("http://127.0.0.1:"), process.communicate()[1]
        self.client = httpx.Client(base_url=self.url.removesuffix(START_PAGE), timeout=DEADLINE)

    def page(self, path: str) -> str:
        answer = self.client.get(path, follow_redirects=True)
        assert answer.status_code == 200, answer.text
        return answer.text

    def rows(self, path: str, **parameters: str) -> list[dict[str, Any]]:
        query = {"_shape": "array"} | parameters
        answer = self.client.get(f"{path}.json", params=query, follow_redirects=True)
        assert answer.status_code == 200, answer.text
        rows: list[dict[str, Any]] = answer.json()
        return rows

    def end(self, how: signal.Signals) -> int:
        self.client.close()
        self.process.send_signal(how)
        self.process.communicate(timeout=DEADLINE)
        return self.process.wait()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """A history with a failing run, and two that differ in a score."""
    history = History(tmp_path_factory.mktemp("served") / "kindlm.db")
    _record_failure(history)
    for run, score in (("aaaa2222", 0.95), ("bbbb3333", 0.75)):
        writer = history.run(run)
        writer.suite(tests=[Make.planned(repeat=12)])
        for repeat in range(1, 13):
            check = Make.passed("judge", "is kind", score=score, threshold=0.5)
            writer.execution(repeat=repeat, assertions=(check,))
        writer.finish()
    yield history
    history.close()


@pytest.fixture(scope="module")
def browsing(served: History) -> Iterator[Browsing]:
    """One server for all tests that leave it running, in a project with a threshold of its own."""
    project = served.path.parent
    (project / "kindlm.toml").write_text("[diff]\nregression_threshold = 0.5\n", encoding="utf-8")
    running = _browse(served.path)
    yield running
    # It ends on request, and nothing of it stays.
    assert running.end(signal.SIGINT) == 1
    with pytest.raises(httpx.ConnectError):
        httpx.get(running.url)
    with pytest.raises(ProcessLookupError):
        os.kill(running.process.pid, 0)


def _browse(database: Path) -> Browsing:
    command = ["browse", "--no-open", "--port", "0", "--db", str(database)]
    return Browsing(loaded_kindlm.start(command, cwd=database.parent, env=os.environ))


def test_the_history_is_there_to_read(browsing: Browsing) -> None:
    assert '<a href="/-/kindlm/kindlm/run/k3f9x2ab">' in browsing.page(START_PAGE)

    run_list = browsing.page("/kindlm/run_list")
    assert '<a href="/-/kindlm/kindlm/run/k3f9x2ab">k3f9x2ab</a>' in run_list
    assert "All runs, newest first" in run_list
    assert "<script>alert(1)" not in run_list

    run = browsing.page("/kindlm/runs/k3f9x2ab")
    assert "executions?run__exact=k3f9x2ab" in run or "executions?run=k3f9x2ab" in run

    executions = browsing.page("/kindlm/executions")
    assert 'href="/kindlm/runs/k3f9x2ab"' in executions
    assert 'href="/kindlm/suites/k3f9x2ab~2F0"' in executions

    log = browsing.page("/kindlm/execution_log")
    assert "<img src=x" not in log
    assert '<a href="/-/kindlm/kindlm/execution/k3f9x2ab-2">k3f9x2ab-2</a>' in log


def test_an_invalid_address_is_reported_as_such(browsing: Browsing) -> None:
    for path in ("/-/nope", "/-/kindlm/nope", "/nope"):
        assert browsing.client.get(path).status_code == 404


@pytest.mark.parametrize("how", ["moved", "replaced"])
def test_a_history_that_is_not_there_any_more_is_not_served(
    browsing: Browsing, served: History, how: str
) -> None:
    file = served.path
    away = file.with_name("away.db")
    assert browsing.client.get(START_PAGE).status_code == 200
    file.rename(away)
    if how == "replaced":
        file.write_bytes(b"")
    for path in (START_PAGE, "/kindlm/runs.json"):
        refused = browsing.client.get(path)
        assert refused.status_code == 503
        assert "Start kindlm browse again" in refused.text
        assert "k3f9x2ab" not in refused.text
    if how == "replaced":
        file.unlink()
    away.rename(file)
    assert browsing.client.get(START_PAGE).status_code == 200


def test_comparisons_are_made_with_the_threshold_of_the_project(browsing: Browsing) -> None:
    page = browsing.page("/-/kindlm/kindlm/diff?before=aaaa2222&after=bbbb3333")
    assert "<title>UNCHANGED: " in page


def test_pages_of_other_sites_cannot_read_it(browsing: Browsing) -> None:
    for path in (START_PAGE, "/kindlm/runs.json", "/"):
        answer = browsing.client.get(path, headers={"host": "evil.example:8001"})
        assert answer.status_code == 421
        assert "k3f9x2ab" not in answer.text
    port = browsing.client.base_url.port
    assert browsing.client.get(START_PAGE, headers={"host": f"localhost:{port}"}).status_code == 200


def test_it_answers_which_tools_the_failing_executions_called(browsing: Browsing) -> None:
    page = browsing.page("/kindlm/failing_tool_calls?run=")
    assert "Tool calls of failing executions" in page
    assert "issue_refund" in page
    assert "A-100" in page
    assert "GOOD" not in page
    (row,) = browsing.rows("/kindlm/failing_tool_calls", run="k3f9x2ab")
    assert (row["tool"], row["arguments"]) == ("issue_refund", '{"order_id": "A-100"}')
    assert browsing.rows("/kindlm/failing_tool_calls", run="another") == []


def test_every_saved_query_and_every_described_table_works(browsing: Browsing) -> None:
    for name in QUERIES:
        browsing.rows(f"/kindlm/{name}", run="", test="")
    for name, table in metadata()["tables"].items():
        page = browsing.page(f"/kindlm/{name}")
        assert html.escape(table.get("description", "")) in page
        for facet in table.get("facets", []):
            assert f'data-column="{facet}"' in page


def test_runs_that_are_recorded_meanwhile_appear(browsing: Browsing, served: History) -> None:
    before = [row["run"] for row in browsing.rows("/kindlm/run_list")]
    writer = served.run("m2aaaaaa")
    writer.suite(tests=[Make.planned()])
    writer.execution()
    writer.finish()
    assert [row["run"] for row in browsing.rows("/kindlm/run_list")] == ["m2aaaaaa", *before]


def test_a_free_port_is_taken_if_the_usual_one_is_in_use() -> None:
    first, second = listen("127.0.0.1", None), listen("127.0.0.1", None)
    assert isinstance(first, Ok)
    assert isinstance(second, Ok)
    with first.value, second.value:
        assert first.value.getsockname()[1] != second.value.getsockname()[1]


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(kindlm: Any, recorded: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert isinstance(listen("127.0.0.1", port), Err)
        outcome = kindlm("browse", "--no-open", "--port", str(port), "--db", recorded.path)
    assert (outcome.code, outcome.out) == (1, "")
    assert f"kindlm cannot listen on 127.0.0.1:{port}" in outcome.err
    # Without --port, `kindlm serve-history` does not take a free one.
    assert "in use. Choose another --port, 0 for a free one" in " ".join(outcome.err.split())


def test_an_invalid_host_is_an_error(kindlm: Any, recorded: Any) -> None:
    for host in ("nope.invalid", "192.0.2.1", "two..dots", "a" * 64):
        outcome = kindlm("browse", "--no-open", "--host", host, "--db", recorded.path)
        assert outcome.code == 1
        assert "a --host that is an address of this machine" in outcome.err


def test_metadata_for_a_datasette_without_kindlm(kindlm: Any, recorded: Any) -> None:
    import asyncio

    from datasette.app import Datasette
    from datasette.plugins import pm

    outcome = kindlm("browse", "--metadata", "--db", recorded.path)
    assert outcome.code == 0
    told = json.loads(outcome.out)
    ours = pm.unregister(name="kindlm") if pm.has_plugin("kindlm") else None
    try:
        datasette = Datasette([str(recorded.path)], metadata=told)

        async def page() -> str:
            await datasette.invoke_startup()
            return str((await datasette.client.get("/kindlm/executions")).text)

        text = asyncio.run(page())
    finally:
        if ours is not None:
            pm.register(ours, name="kindlm")
    assert "Executions, with the result of their last attempt." in text
    assert "an execution that was resumed or retried has several attempts" in text
    assert 'data-column="status"' in text
    assert "/-/kindlm" not in text
