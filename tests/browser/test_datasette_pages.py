"""Datasette's own pages of a history, under the policy that they are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from datasette import hookimpl
from datasette.plugins import pm
from markupsafe import Markup
from playwright.sync_api import expect
from recorded_history import History, Make
from served_history import served
from visits import Visit

RUNS = "<script>window.ran = 1</script><img src='data:,' onerror='window.ran = 2'>"


@pytest.fixture(scope="module")
def address(driven: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    history = History(tmp_path_factory.mktemp("datasette") / "kindlm.db")
    writer = history.run("aaaa2222")
    writer.suite(tests=[Make.planned()])
    writer.execution(output=RUNS)
    writer.finish()
    history.close()
    path: Path = history.path
    with served(path) as found:
        yield found.removesuffix("/-/kindlm/kindlm/")


@pytest.fixture
def careless() -> Iterator[None]:
    """A plugin that shows outputs as the HTML that they hold."""

    class Careless:
        @hookimpl(tryfirst=True)
        def render_cell(self, value: Any, column: str) -> Markup | None:
            return Markup(value) if column == "output" else None

    plugin = Careless()
    pm.register(plugin)
    yield
    pm.unregister(plugin)


def test_what_their_templates_do_works(visit: Visit, address: str) -> None:
    page = visit.open(f"{address}/kindlm/execution_log")
    page.locator("th.col-test svg").click()
    expect(page.get_by_text("Sort ascending")).to_be_visible()
    assert page.evaluate("window.ran") is None
    visit.open(f"{address}/kindlm")
    expect(page.locator(".CodeMirror, .cm-editor")).to_be_visible()


def test_a_saved_query_fits_on_a_phone(visit: Visit, address: str) -> None:
    page = visit.open(f"{address}/kindlm/failures?run=")
    visit.look("narrow", "light")
    expect(page.locator("pre#sql-query")).to_be_visible()
    visit.assert_fits()


@pytest.mark.usefixtures("careless")
def test_a_value_that_was_not_escaped_does_not_run(visit: Visit, address: str) -> None:
    page = visit.open(f"{address}/kindlm/execution_log")
    expect(page.locator("td.col-output img")).to_be_attached()
    page.wait_for_load_state("networkidle")
    assert page.evaluate("window.ran") is None
    assert all("Content Security Policy" in problem for problem in visit.problems)
    assert len(visit.problems) == 2
    visit.problems.clear()
