"""Where the links of a page lead: to other pages where it is served, inside it in a file."""

from __future__ import annotations

from typing import Protocol


class Links(Protocol):
    """Returns where something is shown, as a URL; None if this page can't lead there."""

    def runs(self) -> str | None:
        """Return where all runs are listed."""
        ...

    def run(self, run: str) -> str | None:
        """Return where a run is shown, by its id."""
        ...

    def execution(self, execution: str) -> str | None:
        """Return where an execution is shown, by its id."""
        ...

    def diff(self, before: str, after: str) -> str | None:
        """Return where two runs are compared, by their ids."""
        ...

    def test(self, project: str, suite: str, name: str, target: str) -> str | None:
        """Return where a test is shown over time."""
        ...

    def search(self) -> str | None:
        """Return where texts are searched."""
        ...

    def tables(self) -> str | None:
        """Return where the tables themselves are shown."""
        ...


class NoLinks:
    """The links of a file that shows one thing."""

    def runs(self) -> str | None:
        """Lead nowhere."""
        return None

    def run(self, run: str) -> str | None:
        """Lead nowhere."""
        del run
        return None

    def execution(self, execution: str) -> str | None:
        """Lead nowhere."""
        del execution
        return None

    def diff(self, before: str, after: str) -> str | None:
        """Lead nowhere."""
        del before, after
        return None

    def test(self, project: str, suite: str, name: str, target: str) -> str | None:
        """Lead nowhere."""
        del project, suite, name, target
        return None

    def search(self) -> str | None:
        """Lead nowhere."""
        return None

    def tables(self) -> str | None:
        """Lead nowhere."""
        return None
