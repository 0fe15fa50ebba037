"""What a keyboard does on pages: reviews, values of charts, the way from a bar to its call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from recorded_history import History, Make
from served_history import served
from visits import Visit


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[History]:
    """Two runs; the later one has three executions, with a judge."""
    history = History(tmp_path / "kindlm.db")
    for run in ("aaaa2222", "bbbb3333"):
        writer = history.run(run)
        writer.suite(tests=[Make.planned(repeat=3)])
        for repeat in (1, 2, 3):
            writer.execution(repeat=repeat, judge="Kind.", assertions=(Make.failed(),))
        writer.finish()
    yield history
    history.close()


@pytest.fixture
def address(driven: Any, recorded: History) -> Iterator[str]:
    with served(recorded.path) as found:
        yield found


def said(history: History) -> list[Any]:
    found = history.log.read(types=["review.recorded"])
    return [(event.data["execution"], event.data["passed"]) for event in found]


def test_a_run_is_reviewed_without_a_mouse(visit: Visit, address: str, recorded: History) -> None:
    page = visit.open(f"{address}execution/bbbb3333-1")
    page.keyboard.press("j")
    page.wait_for_url("**/bbbb3333-2")
    page.keyboard.press("k")
    page.wait_for_url("**/bbbb3333-1")
    page.keyboard.press("n")
    expect(page.get_by_label("Note")).to_be_focused()
    page.keyboard.type("pf jku")
    expect(page.get_by_label("Note")).to_have_value("pf jku")
    page.keyboard.press("Escape")
    page.keyboard.press("f")
    page.wait_for_url("**/bbbb3333-2?*")
    expect(page.get_by_role("status")).to_contain_text("Recorded your review of greets #1")
    page.keyboard.press("u")
    page.wait_for_url("**/bbbb3333-3")
    page.keyboard.press("p")
    page.wait_for_url("**/bbbb3333-2?*")
    assert said(recorded) == [(1, False), (3, True)]
    visit.open(f"{address}execution/bbbb3333-1")
    expect(page.locator("#reviews ~ article")).to_contain_text("pf jku")
    visit.assert_looks_well("reviewed")


def test_keys_can_be_turned_off_and_stay_so(visit: Visit, address: str, recorded: History) -> None:
    page = visit.open(f"{address}execution/bbbb3333-1")
    page.get_by_label("shortcuts on").uncheck()
    for _ in range(2):
        page.keyboard.press("p")
        page.keyboard.press("j")
        expect(page).to_have_url(f"{address}execution/bbbb3333-1")
        page.reload()
    expect(page.get_by_label("shortcuts on")).not_to_be_checked()
    assert said(recorded) == []


def test_values_of_a_chart_are_shown_by_keyboard_and_by_mouse(visit: Visit, address: str) -> None:
    page = visit.open(f"{address}runs")
    points = page.get_by_role("group", name="Pass rate").get_by_role("link")
    points.first.focus()
    (value,) = _shown(page)
    assert re.fullmatch(r"0 % · failed · \d{4}-\d\d-\d\d \d\d:\d\d · aaaa2222", value)
    page.keyboard.press("Tab")
    assert [text.rpartition(" ")[2] for text in _shown(page)] == ["bbbb3333"]
    points.first.hover()
    assert [text.rpartition(" ")[2] for text in _shown(page)] == ["aaaa2222"]
    page.keyboard.press("Enter")
    page.wait_for_url("**/run/bbbb3333")


def _shown(page: Page) -> list[str]:
    values = page.locator("svg .value").all()
    return [value.text_content() or "" for value in values if value.is_visible()]


def test_a_bar_leads_to_its_call_also_where_that_is_folded(visit: Visit, address: str) -> None:
    page = visit.open(f"{address}execution/bbbb3333-1")
    place = page.locator("article.judge")
    expect(place).not_to_be_visible()
    page.get_by_role("link", name="judge").focus()
    page.keyboard.press("Enter")
    expect(place).to_be_visible()
    expect(place).to_be_in_viewport()
