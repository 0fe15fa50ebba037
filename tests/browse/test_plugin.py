"""The plugin in a Datasette: silent where no database is a history, and for who may not read."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from datasette.app import Datasette

from kindlm.browse import plugin
from kindlm.browse.datasette_server import make_datasette


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A database of somebody else, with tables of the same names."""
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "CREATE TABLE runs (id TEXT, run TEXT); INSERT INTO runs VALUES ('a', 'b');"
            "CREATE TABLE events (id TEXT);"
        )
    return path


@pytest.fixture
def recorded(history: Any, make: Any) -> Path:
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned()])
    writer.execution()
    writer.finish()
    path: Path = history.path
    return path


def get(datasette: Datasette, path: str) -> Any:
    async def answer() -> Any:
        await datasette.invoke_startup()
        return await datasette.client.get(path)

    return asyncio.run(answer())


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ({"regression_threshold": 0.5}, "UNCHANGED"),
        ({"regression_threshold": 5}, "REGRESSED"),
        ("nothing", "REGRESSED"),
    ],
)
def test_a_drop_of_scores_is_measured_by_what_the_plugin_is_configured_to(
    history: Any, make: Any, said: Any, verdict: str
) -> None:
    for run, score in (("aaaa2222", 0.95), ("bbbb3333", 0.75)):
        writer = history.run(run)
        writer.suite(tests=[make.planned(repeat=12)])
        for repeat in range(1, 13):
            check = make.passed("judge", "is kind", score=score, threshold=0.5)
            writer.execution(repeat=repeat, assertions=(check,))
        writer.finish()
    datasette = Datasette([str(history.path)], metadata={"plugins": {"kindlm": said}})
    path = f"/-/kindlm/{history.path.stem}/diff?before=aaaa2222&after=bbbb3333"
    assert f"<title>{verdict}: " in get(datasette, path).text


def test_datasette_finds_it_by_its_entry_point() -> None:
    (found,) = entry_points(group="datasette", name="kindlm")
    assert found.load() is plugin


def test_it_is_silent_on_other_databases(other: Path) -> None:
    datasette = Datasette([str(other)])
    assert "kindlm" not in get(datasette, "/").text
    assert '<td class="col-run type-str">b</td>' in get(datasette, "/other/runs").text
    assert get(datasette, "/-/kindlm").status_code == 404
    assert get(datasette, "/-/kindlm/other/runs").status_code == 404
    assert get(datasette, "/-/kindlm/absent/runs").status_code == 404


def test_a_plain_datasette_shows_the_pages_of_a_history_beside_others(
    other: Path, recorded: Path
) -> None:
    datasette = Datasette([str(other), str(recorded)])
    name = recorded.stem
    assert get(datasette, "/-/kindlm").headers["location"] == f"/-/kindlm/{name}/runs"
    assert "aaaa2222" in get(datasette, f"/-/kindlm/{name}/runs").text
    assert f'href="/-/kindlm/{name}/runs"' in get(datasette, "/").text
    log = get(datasette, f"/{name}/execution_log").text
    assert f'<a href="/-/kindlm/{name}/execution/aaaa2222-1">aaaa2222-1</a>' in log


@pytest.mark.parametrize(
    "denied",
    [
        {"allow": {"id": "root"}},
        {"databases": {"history": {"allow": {"id": "root"}}}},
        {"databases": {"history": {"tables": {"contents": {"allow": {"id": "root"}}}}}},
    ],
)
def test_who_may_not_read_the_tables_may_not_read_the_pages(
    recorded: Path, denied: dict[str, Any]
) -> None:
    datasette = Datasette([], metadata=denied)
    from datasette.database import Database

    datasette.add_database(Database(datasette, path=str(recorded)), name="history")
    assert get(datasette, "/-/kindlm/history/runs").status_code == 403
    assert get(datasette, "/-/kindlm").status_code in (403, 404)


def test_a_plain_datasette_is_reported_what_it_shows(other: Path, recorded: Path) -> None:
    datasette = Datasette([str(other), str(recorded)])
    name = recorded.stem
    runs = get(datasette, f"/{name}/runs").text
    assert "Runs, one row for each `kindlm test`." in runs
    assert "live, rescored, replayed, settled, generation or imported" in runs
    assert 'data-column="git_branch"' in runs
    front = get(datasette, f"/{name}").text
    assert "Failed assertions" in front
    assert f'href="/{name}/failures"' in front
    rows = get(datasette, f"/{name}/pass_rates.json?_shape=array&test=").json()
    assert [row["test"] for row in rows] == ["greets"]
    assert "failing" not in get(datasette, "/other").text


def test_what_the_user_of_a_datasette_wrote_stays(recorded: Path) -> None:
    name = recorded.stem
    written = {
        "databases": {
            name: {
                "queries": {"failures": {"sql": "SELECT 'my own' AS mine"}},
                "tables": {"runs": {"description": "My runs", "facets": ["mode"]}},
            }
        }
    }
    datasette = Datasette([str(recorded)], metadata=written)
    runs = get(datasette, f"/{name}/runs").text
    assert "My runs" in runs
    assert 'data-column="mode"' in runs
    rows = get(datasette, f"/{name}/failures.json?_shape=array").json()
    assert rows == [{"mine": "my own"}]
    assert get(datasette, f"/{name}/retries.json?_shape=array&run=").json() == []


@pytest.mark.parametrize("path", ["/-/kindlm/", "/-/kindlm/kindlm/run/a/b"])
def test_an_address_without_a_page_is_reported_as_such(recorded: Path, path: str) -> None:
    found = get(Datasette([str(recorded)]), path)
    assert found.status_code == 404
    assert "There is no page at this address." in found.text


@pytest.mark.parametrize("path", ["/nothing/at/all/is/here", "/kindlm/nothing"])
def test_what_is_not_found_puts_nothing_into_the_terminal(
    recorded: Path, capfd: pytest.CaptureFixture[str], path: str
) -> None:
    assert get(make_datasette(recorded), path).status_code == 404
    assert "".join(capfd.readouterr()) == ""


@pytest.mark.parametrize("name", ["a#b%20.db", "ü ?mode=rwc.db"])
def test_a_history_of_whatever_name_is_read_and_no_other_file_is_made(
    recorded: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "named"
    folder.mkdir()
    with (
        closing(sqlite3.connect(recorded)) as source,
        closing(sqlite3.connect(folder / name)) as to,
    ):
        source.backup(to)
    datasette = make_datasette(folder / name)
    assert "aaaa2222" in get(datasette, "/-/kindlm/kindlm/run/aaaa2222").text
    assert "aaaa2222" in get(datasette, "/kindlm/runs").text
    assert "greets" in get(datasette, "/-/kindlm/kindlm/search?q=hi").text
    assert {path.name.removeprefix(name) for path in folder.iterdir()} <= {
        "", "-shm", "-wal", "-search", "-search-journal", ".locks",
    }  # fmt: skip


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_history_in_a_folder_that_is_read_only_is_read(recorded: Path, tmp_path: Path) -> None:
    path = tmp_path / "copied" / "kindlm.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(recorded)) as source, closing(sqlite3.connect(path)) as to:
        source.backup(to)
        to.execute("PRAGMA journal_mode=WAL")
    path.parent.chmod(0o555)
    datasette = make_datasette(path)
    assert "aaaa2222" in get(datasette, "/-/kindlm/kindlm/run/aaaa2222").text
    assert "aaaa2222" in get(datasette, "/kindlm/runs").text
