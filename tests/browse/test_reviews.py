"""Reviews from pages: posted by their own form alone, and recorded as the command records them."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from kindlm.browse.datasette_server import make_datasette
from kindlm.cli.commands.browse import reviews_of
from kindlm_store import EventLog, OpenError

OWN = {"sec-fetch-site": "same-origin"}


@pytest.fixture
def recorded(history: Any, make: Any) -> Any:
    writer = history.run("aaaa2222")
    writer.suite(tests=[make.planned(repeat=3)])
    for repeat in (1, 2, 3):
        writer.execution(repeat=repeat, assertions=(make.passed(),))
    return writer.finish()


@pytest.fixture
def post(history: Any) -> Any:
    """Post a review of an execution, as a browser does that shows a page of `kindlm browse`."""

    def call(
        execution: str = "aaaa2222-1",
        headers: Any = OWN,
        *,
        serves_others: bool = False,
        **posted: str,
    ) -> Any:
        review = None if serves_others else reviews_of(history.path)
        datasette = make_datasette(history.path, review=review)

        async def answer() -> Any:
            await datasette.invoke_startup()
            # With a cookie, Datasette itself would ask for a token.
            sent = {"headers": headers, "cookies": {"ds_csrftoken": "other"}}
            path = f"/-/kindlm/kindlm/review/{execution}"
            return await datasette.client.post(path, data=posted, **sent)

        return asyncio.run(answer())

    return call


def reviews(history: Any) -> list[Any]:
    return [
        (e.data["execution"], e.data["passed"]) for e in history.log.read(types=["review.recorded"])
    ]


def test_it_is_recorded_and_leads_to_the_next_that_nobody_reviewed(
    ask: Any, post: Any, history: Any, recorded: Any
) -> None:
    first = post("aaaa2222-2", verdict="fail", note="Too <b>cold</b>.")
    assert first.status_code == 303
    assert first.headers["location"] == "/-/kindlm/kindlm/execution/aaaa2222-3?reviewed=aaaa2222-2"
    (path, _) = post("aaaa2222-3", verdict="pass").headers["location"].split("?")
    assert path.endswith("aaaa2222-1"), "after the last comes the first"
    assert post("aaaa2222-1", verdict="pass").headers["location"].split("?")[0] == path
    assert reviews(history) == [(2, False), (3, True), (1, True)]
    page = ask("execution/aaaa2222-1?reviewed=aaaa2222-1").text
    assert "Every execution of this run is reviewed." in page
    assert "Too &lt;b&gt;cold&lt;/b&gt;." in ask("execution/aaaa2222-2").text


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"headers": {}}, 403),
        ({"headers": {"sec-fetch-site": "cross-site"}}, 403),
        ({"headers": {"sec-fetch-site": "same-site"}}, 403),
        ({"serves_others": True}, 403),
        ({"verdict": "perhaps"}, 400),
        ({"note": "x" * 100_001}, 413),
        ({"execution": "aaaa2222-9"}, 400),
        ({"execution": "zzzz9999-1"}, 400),
    ],
)
def test_what_no_form_of_ours_sends_is_refused(
    post: Any, history: Any, recorded: Any, change: Any, status: int
) -> None:
    assert post(**{"verdict": "pass"} | change).status_code == status
    assert reviews(history) == []


def test_no_page_offers_it_where_nothing_records_it(ask: Any, recorded: Any) -> None:
    page = ask("execution/aaaa2222-1").text
    assert "<form" not in page
    assert re.findall(r'aria-keyshortcuts="(.)"', page) == ["j"]


def test_what_cannot_be_written_is_said_on_the_page(
    post: Any, history: Any, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "cannot be written: the file or its folder is read-only"

    def refused(path: Any, *_: Any, **__: Any) -> Any:
        raise OpenError(path, why)

    monkeypatch.setattr(EventLog, "open", refused)
    answer = post(verdict="pass", note="Too cold.")
    assert answer.status_code == 500
    assert why in answer.text
    assert "go back and send it again" in answer.text
    assert reviews(history) == []
