"""The page of all runs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kindlm.events.run import GitState

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


@pytest.fixture(autouse=True)
def recorded(history: Any, make: Any) -> None:
    for run, branch, passes in (("aaaa2222", "main", True), ("bbbb3333", "feature", False)):
        writer = history.run(
            run, label=f"{run} {HOSTILE}", git=GitState(commit="0" * 40, branch=branch, dirty=False)
        )
        writer.suite(f"suite {branch}", tests=[make.planned()])
        writer.execution(assertions=(make.passed() if passes else make.failed(),))
        writer.finish()
    writer = history.run("cccc4444", label=None)
    writer.suite("suite main", tests=[make.planned()])
    writer.interrupt()


def rows(page: str) -> list[str]:
    return re.findall(r"<tr>\s*<td[^>]*><a href=\"/-/kindlm/kindlm/run/(\w+)\">", page)


def test_all_runs_are_listed_the_newest_first(ask: Any) -> None:
    page = ask("runs").text
    assert rows(page) == ["cccc4444", "bbbb3333", "aaaa2222"]
    assert '<span class="status good">passed</span>' in page
    assert '<span class="status bad">failed</span>' in page
    assert '<span class="status unsure">interrupted</span>' in page
    assert 'href="/-/kindlm/kindlm/diff?before=aaaa2222&amp;after=cccc4444"' in page
    assert page.count(">diff</a>") == 1, "of other suites there is nothing to compare"
    marks = re.findall(r'aria-label="(\w+) [^"]*: (\w+), ([^"]*)"><g', page)
    assert marks[:2] == [("aaaa2222", "passed", "100 %"), ("bbbb3333", "failed", "0 %")]


def test_repeats_of_suspected_tests_are_no_point_of_the_pass_rate_and_not_compared(
    ask: Any, history: Any, make: Any
) -> None:
    writer = history.run("dddd5555", mode="settled", source_run="bbbb3333")
    writer.suite("suite feature", tests=[make.planned()])
    writer.execution(assertions=(make.passed(),), cost_usd=0.5)
    writer.finish()
    page = ask("runs").text
    assert "after=dddd5555" not in page
    rates, costs = re.findall(r"<svg class=\"trend\".*?</svg>", page, flags=re.DOTALL)
    assert "dddd5555" not in rates
    assert "dddd5555" in costs


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("suite=suite+main", ["cccc4444", "aaaa2222"]),
        ("branch=feature", ["bbbb3333"]),
        ("status=passed", ["aaaa2222"]),
        ("status=interrupted", ["cccc4444"]),
        ("label=BBBB3333", ["bbbb3333"]),
        ("suite=suite+main&status=failed", []),
        ("suite=&branch=&status=&label=", ["cccc4444", "bbbb3333", "aaaa2222"]),
        ("page=2", []),
        ("page=%00%F0%9F%98%80", ["cccc4444", "bbbb3333", "aaaa2222"]),
        ("suite=%27%3B+DROP+TABLE+runs%3B--", []),
    ],
)
def test_they_are_narrowed_down(ask: Any, query: str, found: list[str]) -> None:
    answer = ask(f"runs?{query}")
    assert answer.status_code == 200
    assert rows(answer.text) == found


def test_what_people_and_agents_wrote_is_text(ask: Any) -> None:
    answer = ask("runs?label=%22%3E%3Cscript%3E&suite=%3Cimg+src%3Dx%3E")
    for page in (answer.text, ask("runs").text):
        assert "<script" not in page
        assert "<img" not in page
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", page)


def test_the_policy_lets_nothing_in(ask: Any) -> None:
    answer = ask("runs")
    rules = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"} <= set(rules)
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert not re.search(r"\sstyle=|\son\w+=", answer.text)
