"""The addresses of pages of a history."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from datasette.utils import tilde_encode  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]


PREFIX = "/-/kindlm"


class Addresses:
    """Where the pages of a history are served; implements `kindlm.reports.pages.links.Links`."""

    def __init__(self, datasette: Datasette, database: str) -> None:
        self._datasette = datasette
        self._database = database

    def runs(self) -> str:
        """Return where all runs are listed."""
        return self._page("runs")

    def run(self, run: str) -> str:
        """Return where a run is shown, by its id."""
        return self._page("run", run)

    def execution(self, execution: str) -> str:
        """Return where an execution is shown, by its id."""
        return self._page("execution", execution)

    def diff(self, before: str, after: str) -> str:
        """Return where two runs are compared, by their ids."""
        return self._page("diff", before=before, after=after)

    def test(self, project: str, suite: str, name: str, target: str) -> str:
        """Return where a test is shown over time."""
        return self._page("test", project=project, suite=suite, name=name, target=target)

    def search(self) -> str:
        """Return where texts are searched."""
        return self._page("search")

    def tables(self) -> str:
        """Return where the tables themselves are shown."""
        address: str = self._datasette.urls.database(self._database)
        return str(address)

    def _page(self, *parts: str, **query: str) -> str:
        path = "/".join(tilde_encode(part) for part in (self._database, *parts))
        asked = f"?{urlencode(query)}" if query else ""
        return str(self._datasette.urls.path(f"{PREFIX}/{path}{asked}"))
