"""Pages that are files, as they are opened from a folder or from what a CI job kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect
from shop_history import Shop
from visits import Visit

COMMANDS: dict[str, Callable[[Shop], tuple[str, ...]]] = {
    "report": lambda shop: ("report", shop.after),
    "diff-file": lambda shop: ("diff", shop.before, shop.after),
}


@pytest.fixture(params=COMMANDS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def file(name: str, shop: Shop, tmp_path: Path) -> Path:
    path = tmp_path / "page.html"
    shop.workspace.run(*COMMANDS[name](shop), "--format", "html", "-o", str(path))
    return path


def test_it_is_read_without_a_server(visit: Visit, file: Path, name: str) -> None:
    page = visit.open(file.as_uri())
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    visit.assert_looks_well(name)
    assert asked == []


def test_a_repeat_in_the_grid_leads_to_why_it_failed(
    visit: Visit, shop: Shop, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    shop.workspace.run("report", shop.after, "--format", "html", "-o", str(path))
    page = visit.open(path.as_uri())
    refund = page.get_by_role("row").filter(has_text="refund-double-charge")
    refund.get_by_role("link", name="repeat 2: failed").last.click()
    shown = page.locator("details", has=page.locator(":target"))
    expect(shown.locator("summary")).to_be_in_viewport()
    expect(shown.locator("mark")).to_have_text("guaranteed")
    expect(shown.locator("mark")).to_be_visible()

    said_before = shown.get_by_role("link", name="whole text").first
    said_before.click()
    expect(page.locator(":target")).to_be_in_viewport()
    expect(page.locator(":target")).to_contain_text("Respond in valid JSON")
