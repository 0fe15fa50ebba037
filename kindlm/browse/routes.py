"""The pages that the plugin serves: their addresses, and who may read them.

A page is a function from the history and the request to a `Document`, or None if nothing is there.
`kindlm.reports` makes the documents. A page runs in a thread of Datasette, on a read-only
connection. An error is a page as well, with the reason. `kindlm browse` passes the function that
records reviews.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode
from weakref import WeakKeyDictionary

from datasette.utils import tilde_decode, tilde_encode  # type: ignore[import-untyped]
from datasette.utils.asgi import Forbidden, Response  # type: ignore[import-untyped]

from kindlm.browse.descriptions import regression_threshold
from kindlm.dataclass import dataclass
from kindlm.errors import Err, Result
from kindlm.history.read_models import read_model_problem
from kindlm.history.run_names import find_sides
from kindlm.reports.pages.execution_page import execution_page, next_unreviewed
from kindlm.reports.pages.history_pages import runs_page, search_page, trend_page
from kindlm.reports.pages.html_document import (
    Document,
    Links,
    notice_page,
    policy,
    render,
    render_part,
)
from kindlm.reports.pages.run_pages import outputs_page, run_page
from kindlm_store import OpenError, StoreError, open_reader

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]
    from datasette.utils.asgi import Request

PREFIX = "/-/kindlm"

Actor = Mapping[str, Any]
"""Who asks, as Datasette has it. Of those that a history server lets in, it holds `ACCOUNT`."""

ACCOUNT = "kindlm_account"
"""Key of a name, and of the address where its person logs out."""

RecordReview = Callable[[str, bool, str | None], Result[None]]
"""Records whether an execution passes, by its id, with a note."""

Reviewer = Callable[[Actor | None], RecordReview | None]
"""Returns what records the reviews of who asks, None for somebody who only reads."""

reviewers: WeakKeyDictionary[Datasette, Reviewer] = WeakKeyDictionary()
"""Of the Datasettes that take reviews."""

_LONGEST_REVIEW = 100_000
"""Bytes of a form."""


_OF_DATASETTE = frozenset({"_memory", "_internal"})
"""Databases that Datasette has of its own."""


def histories(datasette: Datasette) -> list[str]:
    """Return the names of the databases that are histories."""
    return [name for name in datasette.databases if is_history(datasette, name)]


def is_history(datasette: Datasette, database: str) -> bool:
    """Tell whether a database of that name is there and is a history."""
    found = datasette.databases.get(database)
    return found is not None and found.path is not None and _is_history(str(found.path))


def is_about_history(datasette: Datasette, segment: str) -> bool:
    """Tell whether pages below the first segment of a path are about a history.

    Pages about no database in particular are where there is nothing but histories.
    """
    route = tilde_decode(segment)
    for name, database in datasette.databases.items():
        if database.route == route and name not in _OF_DATASETTE:
            return is_history(datasette, name)
    others = [name for name in datasette.databases if name not in _OF_DATASETTE]
    return bool(others) and all(is_history(datasette, name) for name in others)


async def may_read(datasette: Datasette, actor: dict[str, Any] | None, database: str) -> bool:
    """Tell whether somebody may read all of a history: its pages show what is in every table."""
    # Without a rule about a table, the rule about its database counts.
    wanted = [("view-table", (database, "contents")), ("view-database", database), "view-instance"]
    try:
        await datasette.ensure_permissions(actor, wanted)
    except Forbidden:
        return False
    return True


@lru_cache(maxsize=64)
def _is_history(path: str) -> bool:
    # Asked for each cell of each table that is shown: a file does not change what it is.
    try:
        with closing(open_reader(path)) as connection:
            connection.execute("SELECT id FROM runs LIMIT 1")
            return True
    except (OpenError, sqlite3.Error):
        return False


class Addresses(Links):
    """Where the pages of a history are served."""

    def __init__(self, datasette: Datasette, database: str, actor: Actor | None = None) -> None:
        self._datasette = datasette
        self._database = database
        self._actor = actor

    def review(self, execution: str) -> str | None:
        """Return where a review of an execution is posted to, None if who asks only reads."""
        reads_only = reviewer_of(self._datasette, self._actor) is None
        return None if reads_only else super().review(execution)

    def tables(self) -> str:
        """Return where the tables themselves are shown."""
        address: str = self._datasette.urls.database(self._database)
        return str(address)

    def account(self) -> tuple[str, str] | None:
        """Return who looks, and where they log out."""
        return None if self._actor is None else self._actor.get(ACCOUNT)

    def _page(self, *parts: str, **query: str) -> str:
        path = "/".join(tilde_encode(part) for part in (self._database, *parts))
        asked = f"?{urlencode(query)}" if query else ""
        return str(self._datasette.urls.path(f"{PREFIX}/{path}{asked}"))


def reviewer_of(datasette: Datasette, actor: Actor | None) -> RecordReview | None:
    """Return what records the reviews of who asks, None for somebody who only reads."""
    found = reviewers.get(datasette)
    return None if found is None else found(actor)


def sent_by_own_page(headers: Mapping[str, str]) -> bool:
    """Tell whether a form was sent by a page of this server, as browsers say: no other site can."""
    if (site := headers.get("sec-fetch-site")) is not None:
        return site == "same-origin"
    # Browsers leave that out where pages come over plain HTTP from another machine.
    origin = headers.get("origin", "").partition("://")[2]
    return bool(origin) and origin in (headers.get("host"), headers.get("x-forwarded-host"))


async def posted(request: Request, most: int) -> dict[str, str] | None:
    """Return the fields of a form, None if it is longer than `most` bytes or not complete."""
    body = b""
    more = True
    while more:
        message = await request.receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or len(body) > most:
            return None
        more = message.get("more_body", False)
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of a page: what its address names, the query after it, and of which file.

    `regression_threshold` is how far a mean score may fall before that is a regression, None for
    the default.
    """

    name: str
    query: Mapping[str, str]
    history: Path
    regression_threshold: float | None


Page = Callable[[sqlite3.Connection, Asked, Addresses], Document | None]


def _diff(db: sqlite3.Connection, asked: Asked, _: Addresses) -> Document:
    from kindlm.history.diff.run_diff import DiffOptions, compare_runs
    from kindlm.reports.diff.html import diff_choice_page, diff_page, read_diff_form

    before, after = asked.query.get("before", ""), asked.query.get("after", "")
    # No repository is looked into: commits are found where they were recorded.
    sides = find_sides(db, before or None, after or None, lambda _: None)
    if isinstance(sides, Err):
        return diff_choice_page(read_diff_form(db, before, after), sides.error)
    options = DiffOptions(regression_threshold=asked.regression_threshold)
    like = sides.value[1]
    form = read_diff_form(db, before, after, like if isinstance(like, str) else like.runs[0])
    return diff_page(compare_runs(db, *sides.value, options), form)


def _view(page: Page) -> Any:
    """Return the view function of a page, as Datasette calls it."""

    async def view(request: Request, datasette: Datasette) -> Response:
        found = request.url_vars
        database = tilde_decode(found["database"])
        if not is_history(datasette, database):
            return response(_absent(f"{database} is not a kindlm history."), Links())
        if not await may_read(datasette, request.actor, database):
            message = f"You do not have permission to read {database}."
            return response(notice_page("Access denied", message, status=403), Links())
        query = {name: request.args.get(name) for name in request.args}
        path = Path(datasette.databases[database].path)
        threshold = regression_threshold(datasette, database)
        asked = Asked(tilde_decode(found.get("name") or ""), query, path, threshold)
        links = Addresses(datasette, database, request.actor)
        part = query.get("part") is not None

        def made(db: sqlite3.Connection) -> Response:
            # The page is written while the history is read: it may hold iterators of its rows.
            if (problem := read_model_problem(db)) is not None:
                title = "The history cannot be read"
                shown = notice_page(title, problem.message, problem.hint, status=500)
            else:
                absent = _absent("This history has nothing with that name.")
                shown = page(db, asked, links) or absent
            return response(shown, links, part=part)

        return await datasette.databases[database].execute_fn(made)

    return view


def _absent(message: str) -> Document:
    hint = "It may be in another history: kindlm browse --db FILE"
    return notice_page("Not found", message, hint, status=404)


def response(document: Document, links: Links, *, part: bool = False) -> Response:
    """Return a page as it is sent, with its policy."""
    body = render_part(document, links) if part else "".join(render(document, links))
    headers = {
        "content-security-policy": f"{policy(document)}; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin",
        "cache-control": "no-store",
    }
    return Response.html(body, status=document.status, headers=headers)


async def _review(request: Request, datasette: Datasette) -> Response:
    """Record a review and lead to the next unreviewed execution of the run."""
    database, execution = (tilde_decode(request.url_vars[key]) for key in ("database", "name"))
    record = reviewer_of(datasette, request.actor)
    if record is None or not await may_read(datasette, request.actor, database):
        return _unrecorded(403, "You do not have permission to review executions here.")
    if request.method != "POST" or not sent_by_own_page(request.headers):
        return _unrecorded(403, "Only the forms of these pages record reviews.")
    form = await posted(request, _LONGEST_REVIEW)
    if form is None:
        return _unrecorded(413, "The note is too long.")
    if form.get("verdict") not in ("pass", "fail"):
        return _unrecorded(400, "A review says pass or fail.")
    note = form.get("note", "").strip() or None
    try:
        found = await asyncio.to_thread(record, execution, form["verdict"] == "pass", note)
    except StoreError as error:
        why = f"The history could not be written: {error.__cause__ or error}."
        return _unrecorded(
            500, why, "Check the disk and its permissions, go back and send it again."
        )
    if isinstance(found, Err):
        return _unrecorded(400, found.error.message)
    links = Addresses(datasette, database)
    after = await datasette.databases[database].execute_fn(
        lambda db: next_unreviewed(db, execution)
    )
    shown = links.execution(after or execution)
    return Response.redirect(f"{shown}?{urlencode({'reviewed': execution})}", status=303)


def _unrecorded(
    status: int, message: str, hint: str = "In a terminal: kindlm review RUN EXECUTION pass|fail"
) -> Response:
    return response(notice_page("Review not recorded", message, hint, status=status), Links())


async def _nowhere() -> Response:
    return response(_absent("There is no page at this address."), Links())


async def _start(request: Request, datasette: Datasette) -> Response:
    """Lead to the runs of the first history that may be read."""
    for name in histories(datasette):
        if await may_read(datasette, request.actor, name):
            return Response.redirect(Addresses(datasette, name).runs())
    return response(_absent("No database here is a kindlm history."), Links())


_DATABASE = rf"^{PREFIX}/(?P<database>[^/]+)"
_NAME = "(?P<name>[^/]+)"

ROUTES: list[tuple[str, Any]] = [
    (rf"^{PREFIX}$", _start),
    (rf"{_DATABASE}/runs$", _view(lambda db, asked, links: runs_page(db, asked.query, links))),
    (
        rf"{_DATABASE}/run/{_NAME}$",
        _view(lambda db, asked, _: run_page(db, asked.name, asked.query)),
    ),
    (
        rf"{_DATABASE}/execution/{_NAME}$",
        _view(lambda db, asked, _: execution_page(db, asked.name, asked.query.get("reviewed"))),
    ),
    (
        rf"{_DATABASE}/outputs/{_NAME}$",
        _view(lambda db, asked, _: outputs_page(db, asked.name, asked.query)),
    ),
    (rf"{_DATABASE}/review/{_NAME}$", _review),
    (rf"{_DATABASE}/diff$", _view(_diff)),
    (rf"{_DATABASE}/test$", _view(lambda db, asked, links: trend_page(db, asked.query, links))),
    (
        rf"{_DATABASE}/search$",
        _view(lambda db, asked, _: search_page(db, asked.history, asked.query)),
    ),
    # What has no route, some versions of Datasette answer with an error of the server.
    (rf"^{PREFIX}/", _nowhere),
]
