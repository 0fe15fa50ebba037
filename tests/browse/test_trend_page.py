"""The page of a test over time."""

from __future__ import annotations

import html
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from pages import HOSTILE, assert_harmless, text_of

from kindlm.events.run import GitState


def address(name: str = "greets", target: str = "gpt", suite: str = "support") -> str:
    query = {"project": "shop", "suite": suite, "name": name, "target": target}
    return f"test?{urlencode(query)}"


@pytest.fixture
def recorded(history: Any, make: Any) -> Any:
    """Three runs of a test: it passes, fails once the commit changed, and is rescored."""
    for run, commit, passes, latency in (
        ("aaaa2222", "1" * 40, True, 100.0),
        ("bbbb3333", "2" * 40, False, 900.0),
    ):
        writer = history.run(run, git=GitState(commit=commit, branch="main", dirty=False))
        writer.suite(tests=[make.planned(repeat=2), make.planned("other")])
        for repeat in (1, 2):
            check = make.passed() if passes or repeat == 2 else make.failed()
            judged = make.passed("judge", "kind", score=0.5)
            writer.execution(
                repeat=repeat, assertions=(check, judged), latency_ms=latency, cost_usd=0.25
            )
        writer.finish()
    writer = history.run("cccc4444", mode="rescored", source_run="bbbb3333")
    writer.suite(tests=[make.planned(repeat=2)])
    writer.execution(assertions=(make.passed(),), source="bbbb3333-1.1")
    writer.finish()
    return history


def test_it_shows_each_run_the_newest_first(ask: Any, recorded: Any) -> None:
    page = ask(address()).text
    rows = re.findall(r'<td><a href="/-/kindlm/kindlm/run/(\w+)">', page)
    assert rows == ["cccc4444", "bbbb3333", "aaaa2222"]
    text = text_of(page)
    assert "failed 1/2 0.50 900 ms $0.50" in text
    assert "git 11111111 → 22222222" in text
    assert 'href="/-/kindlm/kindlm/diff?before=aaaa2222&amp;after=bbbb3333"' in page
    assert "Passed 75 % of 4" in text
    assert "Pairs of repeats that disagree 50 %" in text
    assert "Not counted 1 run" in text


def test_its_figures_are_drawn_over_the_runs_that_count(ask: Any, recorded: Any) -> None:
    page = ask(address()).text
    charts = re.findall(r"<svg class=\"trend\".*?</svg>", page, flags=re.DOTALL)
    assert len(charts) == 4
    assert all(chart.count('class="mark ') == 2 for chart in charts)
    assert "Latency 100 ms to 900 ms, latest 900 ms" in text_of(page)
    assert "cccc4444" not in "".join(charts)


def test_how_a_run_ended_is_reported_by_shapes_and_words_besides_colours(
    ask: Any, recorded: Any
) -> None:
    marks = re.findall(
        r'class="mark (\w+)" d="([^"]+)"/></g></g></a>\s*<text class="value"[^>]+>([^<]+)<',
        ask(address()).text,
    )
    (good,) = {shape for mood, shape, _ in marks if mood == "good"}
    (bad,) = {shape for mood, shape, _ in marks if mood == "bad"}
    assert good != bad
    assert {mood: " · failed · " in name for mood, _, name in marks} == {"good": False, "bad": True}


@pytest.mark.parametrize(("runs", "said"), [(50, False), (51, True)])
def test_older_runs_are_spoken_of_where_there_are_any(
    ask: Any, history: Any, make: Any, runs: int, said: bool
) -> None:
    for number in range(runs):
        writer = history.run(f"run{number:05}")
        writer.suite(tests=[make.planned()])
        writer.execution(assertions=(make.passed(),))
        writer.leave()
    text = text_of(ask(address()).text)
    assert "Runs 50 " in text
    assert ("Showing the newest 50 runs." in text) is said


def test_run_and_execution_lead_to_it(ask: Any, recorded: Any) -> None:
    for page in ("run/aaaa2222", "execution/aaaa2222-1"):
        links = re.findall(r'href="([^"]*/test\?[^"]*)"', ask(page).text)
        assert f"/-/kindlm/kindlm/{address()}" in map(html.unescape, links)


@pytest.mark.parametrize("query", ["", "?project=shop&name=greets", f"?{'&'.join('abcd')}"])
def test_a_test_that_never_ran_is_not_found(ask: Any, recorded: Any, query: str) -> None:
    assert ask(f"test{query}").status_code == 404


def test_what_people_and_agents_wrote_is_text(ask: Any, history: Any, make: Any) -> None:
    for run in ("dddd5555", "eeee6666"):
        writer = history.run(run, label=HOSTILE)
        writer.suite(HOSTILE, tests=[make.planned(HOSTILE, HOSTILE)])
        writer.execution(HOSTILE, HOSTILE, assertions=(make.passed(),))
        writer.finish()
    (link, *_) = re.findall(r'href="(/-/kindlm/kindlm/test\?[^"]*)"', ask("run/dddd5555").text)
    page = ask(html.unescape(link)).text
    assert "alert(1)" in page
    assert_harmless(page)
