"""The comparison of two runs: the form that asks for it, and pages of what can't be shown."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from pages import HOSTILE, assert_harmless, text_of


@pytest.fixture
def recorded(history: Any, make: Any) -> Any:
    for run, passes in (("aaaa2222", True), ("bbbb3333", False)):
        writer = history.run(run, label=f"label {run}")
        writer.suite(tests=[make.planned(repeat=3)])
        for repeat in (1, 2, 3):
            check = make.passed() if passes else make.failed()
            writer.execution(repeat=repeat, assertions=(check,))
        writer.finish()
    other = history.run("cccc4444")
    other.suite("other suite", tests=[make.planned()])
    other.execution()
    other.finish()
    return history


def options(page: str) -> list[str]:
    return re.findall(r'<option value="(\w+)">', page)


def test_two_runs_are_compared_and_others_are_offered(ask: Any, recorded: Any) -> None:
    answer = ask("diff?before=aaaa2222&after=bbbb3333")
    assert answer.status_code == 200
    assert "greets" in text_of(answer.text)
    assert 'name="before" list="runs" value="aaaa2222"' in answer.text
    assert options(answer.text) == ["latest", "previous", "baseline", "bbbb3333", "aaaa2222"]
    assert 'href="/-/kindlm/kindlm/run/bbbb3333"' in answer.text


def test_names_are_those_of_the_command(ask: Any, recorded: Any) -> None:
    assert "aaaa2222" in ask("diff?before=label+aaaa2222&after=bbbb3333").text
    assert ask("diff?before=previous&after=bbbb3333").status_code == 200


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("", "finished before run cccc4444, so there is nothing to compare it with"),
        ("?before=nope&after=bbbb3333", "nope"),
        ("?before=baseline&after=bbbb3333", "No baseline is set"),
        ("?before=git:main&after=bbbb3333", "is not a known git revision"),
    ],
)
def test_what_cannot_be_compared_says_why(ask: Any, recorded: Any, query: str, why: str) -> None:
    answer = ask(f"diff{query}")
    assert answer.status_code == 404
    assert why in text_of(answer.text)


def test_what_people_wrote_is_text(ask: Any, history: Any, make: Any) -> None:
    from urllib.parse import quote

    for run in ("dddd5555", "eeee6666"):
        writer = history.run(run, label=HOSTILE)
        writer.suite(HOSTILE, tests=[make.planned(HOSTILE)])
        writer.execution(HOSTILE, assertions=(make.passed(),))
        writer.finish()
    for query in ("before=dddd5555&after=eeee6666", f"before={quote('<svg onload=alert(2)>')}"):
        page = ask(f"diff?{query}").text
        assert_harmless(page)


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("run/nope", 404, "There is no run 'nope'."),
        ("execution/nope", 404, "This history has nothing with that name."),
        ("/-/kindlm/absent/runs", 404, "absent is not a kindlm history."),
        ("/-/kindlm/%3Cscript%3E/runs", 404, "is not a kindlm history."),
    ],
)
def test_what_is_not_there_is_a_page_of_ours(
    ask: Any, recorded: Any, path: str, status: int, said: str
) -> None:
    answer = ask(path)
    assert answer.status_code == status
    assert said in text_of(answer.text)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert_harmless(answer.text)


def test_tables_of_another_version_say_what_to_do(ask: Any, recorded: Any) -> None:
    recorded.close()
    with closing(sqlite3.connect(recorded.path)) as db:
        db.execute("UPDATE projections SET version = 0 WHERE name = 'runs'")
        db.commit()
    answer = ask("runs")
    assert answer.status_code == 500
    assert "kindlm history rebuild" in text_of(answer.text)
