"""A history server in a browser: its login page, a review, the way out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import expect
from recorded_history import History, Make
from served_history import serving
from visits import Visit

from kindlm.browse.datasette_server import make_datasette
from kindlm.cli.commands.serve_history import reviews_in
from kindlm.errors import Ok
from kindlm.team.pages import Pages
from kindlm.team.token_store import TokenStore


class Team(NamedTuple):
    address: str
    token: str
    history: History


@pytest.fixture
def team(driven: Any, tmp_path: Path) -> Iterator[Team]:
    history = History(tmp_path / "team.db")
    writer = history.run("aaaa2222")
    writer.suite(tests=[Make.planned(repeat=2)])
    for repeat in (1, 2):
        writer.execution(repeat=repeat, assertions=(Make.failed(),))
    writer.finish()
    with closing(TokenStore(history.path)) as tokens:
        made = tokens.create("ann", ["pull", "review"])
        assert isinstance(made, Ok)
        datasette = make_datasette(history.path, review=reviews_in(history.path))
        with serving(Pages(datasette, tokens)) as origin:
            yield Team(origin, made.value, history)
    history.close()


def test_a_person_logs_in_reviews_and_logs_out(visit: Visit, team: Team) -> None:
    page = visit.open(f"{team.address}/-/kindlm/kindlm/execution/aaaa2222-1")
    expect(page).to_have_title("Log in")
    expect(page.get_by_label("Token")).to_be_focused()
    visit.assert_looks_well("login")
    page.keyboard.type(team.token)
    page.keyboard.press("Enter")
    page.wait_for_url("**/execution/aaaa2222-1")
    page.get_by_label("Note").fill("Too cold.")
    page.get_by_role("button", name="Fail").click()
    page.wait_for_url("**/aaaa2222-2?*")
    (review,) = team.history.log.read(types=["review.recorded"])
    assert (review.data["by"], review.data["passed"]) == ("ann", False)
    page.get_by_role("link", name="ann").click()
    visit.assert_looks_well("account")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.go_back()
    expect(page).to_have_title("Log in")
