"""Texts of models and users that try to be more than texts, and that are far too long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect
from recorded_history import History, Make
from served_history import served
from visits import Visit
from workspace import new_workspace

from kindlm.history.run_view import RunView

HOSTILE = (
    "</div></details></script></style><script>window.ran = 1</script>"
    "<img src=x onerror='window.ran = 2'><svg onload='window.ran = 3'><a href='javascript:ran=4'>go"
    "</a><iframe src='https://example.invalid/'></iframe><style>body { display: none }</style>"
    "<meta http-equiv=refresh content='0;url=https://example.invalid/'>"
    '{{ 7 * 7 }} \u202etxt.exe\u2066 \x1b[2J\x00" onmouseover="window.ran = 5'
)
NAME = HOSTILE.replace("\x00", "")  # which no name can hold
LONG = "a long text, " * 80_000
UNBROKEN = "w" * 20_000


@pytest.fixture(scope="module")
def history(driven: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    history = History(tmp_path_factory.mktemp("hostile") / "kindlm.db")
    for run in ("aaaa2222", "bbbb3333"):
        _write(history, run)
    history.close()
    return history.path


@pytest.fixture(scope="module")
def address(history: Path) -> Iterator[str]:
    with served(history) as address:
        yield address


def _write(history: History, run: str) -> RunView:
    """Record a run all of whose texts are hostile, and whose second execution is huge."""
    writer = history.run(run, label=HOSTILE)
    tests = [Make.planned(NAME, NAME), Make.planned(UNBROKEN, UNBROKEN)]
    writer.suite(NAME, tests=tests, path=HOSTILE)
    said = f"{HOSTILE} said in {run}"
    evidence = [{"source": "output", "start": 3, "end": 40, "name": HOSTILE}]
    failed = Make.failed(
        label=HOSTILE, message=HOSTILE, expected=HOSTILE, actual=said, evidence=evidence,
        reasoning=HOSTILE,
    )  # fmt: skip
    writer.execution(
        HOSTILE, HOSTILE, system=HOSTILE, user=HOSTILE, output=said, judge=HOSTILE,
        assertions=(failed,), tools=((HOSTILE, {HOSTILE: said}, {"answer": HOSTILE}),),
        failures=(Make.provider_failed(),), warnings=(HOSTILE,),
    )  # fmt: skip
    tools = [("lookup", {"number": number, "note": UNBROKEN[:400]}, {}) for number in range(500)]
    writer.execution(
        UNBROKEN, UNBROKEN, system=LONG, user=UNBROKEN, output=LONG,
        assertions=(Make.failed(message=UNBROKEN, actual=LONG),), tools=tuple(tools),
    )  # fmt: skip
    return writer.finish()


@pytest.mark.parametrize(
    "where",
    [
        "runs",
        "run/bbbb3333",
        "execution/bbbb3333-1",
        "execution/bbbb3333-2",
        "outputs/bbbb3333",
        "diff?before=aaaa2222&after=bbbb3333",
        f"test?project=shop&suite={quote(NAME)}&name={quote(NAME)}&target={quote(NAME)}",
        f"search?q={quote(HOSTILE)}",
    ],
)
def test_nothing_of_it_runs_and_the_page_stays_usable(
    visit: Visit, address: str, where: str
) -> None:
    page = visit.open(address + where)
    visit.unfold()
    for width in ("wide", "narrow"):
        visit.look(width, "light")
        visit.assert_fits()
    if where != "execution/bbbb3333-2":  # too large to be looked at in time
        # Colours are those of any text.
        visit.assert_accessible(colors=False)
    _assert_nothing_ran(page)
    page.get_by_role("link", name="Runs", exact=True).first.click()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()


def test_long_names_leave_all_columns_of_the_runs_in_sight(visit: Visit, address: str) -> None:
    page = visit.open(f"{address}runs")
    visit.look("wide", "light")
    wide, inner = page.locator(".wide").evaluate("(it) => [it.scrollWidth, it.clientWidth]")
    assert wide == inner


def test_long_names_leave_outcomes_in_one_line(visit: Visit, address: str) -> None:
    page = visit.open(f"{address}diff?before=aaaa2222&after=bbbb3333")
    outcome = page.get_by_role("cell", name="failed 0/1", exact=True).first
    lines = """(it) => {
      const text = document.createRange();
      text.selectNodeContents(it);
      return text.getClientRects().length;
    }"""
    assert outcome.evaluate(lines) == 1


def test_500_tool_calls_and_texts_of_a_megabyte_are_read(visit: Visit, address: str) -> None:
    page = visit.open(f"{address}execution/bbbb3333-2")
    talk = page.get_by_role("region", name="Conversation")
    expect(talk.locator(".tool")).to_have_count(500)
    folded = talk.locator("summary", has_text="characters").first
    folded.click()
    expect(talk.get_by_role("group", name="The whole text").first).to_be_visible()
    folded.click()
    expect(talk.get_by_role("group", name="The whole text").first).to_be_hidden()


@pytest.mark.parametrize(
    "command",
    [
        ("report", "bbbb3333", "--format", "html"),
        ("diff", "aaaa2222", "bbbb3333", "--format", "html"),
    ],
)
def test_in_files_nothing_of_it_runs_either(
    visit: Visit, history: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = tmp_path / "page.html"
    new_workspace(tmp_path).run(*command, "--db", str(history), "-o", str(file))
    page = visit.open(file.as_uri())
    visit.unfold()
    visit.look("narrow", "light")
    visit.assert_fits()
    _assert_nothing_ran(page)


def _assert_nothing_ran(page: Page) -> None:
    assert page.evaluate("window.ran") is None
    foreign = "img, iframe, meta[http-equiv=refresh], [onload], [onerror], [onmouseover]"
    assert page.locator(f"{foreign}, a[href^='javascript:']").count() == 0
