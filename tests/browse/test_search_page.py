"""The search: what was said is found, whatever was asked, and erased words are nowhere."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from errno import EACCES
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from pages import HOSTILE, assert_harmless, text_of

from kindlm.cli.app import run
from kindlm.history.search import catch_up, index_file
from kindlm.reports.pages import history_pages
from kindlm_store import open_reader, stream_lock


@pytest.fixture
def kindlm(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command line in this process; return its exit code and what it said."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "500")

    def call(*arguments: Any) -> Any:
        code = run([str(argument) for argument in arguments])
        return SimpleNamespace(code=code, err=capsys.readouterr().err)

    return call


@pytest.fixture
def recorded(history: Any, make: Any) -> Any:
    """Two runs: they share a prompt, the newer one calls a tool."""
    older = history.run("aaaa2222", label="older")
    older.suite(tests=[make.planned()])
    older.execution(user="Where is my parcel?", output="The zebra crossed the xylophone street.")
    older.finish()
    newer = history.run("bbbb3333")
    newer.suite(tests=[make.planned()])
    newer.execution(
        user="Where is my parcel?",
        output="It was sent on Tuesday.",
        tools=(("lookup", {"order": "A-100", "note": "caf\u00e9"}, {"carrier": "zebra post"}),),
        assertions=(make.failed(),),
    )
    newer.finish()
    return history


def found(page: str) -> list[str]:
    return re.findall(r'<li><h2><a href="/-/kindlm/kindlm/execution/([^"]+)">', page)


def test_texts_are_found_the_newest_first_with_what_matches_marked(ask: Any, recorded: Any) -> None:
    page = ask("search?q=zebra").text
    assert found(page) == ["bbbb3333-1", "aaaa2222-1"]
    assert "The <mark>zebra</mark> crossed the xylophone street." in page
    assert "tool result" in page
    assert ask("execution/aaaa2222-1").status_code == 200


@pytest.mark.parametrize("word", ["cafe", "Caf\u00c9", "cafe\u0301"])
def test_words_are_found_and_marked_whatever_their_accents(
    ask: Any, history: Any, make: Any, word: str
) -> None:
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned()])
    writer.execution(output=f"{'Far away. ' * 50}A caf\u00e9, a Cafe, a ca\u0301fe\u0301.")
    writer.finish()
    page = ask(f"search?q={quote(word)}").text
    assert found(page) == ["aaaa2222-1"]
    marked = re.findall(r"<mark>(.*?)</mark>", page)
    assert marked == ["caf\u00e9", "Cafe", "c\u00e1f\u00e9"]


def marks(ask: Any, history: Any, make: Any, output: str, asked: str) -> list[str]:
    """Return what a search marks in the page of a history with one answer."""
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned()])
    writer.execution(output=output)
    writer.finish()
    return re.findall(r"<mark>(.*?)</mark>", ask(f"search?q={quote(asked)}").text)


@pytest.mark.parametrize(
    ("asked", "marked"),
    [
        ("zebra", ["zebra", "zebra"]),
        ("zeb*", ["zebra", "zebras", "zebra"]),
        ('"two zebras"', ["two zebras"]),
        ("zebra NOT horse", ["zebra", "zebra"]),
        ("NEAR(zebra street, 2)", ["zebra", "zebra", "street"]),
    ],
)
def test_the_words_and_phrases_of_a_search_are_marked(
    ask: Any, history: Any, make: Any, asked: str, marked: list[str]
) -> None:
    output = "A zebra met two zebras, both of them far away. The zebra left a street."
    assert marks(ask, history, make, output, asked) == marked


def test_words_are_marked_whole_though_they_have_accents(ask: Any, history: Any, make: Any) -> None:
    output = "A caf\u00e9t\u00e9ria, and Sant\u00e9te te."
    assert marks(ask, history, make, output, "caf* OR te") == ["caf\u00e9t\u00e9ria", "te"]


def test_words_beside_masked_ones_are_marked(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("eeee6666")
    writer.suite(tests=[make.planned()])
    evidence = [{"source": "output", "start": 9, "end": 24, "name": "email", "excerpt": "a**@***"}]
    leak = make.failed(kind="pii", label="pii", code="PII_DETECTED", evidence=evidence)
    writer.execution(output="Write to ann@example.com today.", assertions=(leak,))
    writer.finish()
    page = ask("search?q=example+today").text
    assert re.findall(r"<mark>(.*?)</mark>", page) == ["today"]


def test_a_text_that_was_said_often_is_shown_once_where_it_was_said_last(
    ask: Any, recorded: Any, make: Any
) -> None:
    text = text_of(ask("search?q=parcel").text)
    assert "in 2 executions, most recently this one" in text
    assert found(ask("search?q=parcel").text) == ["bbbb3333-1"]
    third = recorded.run("cccc4444")
    third.suite(tests=[make.planned()])
    third.execution(user="Where is my parcel?", output="Nothing new of the zebra.")
    third.finish()
    page = ask("search?q=parcel").text
    assert found(page) == ["cccc4444-1"]
    assert "in 3 executions" in text_of(page)
    assert found(ask("search?q=zebra").text) == ["cccc4444-1", "bbbb3333-1", "aaaa2222-1"]


def test_it_is_narrowed_down(ask: Any, recorded: Any) -> None:
    both = ["bbbb3333-1", "aaaa2222-1"]
    for query, executions in (
        ("q=zebra&kind=output", ["aaaa2222-1"]),
        ("q=zebra&kind=answer", ["bbbb3333-1"]),
        ("q=zebra&kind=prompt", []),
        ("q=zebra&kind=other", both),
        ("q=A-100&kind=arguments", ["bbbb3333-1"]),
        ("q=cafe", ["bbbb3333-1"]),
        ("q=street+zebra", ["aaaa2222-1"]),
        ("q=%22street+zebra%22", []),
        ("q=zeb*+NOT+carrier", ["aaaa2222-1"]),
        ("q=street+OR+carrier", both),
        ("q=raw", []),
    ):
        assert found(ask(f"search?{query}").text) == executions, query


def test_whatever_is_asked_there_is_a_page(ask: Any, recorded: Any) -> None:
    rest = "&kind=output&after=-9"
    for asked in (
        "", '"', "(zebra", "NEAR(", "zebra AND (", "!!! ???", "nothing:zebra", "{output}:zebra",
        "^", "a" * 5_000, "a AND " * 300, "(" * 400, "zebra\0'; DROP TABLE t", "\ud83d", HOSTILE,
    ):  # fmt: skip
        answer = ask(f"search?q={quote(asked.encode('utf-8', 'surrogatepass'))}{rest}")
        assert answer.status_code == 200, asked
        assert_harmless(answer.text)
        rest = "&after=99999999999999999999&kind='"


def test_what_is_no_expression_is_looked_for_as_words(ask: Any, recorded: Any) -> None:
    page = ask("search?q=(zebra+street").text
    assert found(page) == ["aaaa2222-1"]


def test_parentheses_do_not_lead_out_of_a_kind(ask: Any, recorded: Any, make: Any) -> None:
    writer = recorded.run("cccc4444")
    writer.suite(tests=[make.planned(repeat=2)])
    writer.execution(user="A zebra?", output="A zebra or a horse.")
    writer.execution(user="Is it a zebra or a horse?", output="Neither.", repeat=2)
    writer.finish()
    page = ask("search?q=zebra)+OR+(horse&kind=output").text
    assert found(page) == ["cccc4444-1"]


def test_what_agents_wrote_is_text(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("dddd5555")
    writer.suite(HOSTILE, tests=[make.planned(HOSTILE, HOSTILE)])
    writer.execution(HOSTILE, HOSTILE, user=f"zebra {HOSTILE}\x02\x03" * 900, output=HOSTILE)
    writer.finish()
    page = ask("search?q=zebra").text
    assert "<mark>zebra</mark>" in page
    assert_harmless(page)
    assert len(page) < 40_000


def test_personal_data_is_shown_redacted(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("eeee6666")
    writer.suite(tests=[make.planned()])
    evidence = [{"source": "output", "start": 9, "end": 24, "name": "email", "excerpt": "a**@***"}]
    leak = make.failed(kind="pii", label="pii", code="PII_DETECTED", evidence=evidence)
    writer.execution(output="Write to ann@example.com today.", assertions=(leak,))
    writer.finish()
    for words in ("today", "example"):
        page = ask(f"search?q={words}").text
        assert found(page) == ["eeee6666-1"]
        assert "ann@" not in page
        assert "a**" in page


def test_what_an_earlier_attempt_found_is_shown_redacted(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("eeee7777")
    writer.suite(tests=[make.planned()])
    evidence = [{"source": "output", "start": 9, "end": 24, "name": "email", "excerpt": "a**@***"}]
    leak = make.failed(kind="pii", label="pii", code="PII_DETECTED", evidence=evidence)
    writer.execution(output="Write to ann@example.com.", assertions=(leak,), retried=True)
    writer.execution(number=1, attempt=2, output="Not to ann@example.com any more.")
    writer.finish()
    page = ask("search?q=more").text
    assert found(page) == ["eeee7777-1"]
    assert "ann@" not in page
    assert "a**" in page


def test_there_are_pages(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("ffff7777")
    writer.suite(tests=[make.planned(repeat=45)])
    for repeat in range(1, 46):
        writer.execution(repeat=repeat, output=f"Answer {repeat}.")
    writer.finish()
    seen: list[str] = []
    address: str | None = "search?q=answer"
    while address is not None:
        page = ask(address).text
        seen += found(page)
        older = re.search(r'<a href="(\?[^"]*)" rel="next"', page)
        address = f"search{older[1].replace('&amp;', '&')}" if older else None
    assert seen == [f"ffff7777-{number}" for number in range(45, 0, -1)]


def test_erased_texts_are_in_no_file(ask: Any, recorded: Any, kindlm: Any, tmp_path: Path) -> None:
    assert found(ask("search?q=xylophone").text) == ["aaaa2222-1"]
    assert b"xylophone" in index_file(recorded.path).read_bytes()
    assert kindlm("purge", "--run", "aaaa", "--yes", "--db", recorded.path).code == 0
    assert not index_file(recorded.path).exists()
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or b"xylophone" not in file.read_bytes(), file
    assert found(ask("search?q=xylophone").text) == []
    assert found(ask("search?q=parcel").text) == ["bbbb3333-1"]


def test_an_index_from_before_texts_were_erased_is_not_kept(
    ask: Any, recorded: Any, kindlm: Any
) -> None:
    ask("search?q=xylophone")
    kept = index_file(recorded.path).read_bytes()
    assert b"xylophone" in kept
    assert kindlm("purge", "--matching", "xylophone", "--yes", "--db", recorded.path).code == 0
    index_file(recorded.path).write_bytes(kept)
    ask("search?q=xylophone")
    assert b"xylophone" not in index_file(recorded.path).read_bytes()


def test_an_index_that_does_not_fit_is_made_anew(ask: Any, recorded: Any, make: Any) -> None:
    other = type(recorded)(recorded.path.with_name("other.db"))
    writer = other.run("gggg8888")
    writer.suite(tests=[make.planned()])
    for repeat in range(1, 9):
        writer.execution(repeat=repeat, output=f"Only the other says quagga {repeat}.")
    writer.finish()
    file = index_file(recorded.path)
    for spoil in (
        lambda: file.write_bytes(b"no database at all, but long enough to be read as one" * 99),
        lambda: file.write_bytes(b""),
        lambda: file.write_bytes(file.read_bytes()[:9_000]),
        lambda: file.write_bytes(index_file(other.path).read_bytes()),
    ):
        with closing(open_reader(other.path)) as db:
            catch_up(db, other.path)
        spoil()
        assert found(ask("search?q=street").text) == ["aaaa2222-1"]
        assert found(ask("search?q=quagga").text) == []
    other.close()


def test_a_step_that_another_process_takes_is_not_taken_twice(recorded: Any) -> None:
    with closing(open_reader(recorded.path)) as one, closing(open_reader(recorded.path)) as other:
        assert not catch_up(one, recorded.path, limit=1)
        assert not catch_up(other, recorded.path, limit=1)
        assert catch_up(one, recorded.path, limit=1)
    with closing(sqlite3.connect(index_file(recorded.path))) as index:
        (number,) = index.execute("SELECT count(*) FROM words WHERE words MATCH 'zebra'").fetchone()
    assert number == 2


def test_while_it_is_behind_the_page_renews_itself(ask: Any, recorded: Any) -> None:
    with closing(open_reader(recorded.path)) as db:
        catch_up(db, recorded.path, limit=1)
    # Another process is at it, and takes longer than the page waits.
    with stream_lock(recorded.path, "search index"):
        answer = ask("search?q=zebra")
        part = ask("search?q=zebra&part=1").text
    assert found(answer.text) == ["aaaa2222-1"]
    assert "Indexing new executions" in text_of(answer.text)
    assert "data-live" in part
    assert "<html" not in part
    assert "script-src 'sha256-" in answer.headers["content-security-policy"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_said_to_be_one(ask: Any, recorded: Any) -> None:
    recorded.path.parent.chmod(0o500)
    try:
        page = text_of(ask("search?q=zebra").text)
    finally:
        recorded.path.parent.chmod(0o700)
    assert "kindlm cannot update the search index" in page


def test_a_place_that_cannot_be_written_is_said_to_be_one(ask: Any, recorded: Any) -> None:
    index_file(recorded.path).mkdir()
    (index_file(recorded.path) / "in the way").touch()
    page = text_of(ask("search?q=zebra").text)
    assert "kindlm cannot update the search index" in page
    assert "kindlm history backup COPY.db" in page


def test_a_history_that_cannot_be_locked_is_said_to_be_one(ask: Any, recorded: Any) -> None:
    locks = recorded.path.with_name(recorded.path.name + ".locks")
    locks.touch()
    page = text_of(ask("search?q=zebra").text)
    said = f"the history cannot be locked ({locks.name}: File exists)."
    assert f"kindlm cannot update the search index: {said}" in page


def test_without_an_index_nothing_is_said_about_all_content(
    ask: Any, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise PermissionError(EACCES, "Permission denied")

    monkeypatch.setattr(history_pages, "catch_up", forbidden)
    page = text_of(ask("search?q=zebra").text)
    assert "kindlm cannot update the search index: Permission denied" in page
    assert "No results" not in page


def test_only_the_user_can_read_the_index(ask: Any, recorded: Any) -> None:
    ask("search?q=zebra")
    assert index_file(recorded.path).stat().st_mode & 0o077 == 0


def test_an_empty_history_has_nothing_to_find(ask: Any, history: Any) -> None:
    assert ask("search").status_code == 200
    assert "No results." in text_of(ask("search?q=zebra").text)


def test_texts_that_were_erased_elsewhere_leave_the_index_as_they_are_merged(
    ask: Any, recorded: Any, kindlm: Any, tmp_path: Path
) -> None:
    copy = tmp_path / "elsewhere" / "copy.db"
    copy.parent.mkdir()
    assert kindlm("backup", copy, "--db", recorded.path).code == 0
    assert kindlm("purge", "--run", "aaaa", "--yes", "--db", copy).code == 0
    ask("search?q=xylophone")
    assert b"xylophone" in index_file(recorded.path).read_bytes()
    assert kindlm("merge", copy, "--db", recorded.path).code == 0
    assert not index_file(recorded.path).exists()


def test_an_index_that_cannot_be_removed_is_named(recorded: Any, kindlm: Any) -> None:
    index_file(recorded.path).mkdir()
    outcome = kindlm("purge", "--run", "aaaa", "--yes", "--db", recorded.path)
    assert outcome.code == 0
    assert "kindlm.db-search cannot be removed" in " ".join(outcome.err.split()).replace("- ", "-")
    assert "Delete that file" in outcome.err


@pytest.mark.parametrize(
    ("output", "asked", "marked"),
    [
        (f"a zebra {'and far ' * 500}a street", "zebra AND street", ["zebra"]),
        (
            f"far {'and away ' * 500}a street {'x ' * 2_000}two zebras",
            "zeb* AND street",
            ["street"],
        ),
        (
            f"{'x' * 1_990} two {'y' * 90} zebras",
            f'"two {"y" * 90} zebras"',
            [f"two {'y' * 90} zebras"],
        ),
        (f"{'far ' * 600}zebra", "zebra", ["zebra"]),
        (f"{'zebras ' * 3_000}zebra", "zebra", ["zebra"]),
    ],
)
def test_what_matches_is_marked_anywhere_in_a_long_text(
    ask: Any, history: Any, make: Any, output: str, asked: str, marked: list[str]
) -> None:
    assert marks(ask, history, make, output, asked) == marked
