"""The pages that the plugin serves: their paths, and who may read them.

A page is a function that returns a `Document` of `kindlm.reports` from the history and a request,
or None if the requested item does not exist. It runs in a thread of Datasette, on a read-only
connection.
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
from kindlm.errors import Err, Result
from kindlm.history.read_models import read_model_problem
from kindlm.history.run_names import find_sides
from kindlm.history.runs import RunFilter, runs
from kindlm.reports.pages.execution_page import execution_page, next_unreviewed
from kindlm.reports.pages.history_pages import runs_page, search_page, trend_page
from kindlm.reports.pages.html_document import (
    Document,
    Links,
    PageRequest,
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
"""The user of a request, as Datasette represents it. A history server adds `ACCOUNT`."""

ACCOUNT = "kindlm_account"
"""The key of the user's name and of the path where they log out."""

RecordReview = Callable[[str, bool, str | None], Result[None]]
"""Records whether an execution passes, by its id, with a note."""

Reviewer = Callable[[Actor | None], RecordReview | None]
"""Returns the function that records reviews of a user, None if the user may not review."""

reviewers: WeakKeyDictionary[Datasette, Reviewer] = WeakKeyDictionary()
"""The reviewers of each Datasette that records reviews."""

_LONGEST_REVIEW = 100_000
"""The maximum size of the form, in bytes."""

_INTERNAL_DATABASES = frozenset({"_memory", "_internal"})


def histories(datasette: Datasette) -> list[str]:
    """Return the names of the databases that are histories."""
    return [name for name in datasette.databases if is_history(datasette, name)]


def is_history(datasette: Datasette, database: str) -> bool:
    """Return whether the database exists and is a history."""
    found = datasette.databases.get(database)
    return found is not None and found.path is not None and _is_history(str(found.path))


def is_about_history(datasette: Datasette, segment: str) -> bool:
    """Return whether pages below the first segment of a path may show a history.

    Pages about no database in particular may if all databases are histories.
    """
    route = tilde_decode(segment)
    for name, database in datasette.databases.items():
        if database.route == route and name not in _INTERNAL_DATABASES:
            return is_history(datasette, name)
    others = [name for name in datasette.databases if name not in _INTERNAL_DATABASES]
    return bool(others) and all(is_history(datasette, name) for name in others)


async def may_read(datasette: Datasette, actor: dict[str, Any] | None, database: str) -> bool:
    """Return whether a user may read all tables of a history, since its pages show them all."""
    # Permissions of a table default to those of its database.
    needed = [("view-table", (database, "contents")), ("view-database", database), "view-instance"]
    try:
        await datasette.ensure_permissions(actor, needed)
    except Forbidden:
        return False
    return True


@lru_cache(maxsize=64)
def _is_history(path: str) -> bool:
    # Cached, since Datasette asks for each cell.
    try:
        with closing(open_reader(path)) as connection:
            connection.execute("SELECT id FROM runs LIMIT 1")
            return True
    except (OpenError, sqlite3.Error):
        return False


class Addresses(Links):
    """The addresses of the served pages of a history, for a user."""

    def __init__(self, datasette: Datasette, database: str, actor: Actor | None = None) -> None:
        self._datasette, self._database, self._actor = datasette, database, actor
        self.tables = str(datasette.urls.database(database))
        self.account = None if actor is None else actor.get(ACCOUNT)

    def page(self, *parts: str, **query: str) -> str | None:
        """Return the address of a page, None for a review by a user who may not review."""
        if parts[0] == "review" and reviewer_of(self._datasette, self._actor) is None:
            return None
        path = "/".join(tilde_encode(part) for part in (self._database, *parts))
        after = f"?{urlencode(query)}" if query else ""
        return str(self._datasette.urls.path(f"{PREFIX}/{path}{after}"))


def reviewer_of(datasette: Datasette, actor: Actor | None) -> RecordReview | None:
    """Return the function that records reviews of a user, None if the user may not review."""
    found = reviewers.get(datasette)
    return None if found is None else found(actor)


def sent_by_own_page(headers: Mapping[str, str]) -> bool:
    """Return whether a form was sent by a page of this server, according to the browser."""
    if (site := headers.get("sec-fetch-site")) is not None:
        return site == "same-origin"
    # Browsers omit this header for plain HTTP from another machine.
    origin = headers.get("origin", "").partition("://")[2]
    return bool(origin) and origin in (headers.get("host"), headers.get("x-forwarded-host"))


async def posted(request: Request, most: int) -> dict[str, str] | None:
    """Return the fields of a form, None if it is longer than `most` bytes or incomplete."""
    body = b""
    more = True
    while more:
        message = await request.receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or len(body) > most:
            return None
        more = message.get("more_body", False)
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


Page = Callable[[sqlite3.Connection, PageRequest], Document | None]

_OFFERED = 100


def _diff(db: sqlite3.Connection, asked: PageRequest) -> Document:
    from kindlm.history.diff.run_diff import DiffOptions, compare_runs
    from kindlm.reports.diff.html import diff_page

    before, after = asked.query.get("before", ""), asked.query.get("after", "")
    # Without a repository: only recorded commits can be found.
    sides = find_sides(db, before or None, after or None, lambda _: None)
    if isinstance(sides, Err):
        return notice_page("Compare two runs", sides.error.message, sides.error.hint, status=404)
    options = DiffOptions(regression_threshold=asked.regression_threshold)
    after_side = sides.value[1]
    like = after_side if isinstance(after_side, str) else after_side.runs[0]
    # The form offers the last runs of the same suites.
    choices = list(runs(db, RunFilter(tested_like=like, limit=_OFFERED)))
    form = {"before": before, "after": after, "choices": choices}
    return diff_page(compare_runs(db, *sides.value, options), form)


def _view(page: Page) -> Any:
    async def view(request: Request, datasette: Datasette) -> Response:
        found = request.url_vars
        database = tilde_decode(found["database"])
        if not is_history(datasette, database):
            return response(_absent(f"{database} is not a kindlm history."), Links())
        if not await may_read(datasette, request.actor, database):
            message = f"You do not have permission to read {database}."
            return response(notice_page("Access denied", message, status=403), Links())
        asked = PageRequest(
            tilde_decode(found.get("name") or ""),
            {name: request.args.get(name) for name in request.args},
            Path(datasette.databases[database].path),
            Addresses(datasette, database, request.actor),
            regression_threshold(datasette, database),
        )

        def make(db: sqlite3.Connection) -> Response:
            # The document may hold iterators over rows, so it is rendered here, too.
            if (problem := read_model_problem(db)) is not None:
                title = "The history cannot be read"
                shown = notice_page(title, problem.message, problem.hint, status=500)
            else:
                shown = page(db, asked) or _absent("This history has nothing with that name.")
            return response(shown, asked.links, part="part" in asked.query)

        return await datasette.databases[database].execute_fn(make)

    return view


def _absent(message: str) -> Document:
    hint = "It may be in another history: kindlm browse --db FILE"
    return notice_page("Not found", message, hint, status=404)


def response(document: Document, links: Links, *, part: bool = False) -> Response:
    """Return the HTTP response with a page, or with the part that updates it."""
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
    shown = links.page("execution", after or execution)
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
            return Response.redirect(Addresses(datasette, name).page("runs"))
    return response(_absent("No database here is a kindlm history."), Links())


_DATABASE = rf"^{PREFIX}/(?P<database>[^/]+)"
_NAME = "(?P<name>[^/]+)"

_PAGES: dict[str, Page] = {
    "runs": runs_page,
    f"run/{_NAME}": run_page,
    f"execution/{_NAME}": execution_page,
    f"outputs/{_NAME}": outputs_page,
    "diff": _diff,
    "test": trend_page,
    "search": search_page,
}

ROUTES: list[tuple[str, Any]] = [
    (rf"^{PREFIX}$", _start),
    *((rf"{_DATABASE}/{path}$", _view(page)) for path, page in _PAGES.items()),
    (rf"{_DATABASE}/review/{_NAME}$", _review),
    # Some versions of Datasette answer paths without a route with a server error.
    (rf"^{PREFIX}/", _nowhere),
]
