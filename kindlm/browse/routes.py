"""The pages that the plugin serves: each is asked of the history, and made by `kindlm.reports`.

A page is a function from the history and what was asked to a `Document`, or None if there is no
such thing. It runs in a thread of Datasette's, on a connection that only reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasette.utils import tilde_decode  # type: ignore[import-untyped]
from datasette.utils.asgi import (  # type: ignore[import-untyped]
    Forbidden,
    NotFound,
    Response,
)

from kindlm.browse.addresses import PREFIX, Addresses
from kindlm.browse.ours import histories, is_history, may_read
from kindlm.errors import Err
from kindlm.history.run_names import find_pair
from kindlm.reports.pages.document import Document, policy, render, render_part

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]
    from datasette.utils.asgi import Request

__all__ = ["ROUTES", "Asked"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of a page: what its address names, the query after it, and of which file."""

    name: str
    query: Mapping[str, str]
    history: Path


Page = Callable[[sqlite3.Connection, Asked, Addresses], Document | None]


def _runs(db: sqlite3.Connection, asked: Asked, links: Addresses) -> Document:
    from kindlm.reports.pages.runs_page import runs_page

    return runs_page(db, asked.query, links)


def _run(db: sqlite3.Connection, asked: Asked, _: Addresses) -> Document | None:
    from kindlm.reports.pages.run_page import run_page

    return run_page(db, asked.name)


def _execution(db: sqlite3.Connection, asked: Asked, _: Addresses) -> Document | None:
    from kindlm.reports.pages.execution_page import execution_page

    return execution_page(db, asked.name)


def _diff(db: sqlite3.Connection, asked: Asked, _: Addresses) -> Document | None:
    from kindlm.history.diff.run_diff import DiffOptions, compare_runs
    from kindlm.reports.pages.diff_page import diff_page

    pair = find_pair(db, asked.query.get("before"), asked.query.get("after"), lambda _: None)
    if isinstance(pair, Err):
        return None
    return diff_page(compare_runs(db, *pair.value, DiffOptions()))


def _trend(db: sqlite3.Connection, asked: Asked, links: Addresses) -> Document | None:
    from kindlm.history.trends import TestIdentity
    from kindlm.reports.pages.trend_page import trend_page

    named = [asked.query.get(name, "") for name in ("project", "suite", "name", "target")]
    return trend_page(db, TestIdentity(*named), links)


def _search(db: sqlite3.Connection, asked: Asked, _: Addresses) -> Document:
    from kindlm.browse.indexing import brought_up_to_date
    from kindlm.history.search.index import is_damage, remove_index
    from kindlm.reports.pages.search_page import SearchIndex, search_page

    def made() -> Document:
        indexing = brought_up_to_date(db, asked.history)
        index = SearchIndex(asked.history, indexing.progress, indexing.problem)
        return search_page(db, index, asked.query)

    try:
        return made()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
    remove_index(asked.history)
    return made()


def _view(page: Page) -> Any:
    """Return the view function of a page, as Datasette calls it."""

    async def view(request: Request, datasette: Datasette) -> Response:
        found = request.url_vars
        database = tilde_decode(found["database"])
        if not is_history(datasette, database):
            raise NotFound(f"{database} is no history of kindlm")
        if not await may_read(datasette, request.actor, database):
            raise Forbidden(f"You may not read {database}")
        query = {name: request.args.get(name) for name in request.args}
        path = Path(datasette.databases[database].path)
        asked = Asked(tilde_decode(found.get("name") or ""), query, path)
        part = query.get("part") is not None
        links = Addresses(datasette, database)

        def made(db: sqlite3.Connection) -> tuple[str, str] | None:
            document = page(db, asked, links)
            if document is None:
                return None
            # The page is written while the history is read: it may hold iterators of its rows.
            body = render_part(document, links) if part else "".join(render(document, links))
            return body, policy(document)

        answer = await datasette.databases[database].execute_fn(made)
        if answer is None:
            raise NotFound("There is nothing of that name in this history")
        body, rules = answer
        return Response.html(body, headers=_headers(rules))

    return view


async def _start(request: Request, datasette: Datasette) -> Response:
    """Lead to the runs of the first history that may be read."""
    for name in histories(datasette):
        if await may_read(datasette, request.actor, name):
            return Response.redirect(Addresses(datasette, name).runs())
    raise NotFound("No database here is a history of kindlm")


def _headers(rules: str) -> dict[str, str]:
    return {
        "content-security-policy": f"{rules}; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }


_DATABASE = rf"^{PREFIX}/(?P<database>[^/]+)"

ROUTES: list[tuple[str, Any]] = [
    (rf"^{PREFIX}$", _start),
    (rf"{_DATABASE}/runs$", _view(_runs)),
    (rf"{_DATABASE}/run/(?P<name>[^/]+)$", _view(_run)),
    (rf"{_DATABASE}/execution/(?P<name>[^/]+)$", _view(_execution)),
    (rf"{_DATABASE}/diff$", _view(_diff)),
    (rf"{_DATABASE}/test$", _view(_trend)),
    (rf"{_DATABASE}/search$", _view(_search)),
]
