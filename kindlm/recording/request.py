"""The request of one session of a run, and the protocol of its observers."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from kindlm.config.diagnostics import Diagnostic
from kindlm.dataclass import dataclass
from kindlm.engine.attempt import Finished
from kindlm.engine.resources import Limits, LiveRun
from kindlm.engine.stop import Stop
from kindlm.errors import KindlmError
from kindlm.events.run import RunOptions
from kindlm.plan import Places, Plan, QualifiedName, Selection
from kindlm.suite import Suite


@dataclass(frozen=True, slots=True)
class SkippedSuite:
    """A suite that could not be loaded or started, and why."""

    name: str
    path: str
    tests: int
    error: KindlmError


@dataclass(frozen=True, slots=True)
class Lacking:
    """What a run did not come to, by test and repeat; `why` is the reason."""

    executions: frozenset[tuple[QualifiedName, int]]
    why: str


@dataclass(frozen=True, slots=True)
class Derived:
    """That a run is made of what another one recorded.

    Rescored, what was said then is checked again; replayed, what targets answered then is answered
    again. `asks_judges` says whether judges are asked what they were not asked then. `repeats` are
    the numbers of the repeats that are planned of each test; None: all of every test.
    A run that is made of one with `lacking` executions stays as incomplete as that one is. With
    `masks_times`, requests of agents that differ in times and UUIDs alone count as equal.
    """

    mode: Literal["rescored", "replayed"]
    run: str
    asks_judges: bool = True
    repeats: Mapping[QualifiedName, Sequence[int]] | None = None
    lacking: Lacking | None = None
    masks_times: bool = False


@dataclass(frozen=True, slots=True)
class Settling:
    """That repeats are added to the tests of the run `run`, round by round.

    `next_round` returns what is to run next of the tests of a plan, by all that is recorded, and
    None when it is over; the stop of the run ends it, too. `baselines` are those that the suites
    had in that run.
    """

    run: str
    baselines: Mapping[tuple[str, str], str | None]
    next_round: Callable[[sqlite3.Connection, Plan, Stop], Awaitable[Plan | None]]


@dataclass(frozen=True, slots=True)
class Driven:
    """Another program decides which test runs when: pytest, one after the other.

    `parts` is handed the plan and, by their paths, why suites cannot run; it yields what is to run
    next, and ends when that is all. Where tests are `dealt` to several processes as they go on, the
    run has those only that came, and stays open: see `end_dealt`. `objection` says at the end why
    the run is not complete although all of it ran, None if it is.
    """

    parts: Callable[[Plan, Mapping[str, KindlmError]], AsyncIterator[Plan]]
    dealt: bool = False
    objection: Callable[[], str | None] = lambda: None


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What is to be run. `environ` is the environment that providers and services see.

    A run that is `generating` writes tests, and tests nothing. `changed` is None unless a run is
    resumed; then it names the suites that are not what they were, and `places` says where suites
    stand in the run.
    """

    suites: Sequence[Suite]
    skipped: Sequence[SkippedSuite]
    selection: Selection
    root: Path
    database: Path
    environ: Mapping[str, str]
    options: RunOptions
    limits: Limits = Limits()
    label: str | None = None
    group: str | None = None
    changed: tuple[str, ...] | None = None
    places: Places = Places()
    derived: Derived | None = None
    settling: Settling | None = None
    driven: Driven | None = None
    generating: bool = False

    @property
    def mode(self) -> Literal["live", "rescored", "replayed", "settled", "generation"]:
        """What kind of run it is, as it is recorded."""
        if self.settling is not None:
            return "settled"
        if self.generating:
            return "generation"
        return self.derived.mode if self.derived else "live"


class Watcher(Protocol):
    """Receives what happens while it happens, without secrets or personal data."""

    def planned(self, plan: Plan, ended: Collection[str]) -> None:
        """Hear what there is to do, before any of it starts; `ended` has ended already, by id."""

    def started(self, run: LiveRun) -> None:
        """Hear that what was planned starts; `run` says at any time what is in flight."""

    def finished(self, finished: Finished) -> None:
        """Hear that an execution ended; its end is on disk."""

    def tell(self, item: KindlmError | Diagnostic) -> None:
        """Hear what the user has to know now.

        A cassette holds nothing, say, or a served program ended by itself.
        """
