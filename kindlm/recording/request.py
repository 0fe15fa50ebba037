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
    redact_pii: bool = False


@dataclass(frozen=True, slots=True)
class Derived:
    """How a run is derived from a recorded run.

    A rescored run checks the recorded conversations again; a replayed run gives its targets'
    recorded answers again. `asks_judges` says whether judges get questions that the record does not
    answer. `repeats` are the planned repeat numbers of each test; None: all. `never` are executions
    that the recorded run does not have, by test and repeat, and `why_incomplete` the reason. With
    `masks_times`, requests of agents that differ only in times and UUIDs count as equal.
    """

    mode: Literal["rescored", "replayed"]
    run: str
    asks_judges: bool = True
    repeats: Mapping[QualifiedName, Sequence[int]] | None = None
    never: frozenset[tuple[QualifiedName, int]] = frozenset()
    why_incomplete: str | None = None
    masks_times: bool = False


@dataclass(frozen=True, slots=True)
class Settling:
    """How to add repeats to the tests of the run `run`, round by round.

    `next_round` returns the next repeats for the tests of a plan, from everything recorded so far,
    or None at the end. `baselines` and `cassettes` are those of the suites in that run.
    """

    run: str
    baselines: Mapping[tuple[str, str], str | None]
    cassettes: Mapping[tuple[str, str], Mapping[str, str]]
    next_round: Callable[[sqlite3.Connection, Plan, Stop], Awaitable[Plan | None]]


@dataclass(frozen=True, slots=True)
class Driven:
    """Lets another program, pytest, decide which test runs when.

    `parts` gets the plan, and by path the reasons why suites cannot run. It yields the next part of
    the plan, until nothing is left. If tests are `dealt` to several processes during the run, the
    run only has those that arrived, and stays open: see `end_dealt`. At the end, `objection`
    returns why the run is incomplete although its whole plan ran, or None.
    """

    parts: Callable[[Plan, Mapping[str, KindlmError]], AsyncIterator[Plan]]
    dealt: bool = False
    objection: Callable[[], str | None] = lambda: None


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What to run. `environ` is the environment that providers and services see.

    A run that is `generating` writes tests and runs none. For a resumed run, `changed` names the
    suites that differ from the recorded ones, and `places` has the recorded ordinals of suites. For
    other runs, `changed` is None.
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
    def placed(self) -> Mapping[int, Suite | SkippedSuite]:
        """The suites, and those that could not be loaded, by ordinal."""
        found: list[Suite | SkippedSuite] = [*self.suites, *self.skipped]
        return {self.places.ordinal(each.path, at): each for at, each in enumerate(found)}

    @property
    def mode(self) -> Literal["live", "rescored", "replayed", "settled", "generation"]:
        """The kind of the run, as recorded."""
        if self.settling is not None:
            return "settled"
        if self.generating:
            return "generation"
        return self.derived.mode if self.derived else "live"


class Watcher(Protocol):
    """Shows the progress of a run; it gets no secrets or personal data."""

    def planned(self, plan: Plan, ended: Collection[str]) -> None:
        """Show the plan before it starts; `ended` are the ids of executions that have ended."""

    def started(self, run: LiveRun) -> None:
        """Note the start of a planned run; `run.in_flight` shows its executions."""

    def finished(self, finished: Finished) -> None:
        """Show the end of an execution, after it is on disk."""

    def show_problem(self, problem: KindlmError | Diagnostic) -> None:
        """Show an error or warning at once, such as an empty cassette."""
