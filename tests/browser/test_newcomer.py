"""Why a test failed, found by somebody who has never seen these pages."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect
from shop_history import Shop
from visits import Visit


@pytest.fixture
def start_page(shop: Shop) -> Iterator[str]:
    """The page that `kindlm browse` opens."""
    process = shop.workspace.start("browse", "--no-open", "--port", "0")
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_three_clicks_lead_to_why_a_test_failed(visit: Visit, start_page: str) -> None:
    clicks = 0

    def click(what: Locator) -> None:
        nonlocal clicks
        clicks += 1
        what.click()

    page = visit.open(start_page)
    failed = page.get_by_role("row").filter(has_text="failed").first
    click(failed.get_by_role("link").first)

    expect(page.get_by_text("FAILED", exact=True)).to_be_visible()
    refund = page.get_by_role("row").filter(has_text="refund-double-charge")
    click(refund.get_by_role("link", name="repeat 1: failed").last)

    wrong = page.get_by_role("region", name=re.compile("Failed assertions"))
    first = wrong.get_by_role("article").first
    expect(first).to_be_in_viewport()
    expect(first).to_contain_text('Expected the output not to contain "guaranteed"')
    expect(first.locator("mark")).to_have_text("guaranteed")
    talk = page.get_by_role("region", name="Conversation")
    expect(talk.locator("mark")).to_have_text("guaranteed")
    assert clicks <= 3
    visit.picture("newcomer")
