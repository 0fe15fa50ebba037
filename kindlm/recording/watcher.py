"""Who is told how a session of a run goes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from kindlm.config import Diagnostic
from kindlm.engine.attempt import Finished
from kindlm.errors import KindlmError
from kindlm.plan import Plan

__all__ = ["Watcher"]


class Watcher(Protocol):
    """Is told what happens while it happens; what it is told holds no secret or personal data."""

    def planned(self, plan: Plan, ended: Collection[str]) -> None:
        """Hear what there is to do, before any of it starts; `ended` has ended already, by id."""
        ...

    def finished(self, finished: Finished) -> None:
        """Hear that an execution ended; its end is on disk."""
        ...

    def tell(self, item: KindlmError | Diagnostic) -> None:
        """Hear what the user has to know now.

        A cassette holds nothing, say, or a served program ended by itself.
        """
        ...
