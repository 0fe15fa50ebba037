"""Divides a run into shards, runs them on a fleet, and watches over them.

Workers push their events into the coordinator's history, its only source of information. If a
worker ends or falls silent before its shard is done, the next worker pulls that run and continues.

Each claim of a shard gives a lease with the next number, and only the newest lease is valid. The
coordinator refuses later pushes of a worker that lost its shard, so two workers never record the
same run.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field
from typing import Any, TypeAlias

from kindlm.dataclass import dataclass, replace
from kindlm.engine.resources import Limits
from kindlm.engine.stop import SIGNAL_NAMES, Stop
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
"""Shards for each worker: with small shards, no worker is busy alone for long at the end."""

Durations: TypeAlias = Mapping[tuple[str, str, str], float]
"""The mean duration of a repeat in milliseconds, by path of the suite, test and target."""

# In a run on workers, each shard has its own row in `suites`.
_DURATIONS = """
SELECT e.test, e.target, avg(e.latency_ms)
  FROM executions e
 WHERE e.latency_ms > 0
   AND e.suite IN (SELECT s.id FROM suites s JOIN runs r ON r.id = s.run
                    WHERE s.project = ? AND s.name = ? AND r.mode = 'live'
                    ORDER BY s.started_at DESC LIMIT 64)
 GROUP BY e.test, e.target
"""

SILENT_S = 60.0
"""A worker that has been silent for so long counts as lost."""

LOADING_S = 600.0
"""A worker may be silent for so long before it begins, since it imports the user's modules."""

MOST_LOST = 3
"""The coordinator gives up a shard after it lost so many workers: the shard may be the cause."""

_TICK_S = 0.25

_AT_ONCE_S = 10.0
"""How long the coordinator waits for workers after the order to end at once."""

_NOT_KEPT = "the history cannot store what workers push"

_SILENT_END = "a worker ended before it began, without output: is there room for temporary files?"

_OUTPUT_LINES = 5

_ERROR = "✗ "
"""The beginning of an error in a worker's output."""

_BY_SIGNAL = 128
"""Exit codes from here on mean that a signal ended the process, as in a shell."""

LEAST_RPM = 0.1
"""The least value of `--max-rpm`."""

_RUN = f"SELECT ended, {REASON} FROM runs r WHERE id = ?"  # noqa: S608

_SPENT = """
SELECT total(c.cost_usd), total(c.is_unknown)
  FROM executions e
  JOIN counted_calls c ON c.execution = e.id
 WHERE e.run IN $ids
"""


def shard_count(plan: Plan, workers: int) -> int:
    """Return the number of shards of a plan: at most one for each test, and at least one."""
    return max(1, min(_PER_WORKER * workers, sum(1 for _ in _tests(plan))))


def longest_first(plan: Plan, count: int, durations: Durations) -> list[int]:
    """Return the numbers of the shards, from 1, in order of their expected duration.

    A test without a recorded duration counts with the mean of the others.
    """
    usual = sum(durations.values()) / len(durations) if durations else 1.0
    sums = [0.0] * count
    for position, (key, repeats) in enumerate(_tests(plan)):
        sums[position % count] += durations.get(key, usual) * repeats
    return sorted(range(1, count + 1), key=lambda shard: -sums[shard - 1])


def _tests(plan: Plan) -> Iterator[tuple[tuple[str, str, str], int]]:
    """Yield the tests in the order in which shards get them, each with its number of repeats."""
    for planned in plan.suites:
        for entry in planned.cases:
            for target in entry.targets:
                yield (planned.suite.path, entry.case.name, target), entry.repeat


def read_durations(db: sqlite3.Connection, suites: Sequence[Suite]) -> Durations:
    """Return the durations of the tests of suites in recent runs."""
    return {
        (suite.path, test, target): duration_ms
        for suite in suites
        for test, target, duration_ms in db.execute(_DURATIONS, (suite.project, suite.name))
    }


def runs_needed(db: sqlite3.Connection, plan: Plan, group: str) -> list[str]:
    """Return the recorded runs that a group needs: baselines, and the runs of cassettes."""
    needed: dict[str, None] = {}
    for planned in plan.suites:
        baseline = find_baseline(db, planned.suite.project, planned.suite.name)
        if baseline is not None and baseline.missing is None:
            needed |= dict.fromkeys(baseline.runs)
        needed |= dict.fromkeys(cassette_runs(planned, db, group))
    return list(needed)


@dataclass(slots=True)
class _Shard:
    """A shard and the state of its worker.

    Attributes:
        run: The recorded run of the shard, None before the first push.
        number: The number of its newest lease.
        heard: When its worker last made a request, None while no worker has the shard.
        has_begun: Whether that worker has pushed anything, even an empty body.
        has_pushed: Whether that worker has pushed events.
        lost: How many workers were lost with this shard.
        is_over: Whether the shard is done or given up. No worker can claim it then.
    """

    run: str | None
    number: int = 0
    heard: float | None = None
    has_begun: bool = False
    has_pushed: bool = False
    lost: int = 0
    is_over: bool = False

    def lose(self) -> None:
        """Take the shard from its worker; the next worker that claims it continues its run."""
        self.heard = None
        self.lost += 1
        self.is_over = self.is_over or self.lost >= MOST_LOST

    def end(self) -> None:
        """Let no worker claim the shard again, whether it is done or stays unfinished."""
        self.heard, self.is_over = None, True


@dataclasses.dataclass(eq=False)
class Coordinator:
    """Gives the shards of a run to workers; implements `FleetHooks` for their pushes.

    Attributes:
        runs: The run to continue, or None, by the number of each unfinished shard.
        bring: Runs of the history that workers need, such as baselines.
        limits: The limits for all workers together.
        news: Called in the event loop with the runs that received events.
        earlier: Recorded runs of the same group, whose costs count.
        warn: Called once for each different warning of the workers, with its hint.
        undone: The reason for each shard that did not finish.
        ended: Those of them that user code ended; it would end any other worker as well.
        refusal: The output of a worker whose command did not begin, such as a usage error.
        failure: The error because of which the history can keep no pushes, None without one.
    """

    log: EventLog
    runs: Mapping[int, str | None]
    bring: Sequence[str]
    limits: Limits
    stop: Stop
    news: Callable[[set[str]], None]
    earlier: Sequence[str] = ()
    warn: Callable[[str, str | None], None] = lambda _message, _hint: None
    clock: Callable[[], float] = time.monotonic
    undone: dict[int, str] = field(default_factory=dict, init=False)
    ended: set[int] = field(default_factory=set, init=False)
    refusal: str | None = field(default=None, init=False)
    failure: Exception | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()
        # The threads of the server use the state below, too.
        self._lock = threading.Lock()
        self._shards = {shard: _Shard(run) for shard, run in self.runs.items()}
        self._new: set[str] = set()
        self._control = Control()
        self._capacity = 1
        # Calls of unknown cost before this run began, which no limit can include.
        self._unknown: float | None = None

    # Called by the threads of the server.

    def hear(self, lease: str) -> bool:
        """Return whether a lease is the newest of its shard; note that its worker is alive."""
        with self._lock:
            shard = next((s for n, s in self._shards.items() if lease == f"{n}.{s.number}"), None)
            if shard is None or shard.heard is None:
                return False
            shard.heard = self.clock()
            return self.failure is None

    def failed(self, error: Exception) -> None:
        """Note that the server failed. All leases become invalid, so that all workers end."""
        with self._lock:
            self.failure = self.failure or error

    def pushed(self, lease: str, runs: Sequence[str]) -> Control:
        """Note a push of the worker of a lease, with its runs; return what the worker must do."""
        with self._lock:
            shard = self._shards[int(lease.partition(".")[0])]
            shard.has_begun = True
            for run in runs:
                shard.run, shard.has_pushed = shard.run or run, True
            self._new.update(runs)
            return replace(self._control, max_rpm=self._rpm())

    def claim(self, number: int) -> dict[str, Any]:
        """Give a shard to a worker, with the run to continue; `lease` is None if it is over."""
        with self._lock:
            shard = self._shards.get(number)
            if shard is None or self._control.stop is not None or self.failure is not None:
                return {"lease": None}
            if shard.heard is not None:
                shard.lose()
            if shard.is_over:
                return {"lease": None}
            shard.number += 1
            shard.heard = now = self.clock()
            shard.has_begun = shard.has_pushed = False
            rest = self.limits.max_time_s
            return {
                "lease": f"{number}.{shard.number}",
                "run": shard.run,
                "bring": [*self.bring, *([] if shard.run is None else [shard.run])],
                "max_rpm": self._rpm(),
                "max_time_s": rest and max(0.1, rest - (now - self._began)),
            }

    def _rpm(self) -> float | None:
        """Return the share of each worker in `--max-rpm`.

        Shares grow as shards end. Their sum stays within the limit unless workers are added.
        """
        if self.limits.max_rpm is None:
            return None
        left = sum(not shard.is_over for shard in self._shards.values())
        workers = max(1, min(self._capacity, left))
        return max(LEAST_RPM, self.limits.max_rpm / workers)

    @property
    def workers(self) -> int:
        """The number of workers that have a shard now."""
        with self._lock:
            # A finished shard counts until `carry_out` has seen its end.
            live = sum(shard.heard is not None for shard in self._shards.values())
            return min(live, self._capacity)

    # Called in the event loop of the run.

    async def carry_out(self, fleet: Fleet, jobs: Mapping[int, ShardJob]) -> None:
        """Run shards, in the order of their jobs, until each is done or given up."""
        left_to_end_s, warned = _AT_ONCE_S, set[tuple[str, str | None]]()
        self._capacity = fleet.capacity
        with closing(self.log.reader()) as db:
            self._look_at_costs(db)
            if self.stop.aborted:
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
                    self.stop.abort(_NOT_KEPT, cut_off=True)
                most = self.limits.max_time_s
                if most is not None and self.clock() - self._began > most:
                    reason = f"the run took longer than {most:g} s (--max-time)"
                    self.stop.abort(reason, cut_off=True)
                if self.stop.winding_down.is_set():
                    at_once = self.stop.requested.is_set()
                    with self._lock:
                        self._control = Control(self.stop.reason, at_once=at_once)
                if self.stop.at_once.is_set():
                    if left_to_end_s == _AT_ONCE_S:  # the first time
                        fleet.interrupt()
                    left_to_end_s -= _TICK_S
                for shard, pending in list(submitted.items()):
                    if (end := self._end_of(shard, pending)) is None:
                        continue
                    del submitted[shard]
                    pending.cancel()
                    for warning in end.warnings:
                        if warning not in warned:
                            warned.add(warning)
                            self.warn(*warning)
                    if self._must_run_again(shard, end, db):
                        submitted[shard] = fleet.submit(jobs[shard])
        self._tell_news()

    def _tell_news(self) -> bool:
        with self._lock:
            new, self._new = self._new, set()
        if new:
            self.news(new)
        return bool(new)

    def _look_at_costs(self, db: sqlite3.Connection) -> None:
        most = self.limits.max_cost_usd
        if most is None:
            return
        runs = {*self.earlier, *(shard.run for shard in self._shards.values() if shard.run)}
        spent, unknown = db.execute(*among(_SPENT, list(runs))).fetchone()
        if exceeds(spent, most):
            self.stop.abort(f"${spent:.4f} spent, more than --max-cost {most:g} allows")
        elif self._unknown is None:
            self._unknown = unknown
        elif unknown > self._unknown:
            self.stop.abort(f"a call of unknown cost was made: --max-cost {most:g} cannot be kept")

    def _end_of(self, shard: int, pending: Pending) -> ShardEnd | None:
        """Return how a job ended, None while it runs."""
        if pending.done():
            try:
                return pending.result()
            except Exception as error:  # noqa: BLE001 - another worker can do any job again
                return ShardEnd(None, f"{type(error).__name__}: {error}")
        now = self._shards[shard]
        most_s = SILENT_S if now.has_begun else LOADING_S
        if now.heard is not None and self.clock() - now.heard > most_s:
            return ShardEnd(None, f"its worker was silent for {most_s:.0f} s")
        return None

    def _must_run_again(self, number: int, end: ShardEnd, db: sqlite3.Connection) -> bool:
        """Return whether a shard whose job ended must go to another worker."""
        with self._lock:
            shard = self._shards[number]
            how, reason = db.execute(_RUN, (shard.run,)).fetchone() or (None, None)
            if how == "finished":
                pass
            elif shard.has_pushed and how is not None and reason not in SIGNAL_NAMES:
                self.undone[number] = reason or how
            elif self._control.stop is not None or self.failure is not None:
                self.undone[number] = self._control.stop or _NOT_KEPT
            elif end.code in (ENDED_BY_USER_CODE, NOT_TAKEN):
                if end.code == ENDED_BY_USER_CODE:
                    self.ended.add(number)
                self.undone[number] = _last_words(end)
            elif not shard.has_begun and end.code is not None and 0 <= end.code < _BY_SIGNAL:
                self.undone[number] = "its worker did not begin"
                self.refusal = self.refusal or end.output or None
                self.stop.abort("a worker did not begin" if end.output else _SILENT_END)
            else:
                shard.lose()
                if not shard.is_over:
                    return True
                why = _last_words(end)
                self.undone[number] = f"{MOST_LOST} workers were lost with it, the last one: {why}"
            shard.end()
            return False


def _last_words(end: ShardEnd) -> str:
    """Return the last error in a worker's output, else its exit code and the last lines."""
    errors = [line for line in end.output.splitlines() if line.startswith(_ERROR)]
    if errors:
        return errors[-1].removeprefix(_ERROR).rstrip(".")
    how = "" if end.code is None else f"exit code {end.code}"
    if end.code is not None and not 0 <= end.code < _BY_SIGNAL:
        how = f"signal {abs(end.code) % _BY_SIGNAL}"
    output = " ".join(end.output.splitlines()[-_OUTPUT_LINES:])
    return ": ".join(part for part in (how, output) if part)
