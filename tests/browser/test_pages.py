"""Each page of a history of real runs, as a browser shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect
from shop_history import Shop
from visits import Driven, Visit

PAGES: dict[str, Callable[[Shop], str]] = {
    "runs": lambda shop: "runs",
    "run": lambda shop: f"run/{shop.after}",
    "execution": lambda shop: f"execution/{shop.execution('refund-double-charge', 'failed')}",
    "outputs": lambda shop: f"outputs/{shop.after}",
    "retried": lambda shop: f"execution/{shop.execution('greeting-response', 'errored')}",
    "diff": lambda shop: f"diff?{urlencode({'before': shop.before, 'after': shop.after})}",
    "trend": lambda shop: f"test?{urlencode(shop.test('refund-double-charge'))}",
    "search": lambda shop: "search",
    "found": lambda shop: "search?q=refund",
}


@pytest.fixture(scope="module")
def window(driven: Driven) -> Iterator[Page]:
    """One window for all tests: each new one starts a process of the browser."""
    with driven.awake() as browser:
        context = browser.new_context()
        page = context.new_page()
    yield page
    with driven.awake():
        context.close()


@pytest.fixture
def visit(driven: Driven, window: Page, pictures: Path | None) -> Iterator[Visit]:
    with driven.awake():
        visit = Visit(window, pictures)
        visit.look("wide", "light")
        yield visit
        visit.leave()
    visit.assert_clean()


@pytest.fixture(params=PAGES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def where(name: str, shop: Shop, address: str) -> str:
    return address + PAGES[name](shop)


def test_it_is_accessible_and_fits_light_and_dark_wide_and_narrow(
    visit: Visit, where: str, name: str
) -> None:
    page = visit.open(where)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    visit.assert_looks_well(name)


def test_a_chart_alone_is_as_wide_as_beside_another(visit: Visit, address: str) -> None:
    page = visit.open(f"{address}runs")
    charts = page.locator("figure.chart")
    expect(charts).to_have_count(2)
    wide = charts.first.bounding_box()
    charts.last.evaluate("it => it.remove()")
    assert charts.first.bounding_box() == wide


def test_all_of_it_is_reached_by_tab_and_the_first_leads_past_the_header(
    visit: Visit, where: str
) -> None:
    page = visit.open(where)
    _stand_at_the_beginning(page)
    wanted = page.evaluate(
        """() => {
          const seen = (found) => found.checkVisibility() && found.tabIndex >= 0;
          const all = document.querySelectorAll("a[href], button, input, select, summary");
          return [...all].filter(seen).map((found, at) => { found.dataset.at = at; return at; });
        }"""
    )
    reached = []
    for _ in range(len(wanted) + 20):
        page.keyboard.press("Tab")
        at, shown = page.evaluate(
            """() => {
              const found = document.activeElement;
              const style = getComputedStyle(found);
              const box = found.getBoundingClientRect();
              const inside = box.bottom > 0 && box.top < innerHeight
                && box.right > 0 && box.left < innerWidth;
              return [found.dataset.at, inside && style.outlineStyle !== "none"];
            }"""
        )
        # Behind the last comes the window itself, or the first again.
        is_window = at is None and page.evaluate("document.activeElement === document.body")
        if is_window or (at is not None and int(at) in reached):
            break
        assert shown, page.evaluate("document.activeElement.outerHTML")
        if at is not None:
            reached.append(int(at))
    assert reached == wanted

    _stand_at_the_beginning(page)
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


@pytest.fixture(scope="module")
def answered() -> set[str]:
    """Addresses that were asked for: pages share many links."""
    return set()


@pytest.fixture(scope="module")
def followed() -> set[str]:
    """The kinds of pages that links were followed to."""
    return set()


def test_every_link_leads_somewhere_and_each_kind_can_be_clicked(
    visit: Visit, where: str, name: str, answered: set[str], followed: set[str]
) -> None:
    """Of a page's links to the same kind of page three are followed, and one could be clicked.

    The first of all pages is clicked. The header is the same on all pages, and all that a page for
    searching leads to.
    """
    page = visit.open(where)
    addresses = page.evaluate(
        """[...document.querySelectorAll("a[href]")].map(
          (link) => new URL(link.getAttribute("href"), location.href).href)"""
    )
    leads = sorted({found.partition("#")[0] for found in addresses} - answered)
    by_kind: dict[str, list[str]] = {}
    for found in leads:
        kind = "/".join(found.partition("?")[0].split("/")[:7])
        by_kind.setdefault(kind, []).append(found)
    for found in (found for alike in by_kind.values() for found in (*alike[:2], alike[-1])):
        answer = page.request.get(found)
        assert answer.ok, f"{answer.status} {found}"
    answered.update(leads)
    kinds = page.evaluate(
        """(withHeader) => {
          const first = {};
          for (const [at, link] of [...document.querySelectorAll("a[href]")].entries()) {
            const { pathname } = new URL(link.getAttribute("href"), location.href);
            if (!pathname.startsWith("/-/kindlm/") || link.matches(".skip")) continue;
            if (link.closest("header") && !withHeader) continue;
            const kind = pathname.split("/")[4] + (link.closest("svg") ? " of a chart" : "");
            if (link.checkVisibility() && !(kind in first)) first[kind] = at;
          }
          return first;
        }""",
        name == "search",
    )
    assert kinds
    for at in kinds.values():
        page.locator("a[href]").nth(at).click(trial=True)
    for kind in kinds.keys() - followed:
        page.locator("a[href]").nth(kinds[kind]).click()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        visit.assert_clean()
        page.goto(where)
    followed.update(kinds)


def _stand_at_the_beginning(page: Page) -> None:
    """Let the next Tab go to what comes first, also where a page has put the focus elsewhere."""
    page.evaluate(
        "(body) => { body.tabIndex = -1; body.focus(); body.removeAttribute('tabindex'); }",
        page.locator("body").element_handle(),
    )
