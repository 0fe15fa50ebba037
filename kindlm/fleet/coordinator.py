"""Divides a run into shards, runs them on a fleet, and watches over them.

The coordinator knows only what workers push into its history. If a worker ends or falls silent
before the end of its shard, the shard goes to the next worker, which pulls that run and continues
it.

Each claim of a shard gives a lease with the next number, and only the newest lease counts. Later
pushes of a worker that lost its shard are refused, so two workers never record the same run.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeAlias

from kindlm.dataclass import dataclass, replace
from kindlm.engine.resources import Limits
from kindlm.engine.stop import Stop
from kindlm.fleet.workers import Fleet, Pending, ShardEnd, ShardJob
from kindlm.guard import ENDED_BY_USER_CODE
from kindlm.history.baselines import find_baseline
from kindlm.history.queries import among
from kindlm.history.runs import REASON
from kindlm.money import exceeds
from kindlm.plan import Plan
from kindlm.recording.recorded_sources import cassette_runs
from kindlm.suite import Suite
from kindlm.team.protocol import NOT_TAKEN, Control
from kindlm_store import EventLog

_PER_WORKER = 4
"""Shards for each worker, so that none waits long for the others at the end."""

Took: TypeAlias = Mapping[tuple[str, str, str], float]
"""What a repeat of a test took, in milliseconds: by path of the suite, test, target."""

# Of a run on workers, each shard has a row in `suites`.
_TOOK = """
SELECT e.test, e.target, avg(e.latency_ms)
  FROM executions e
 WHERE e.latency_ms > 0
   AND e.suite IN (SELECT s.id FROM suites s JOIN runs r ON r.id = s.run
                    WHERE s.project = ? AND s.name = ? AND r.mode = 'live'
                    ORDER BY s.started_at DESC LIMIT 64)
 GROUP BY e.test, e.target
"""

SILENT_S = 60.0
"""A worker that was not heard of for so long is gone."""

MOST_LOST = 3
"""A shard that was lost so often is given up: it may be what ends its workers."""

_TICK_S = 0.25

_AT_ONCE_S = 10.0
"""How long workers may take to end at once, before they are left to themselves."""

_SIGNALS = frozenset({"Ctrl-C", "SIGTERM", "SIGHUP"})
"""Why a run was interrupted if somebody ended its worker, rather than the whole run."""

_NOT_KEPT = "the history takes nothing that workers push"

_SILENT_END = "a worker ended before it began, and said nothing: is there room for temporary files?"

_SAID_LINES = 5

_ERROR = "✗ "
"""What an error begins with that a worker shows."""

_BY_SIGNAL = 128
"""An exit code from here on means that a signal ended the process, as in a shell."""

_NUMBER = re.compile("[1-9][0-9]{0,5}")

LEAST_RPM = 0.1
"""What `--max-rpm` takes at least."""

_RUN = f"SELECT ended, {REASON} FROM runs r WHERE id = ?"  # noqa: S608

_SPENT = """
SELECT total(c.cost_usd), total(c.is_unknown)
  FROM executions e
  JOIN counted_calls c ON c.execution = e.id
 WHERE e.run IN $ids
"""


def shard_count(plan: Plan, workers: int) -> int:
    """Return into how many shards a plan is divided: no more than it has tests, but for one."""
    return max(1, min(_PER_WORKER * workers, sum(1 for _ in _tests(plan))))


def longest_first(plan: Plan, count: int, took: Took) -> list[int]:
    """Return the numbers of the shards, from 1, the one that takes longest first.

    What the history does not know takes as long as the others do on average.
    """
    usual = sum(took.values()) / len(took) if took else 1.0
    sums = [0.0] * count
    for position, (key, repeats) in enumerate(_tests(plan)):
        sums[position % count] += took.get(key, usual) * repeats
    return sorted(range(1, count + 1), key=lambda shard: -sums[shard - 1])


def _tests(plan: Plan) -> Iterator[tuple[tuple[str, str, str], int]]:
    """Yield the tests in the order in which they are dealt to shards, with their repeats."""
    for planned in plan.suites:
        for entry in planned.cases:
            for target in entry.targets:
                yield (planned.suite.path, entry.case.name, target), entry.repeat


def read_took(db: sqlite3.Connection, suites: Sequence[Suite]) -> Took:
    """Return what the tests of suites took lately."""
    return {
        (suite.path, test, target): took
        for suite in suites
        for test, target, took in db.execute(_TOOK, (suite.project, suite.name))
    }


def runs_needed(db: sqlite3.Connection, plan: Plan) -> list[str]:
    """Return the recorded runs that tests of a plan refer to: baselines and cassettes."""
    needed: dict[str, None] = {}
    for planned in plan.suites:
        baseline = find_baseline(db, planned.suite.project, planned.suite.name)
        if baseline is not None and baseline.here:
            needed |= dict.fromkeys(baseline.runs)
        needed |= dict.fromkeys(cassette_runs(planned, db))
    return list(needed)


@dataclass(slots=True)
class _Shard:
    """A shard, and what is known of its worker.

    Attributes:
        run: What was pushed of it, if anything was.
        number: That of its newest lease.
        heard: When its worker was last heard of, None while no worker has it.
        has_begun: Whether that worker has pushed anything.
        has_pushed: Whether it has pushed events.
        lost: How many workers were lost with it.
        is_over: Whether it is done or given up: no worker can claim it any more.
    """

    run: str | None
    number: int = 0
    heard: float | None = None
    has_begun: bool = False
    has_pushed: bool = False
    lost: int = 0
    is_over: bool = False

    def lose(self) -> None:
        """Take it from its worker, so that the next one that claims it goes on."""
        self.heard = None
        self.lost += 1
        self.is_over = self.is_over or self.lost >= MOST_LOST

    def end(self) -> None:
        """Let no worker claim it any more: it is done, or it stays as it is."""
        self.heard, self.is_over = None, True


class Coordinator:
    """The shards of a run, and who works on them; implements `FleetHooks` for their pushes.

    `undone` are the shards that are not finished in the end, with the reason of each. `ended` are
    those of them that code of a user has ended, which would end any other worker as well. `refusal`
    is what the command of a worker said if it did not even begin, as for wrong usage. `failure` is
    why nothing that workers push can be kept; None as long as it can.

    Args:
        log: The history.
        shards: What there is to do: the shards, each with the run that it goes on with, or None.
        bring: Runs that workers need of the history, such as baselines.
        limits: What all workers together may take.
        stop: Ends the run early.
        news: Called in the event loop with runs that something was pushed of.
        earlier: Runs of the same group that are there already: what they cost counts.
        warn: Called with each warning of a worker that no other one has shown, and its hint.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        log: EventLog,
        shards: Mapping[int, str | None],
        bring: Sequence[str],
        limits: Limits,
        stop: Stop,
        news: Callable[[set[str]], None],
        earlier: Sequence[str] = (),
        warn: Callable[[str, str | None], None] = lambda _message, _hint: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.undone: dict[int, str] = {}
        self.ended: set[int] = set()
        self.refusal: str | None = None
        self.failure: Exception | None = None
        self._log = log
        self._bring = bring
        self._limits = limits
        self._stop = stop
        self._news = news
        self._earlier = earlier
        self._warn = warn
        self._warned: set[tuple[str, str | None]] = set()
        self._clock = clock
        self._began = clock()
        # The threads of the server use these, too.
        self._lock = threading.Lock()
        self._shards = {shard: _Shard(run) for shard, run in shards.items()}
        self._new: set[str] = set()
        self._told = Control()
        self._is_hurried = False
        self._capacity = 1
        self._unknown: float | None = None
        """Calls of unknown cost that were made before, which no limit can hold for."""

    # What the server asks.

    def hear(self, lease: str) -> bool:
        """Return whether a lease is the newest one of its shard; if so, its worker is alive."""
        number = lease.partition(".")[0]
        with self._lock:
            shard = self._shards.get(int(number)) if _NUMBER.fullmatch(number) else None
            if shard is None or shard.heard is None or lease != f"{number}.{shard.number}":
                return False
            shard.heard = self._clock()
            return self.failure is None

    def failed(self, error: Exception) -> None:
        """Note that the server failed: no lease counts any more, so that all workers end."""
        with self._lock:
            self.failure = self.failure or error

    def pushed(self, lease: str, runs: Sequence[str]) -> Control:
        """Note that the worker of a lease has begun, and its run; return what it has to do."""
        with self._lock:
            shard = self._shards[int(lease.partition(".")[0])]
            shard.has_begun = True
            for run in runs:
                shard.run, shard.has_pushed = shard.run or run, True
            self._new.update(runs)
            return replace(self._told, max_rpm=self._rpm())

    def claim(self, number: int) -> dict[str, Any]:
        """Give a shard to a worker, with the run that it goes on with; no lease: it is over."""
        with self._lock:
            shard = self._shards.get(number)
            if shard is None or self._told.stop is not None or self.failure is not None:
                return {"lease": None}
            if shard.heard is not None:
                shard.lose()
            if shard.is_over:
                return {"lease": None}
            shard.number += 1
            shard.heard = now = self._clock()
            shard.has_begun = shard.has_pushed = False
            rest = self._limits.max_time_s
            return {
                "lease": f"{number}.{shard.number}",
                "run": shard.run,
                "bring": [*self._bring, *([] if shard.run is None else [shard.run])],
                "max_rpm": self._rpm(),
                "max_time_s": rest and max(0.1, rest - (now - self._began)),
            }

    def _rpm(self) -> float | None:
        """Return the share of each worker in `--max-rpm`.

        Unless workers are added, fewer and fewer shards are left: no sum of shares is too much.
        """
        if self._limits.max_rpm is None:
            return None
        left = sum(not shard.is_over for shard in self._shards.values())
        workers = max(1, min(self._capacity, left))
        return max(LEAST_RPM, self._limits.max_rpm / workers)

    @property
    def workers(self) -> int:
        """How many workers have a shard now."""
        with self._lock:
            # The shard of a worker that has just finished one counts until its end was looked at.
            live = sum(shard.heard is not None for shard in self._shards.values())
            return min(live, self._capacity)

    # What the run does.

    async def carry_out(self, fleet: Fleet, jobs: Mapping[int, ShardJob]) -> None:
        """Run shards, in the order of their jobs, until each is done or given up."""
        left_to_end_s = _AT_ONCE_S
        self._capacity = fleet.capacity
        with closing(self._log.reader()) as db:
            self._look_at_costs(db)
            if self._stop.aborted:
                return
            submitted: dict[int, Pending] = {
                shard: fleet.submit(job) for shard, job in jobs.items()
            }
            while submitted and left_to_end_s > 0:
                await asyncio.sleep(_TICK_S)
                self._capacity = fleet.capacity
                if self._tell_news():
                    self._look_at_costs(db)
                if self.failure is not None:
                    self._stop.abort(_NOT_KEPT, cut_off=True)
                most = self._limits.max_time_s
                if most is not None and self._clock() - self._began > most:
                    reason = f"the run took longer than {most:g} s (--max-time)"
                    self._stop.abort(reason, cut_off=True)
                if self._stop.winding_down.is_set():
                    at_once = self._stop.requested.is_set()
                    with self._lock:
                        self._told = Control(self._stop.reason, at_once=at_once)
                if self._stop.at_once.is_set() and not self._is_hurried:
                    self._is_hurried = True
                    fleet.interrupt()
                for shard, pending in list(submitted.items()):
                    if (end := self._end_of(shard, pending)) is None:
                        continue
                    del submitted[shard]
                    pending.cancel()
                    for warning in end.warnings:
                        if warning not in self._warned:
                            self._warned.add(warning)
                            self._warn(*warning)
                    if self._goes_on(shard, end, db):
                        submitted[shard] = fleet.submit(jobs[shard])
                left_to_end_s -= _TICK_S if self._is_hurried else 0.0
        self._tell_news()

    def _tell_news(self) -> bool:
        with self._lock:
            new, self._new = self._new, set()
        if new:
            self._news(new)
        return bool(new)

    def _look_at_costs(self, db: sqlite3.Connection) -> None:
        most = self._limits.max_cost_usd
        if most is None:
            return
        runs = {*self._earlier, *(shard.run for shard in self._shards.values() if shard.run)}
        spent, unknown = db.execute(*among(_SPENT, list(runs))).fetchone()
        if exceeds(spent, most):
            self._stop.abort(f"${spent:.4f} spent, more than --max-cost {most:g} allows")
        elif self._unknown is None:
            self._unknown = unknown
        elif unknown > self._unknown:
            self._stop.abort(f"a call of unknown cost was made: --max-cost {most:g} cannot be kept")

    def _end_of(self, shard: int, pending: Pending) -> ShardEnd | None:
        """Return how a job ended; None for one that goes on."""
        if pending.done():
            try:
                return pending.result()
            except Exception as error:  # noqa: BLE001 - whatever ends a job, it can be done again
                return ShardEnd(None, f"{type(error).__name__}: {error}")
        heard = self._shards[shard].heard
        if heard is not None and self._clock() - heard > SILENT_S:
            return ShardEnd(None, f"its worker was not heard of for {SILENT_S:.0f} s")
        return None

    def _goes_on(self, number: int, end: ShardEnd, db: sqlite3.Connection) -> bool:
        """Return whether a shard whose job has ended goes to another worker."""
        with self._lock:
            shard = self._shards[number]
            how, reason = db.execute(_RUN, (shard.run,)).fetchone() or (None, None)
            if how == "finished":
                pass
            elif shard.has_pushed and how is not None and reason not in _SIGNALS:
                self.undone[number] = reason or how
            elif self._told.stop is not None or self.failure is not None:
                self.undone[number] = self._told.stop or _NOT_KEPT
            elif end.code in (ENDED_BY_USER_CODE, NOT_TAKEN):
                if end.code == ENDED_BY_USER_CODE:
                    self.ended.add(number)
                self.undone[number] = _last_words(end)
            elif not shard.has_begun and end.code is not None and 0 <= end.code < _BY_SIGNAL:
                self.undone[number] = "its worker did not begin"
                self.refusal = self.refusal or end.said or None
                self._stop.abort("a worker did not begin" if end.said else _SILENT_END)
            else:
                shard.lose()
                if not shard.is_over:
                    return True
                why = _last_words(end)
                self.undone[number] = f"{MOST_LOST} workers were lost with it, the last one: {why}"
            shard.end()
            return False


def _last_words(end: ShardEnd) -> str:
    """Return the last error that a worker showed; else how its process ended, and what it said."""
    errors = [line for line in end.said.splitlines() if line.startswith(_ERROR)]
    if errors:
        return errors[-1].removeprefix(_ERROR).rstrip(".")
    how = "" if end.code is None else f"exit code {end.code}"
    if end.code is not None and not 0 <= end.code < _BY_SIGNAL:
        how = f"signal {abs(end.code) % _BY_SIGNAL}"
    said = " ".join(end.said.splitlines()[-_SAID_LINES:])
    return ": ".join(part for part in (how, said) if part)
