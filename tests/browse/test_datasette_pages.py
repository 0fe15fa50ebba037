"""Datasette's own pages of a history: what agents said is seen as it is, and can do nothing."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from datasette.app import Datasette

from kindlm.browse.datasette_server import make_datasette

TRICKS = "</td><script>ran=1</script> \u202etxt.exe \x9b31m\u2028zero\u200bwidth"
SHOWN = r"&lt;/td&gt;&lt;script&gt;ran=1&lt;/script&gt; \u202etxt.exe \x9b31m\u2028zero\u200bwidth"
HIDDEN = re.compile("[\u202e\x9b\u2028\u200b]")
SQL = quote(f"SELECT output, '{TRICKS}' AS mine FROM execution_log")
PAGES = [
    "/history",
    "/history/execution_log",
    "/history/executions",
    "/history/executions/aaaa2222-1",
    "/history/failures?run=",
    f"/history?sql={SQL}",
]


@pytest.fixture
def recorded(history: Any, make: Any) -> Path:
    writer = history.run("aaaa2222", label=TRICKS)
    writer.suite(TRICKS, tests=[make.planned(TRICKS, TRICKS)])
    writer.execution(TRICKS, TRICKS, output=TRICKS, assertions=(make.failed(message=TRICKS),))
    writer.finish()
    path: Path = history.path
    return path


@pytest.fixture
def other(tmp_path: Path) -> Path:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE notes (said TEXT)")
        db.execute("INSERT INTO notes VALUES (?)", (TRICKS,))
    return path


def serving(recorded: Path, *others: Path) -> Datasette:
    from datasette.database import Database

    datasette = Datasette([str(path) for path in others])
    datasette.add_database(Database(datasette, path=str(recorded)), name="history")
    return datasette


def get(datasette: Datasette, path: str) -> Any:
    async def answer() -> Any:
        await datasette.invoke_startup()
        return await datasette.client.get(path, follow_redirects=True)

    return asyncio.run(answer())


def directives(page: Any) -> dict[str, str]:
    policy = page.headers["content-security-policy"]
    return dict(directive.partition(" ")[::2] for directive in policy.split("; "))


def test_scripts_of_the_templates_run_and_no_others(recorded: Path) -> None:
    datasette = serving(recorded)
    for path in ("/", "/nothing", *PAGES):
        page = get(datasette, path)
        allowed = directives(page)
        nonce = re.search(r"'nonce-([\w-]{20,})'", allowed["script-src"])
        assert nonce is not None
        scripts = re.findall(r"<script\b[^>]*>", page.text)
        assert scripts
        assert all(f' nonce="{nonce[1]}"' in script for script in scripts)
        assert "'unsafe-inline'" not in allowed["script-src"]
        assert allowed["default-src"] == "'none'"
        assert allowed["frame-ancestors"] == "'none'"
        assert allowed["base-uri"] == "'none'"
        assert page.headers["x-content-type-options"] == "nosniff"


def test_each_page_has_a_nonce_of_its_own(recorded: Path) -> None:
    datasette = serving(recorded)
    first, second = (directives(get(datasette, "/history"))["script-src"] for _ in range(2))
    assert first != second


def test_what_is_not_meant_to_be_read_is_written_out(recorded: Path) -> None:
    datasette = serving(recorded)
    for path in (*PAGES[1:], f"/history/execution_log?test__exact={quote(TRICKS)}"):
        page = get(datasette, path)
        assert SHOWN in page.text
        assert not HIDDEN.search(page.text)


def test_links_are_those_of_the_history_and_folding_stays(history: Any, make: Any) -> None:
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned()])
    writer.execution(output=f"https://example.invalid/ {'long ' * 1000}\u202e")
    writer.execution(repeat=2, output="https://example.invalid/page")
    writer.finish()
    datasette = serving(history.path)
    log = get(datasette, "/history/execution_log").text
    assert ">https://example.invalid/page<" in log
    assert 'href="https://example.invalid' not in log
    assert '<a href="/-/kindlm/history/execution/aaaa2222-1">' in log
    assert "…</td>" in log
    assert "long " * 500 not in log
    assert 'href="/history/runs/aaaa2222"' in get(datasette, "/history/executions").text


def test_addresses_that_agents_wrote_lead_nowhere(history: Any, make: Any) -> None:
    address = "http://evil.example/x?<b>"
    writer = history.run("aaaa2222", label=address)
    writer.suite(address, tests=[make.planned(address, address)])
    writer.execution(address, address, output=f"{address}{'y' * 5000}")
    writer.execution(address, address, repeat=2, output=address)
    writer.finish()
    query = quote(
        "SELECT output, output AS said FROM execution_log UNION SELECT suite, test FROM tests"
    )
    datasette = serving(history.path)
    for page in ("/execution_log", "/executions", "/suites", "/contents", f"?sql={query}"):
        told = get(datasette, f"/history{page}").text
        assert "http://evil.example/x?&lt;b&gt;" in told
        assert 'href="http://evil.example' not in told
        assert "y" * 4000 not in told


def test_programs_get_values_as_they_are(recorded: Path) -> None:
    datasette = serving(recorded)
    for kind in ("json?_shape=array", "csv"):
        answer = get(datasette, f"/history/execution_log.{kind}")
        assert answer.headers["x-content-type-options"] == "nosniff"
    rows = get(datasette, "/history/execution_log.json?_shape=array").json()
    assert [row["output"] for row in rows] == [TRICKS]


def test_pages_of_other_databases_are_left_alone(recorded: Path, other: Path) -> None:
    alone, beside = Datasette([str(other)]), serving(recorded, other)
    for path in ("/other", "/other/notes"):
        page = get(beside, path)
        assert "content-security-policy" not in page.headers
        assert "x-content-type-options" not in page.headers
        assert "nonce" not in page.text
    rows = r"<tbody>.*</tbody>"
    mine, theirs = (
        re.search(rows, get(datasette, "/other/notes").text, re.DOTALL)
        for datasette in (alone, beside)
    )
    assert mine is not None
    assert theirs is not None
    assert mine[0] == theirs[0]
    # What is about no database in particular is about the others, too.
    assert "content-security-policy" not in get(beside, "/").headers
    assert "content-security-policy" in get(beside, "/history").headers


def test_below_another_address_it_is_the_same(recorded: Path) -> None:
    datasette = Datasette([str(recorded)], settings={"base_url": "/below/"})
    page = get(datasette, f"/{recorded.stem}/execution_log")
    assert "'nonce-" in directives(page)["script-src"]
    own = get(datasette, f"/-/kindlm/{recorded.stem}/runs")
    assert "'nonce-" not in own.headers["content-security-policy"]


def test_the_history_is_the_only_database(recorded: Path) -> None:
    datasette = make_datasette(recorded)
    assert "_memory" not in get(datasette, "/").text
    assert get(datasette, "/_memory?sql=select+1").status_code == 404


def test_a_query_cannot_take_the_memory_of_the_machine(recorded: Path) -> None:
    datasette = make_datasette(recorded)

    async def asked(size: int) -> Any:
        await datasette.invoke_startup()
        query = f"select length(zeroblob({size})) as n"
        database = datasette.get_database("kindlm")
        return next(iter(await database.execute(query)))["n"]

    assert asyncio.run(asked(20_000_000)) == 20_000_000
    with pytest.raises(sqlite3.DataError, match="too big"):
        asyncio.run(asked(900_000_000))
