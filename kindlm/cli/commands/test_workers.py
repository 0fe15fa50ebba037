"""`kindlm test --workers`: one run on several processes, watched and reported as one."""

from __future__ import annotations

import asyncio
import re
import shlex
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, redirect_stdout

from kindlm.bounds import SCHEDULERS
from kindlm.cli.console import make_console, note, or_fail, refuse, show, warn
from kindlm.cli.history import open_tables
from kindlm.cli.history_errors import disk_full
from kindlm.cli.options import TestOptions, given_again
from kindlm.cli.progress import kind_of_progress
from kindlm.cli.run_options import wants_push
from kindlm.cli.run_recording import HeldSignals, Requested, held_signals
from kindlm.cli.server_environ import SUITES, suites_hash
from kindlm.dataclass import dataclass, replace
from kindlm.engine.attempt import Finished
from kindlm.engine.stop import Stop
from kindlm.errors import SourceLocation, broken
from kindlm.fleet.coordinator import (
    Coordinator,
    longest_first,
    read_durations,
    runs_needed,
    shard_count,
)
from kindlm.fleet.workers import Fleet, LocalFleet, ShardJob, folder_prefix, merge_leftovers
from kindlm.guard import guard
from kindlm.history.groups import Group, find_group, shards_of, whole_of
from kindlm.history.run_view import RunView
from kindlm.history.runs import Run
from kindlm.outcome import Status
from kindlm.plan import Execution, Plan, make_plan
from kindlm.recording.history_file import new_run_id, open_log
from kindlm.recording.loading import Loaded
from kindlm.recording.project import paths_from
from kindlm.recording.request import RunRequest, Watcher
from kindlm.recording.resumption import read_unfinished, resumed
from kindlm.recording.secrets import remember_secrets
from kindlm.recording.suite_secrets import suite_secrets
from kindlm.reports.terminal.execution_text import why_not_passed
from kindlm.team.history_api import HistoryApi
from kindlm.team.team_server import RunningServer
from kindlm.team.token_store import TokenStore
from kindlm.wording import count
from kindlm_store import LockHeldError, Redactor, holder, is_held, stream_lock

_FIXED_PORT = re.compile(r"https?://(localhost|127\.[0-9.]+|0\.0\.0\.0|\[::1?\]):\d", re.IGNORECASE)


_ENDED = """
SELECT l.version, l.data ->> '$.status' AS status, e.id, e.test, e.target, e.repeat, s.path,
       (SELECT total(c.cost_usd) FROM counted_calls c WHERE c.execution = e.id) AS cost_usd
  FROM event_log l
  JOIN executions e ON e.id = :run || '-' || CAST(l.subject AS INTEGER)
  JOIN suites s ON s.id = e.suite
 WHERE l.stream = 'run/' || :run AND l.version > :version AND l.type = 'execution.finished'
   AND NOT coalesce(l.data ->> '$.retried', 0)
 ORDER BY l.version
"""


@dataclass(frozen=True, slots=True)
class _Shards:
    """The shards of a run: `left` to run, in order, each with the run to resume, or None.

    `earlier` are the runs that the group has already, and `needed` those that workers need, such as
    baselines.
    """

    group: str
    count: int
    left: Mapping[int, str | None]
    earlier: Sequence[str]
    needed: Sequence[str]


def test_on_workers(requested: Requested, loaded: Loaded, group: Group | None) -> int:
    """Run the request, or the rest of a group, on workers; return the exit code."""
    request, options = requested.request, requested.options
    plan = make_plan(request.suites, request.selection)
    name = (options.run_group or new_run_id()) if group is None else group.name
    stop = Stop()
    with held_signals() as held:
        with closing(_fleet(request, loaded, options)) as fleet:
            open_log(request.database).close()  # created, or the command ends
            try:
                # Other processes see that the group is running, and cannot resume it.
                with stream_lock(request.database, f"group/{name}"):
                    # Also for a new run: a group of its name may have been killed before its
                    # first push.
                    with open_log(request.database) as log:
                        merge_leftovers(log, folder_prefix(request.database, name))
                    resumes = group is not None
                    shards = _divide(requested, plan, fleet.capacity, name, resumes=resumes)
                    _carry_out(requested, plan, shards, fleet, stop, held)
            except LockHeldError as error:
                what = f"Group {name} is running already, in {error.by}."
                refuse(what, "Wait until it has ended, or end it.")
        if wants_push(request, options):
            from kindlm.cli.history_server import push_group

            push_group(request, name, options)
        return requested.report_group(name, stop.reason)


def _fleet(request: RunRequest, loaded: Loaded, options: TestOptions) -> Fleet:
    """Return the workers of the run; end the command if one is unusable."""
    workers = options.workers or "1"
    if not workers.startswith(SCHEDULERS):
        services = (
            (suite, service)
            for suite in request.suites
            for service in suite.services
            if workers != "1" and _FIXED_PORT.match(service.ready_url or "")
        )
        for suite, service in services:
            refuse(
                f"Service {service.name!r} of suite {suite.name!r} answers at a fixed port,"
                f" {service.ready_url}: only one worker could start it.",
                "Let it listen on the port in PORT, and write"
                f" {{{{serve.{service.name}.port}}}} into its URLs. Or start it yourself, and"
                " leave it out of serve.",
            )
        return LocalFleet(int(workers))
    from kindlm.fleet.dask_fleet import connect

    return or_fail(
        connect(
            workers,
            loaded,
            request.root,
            environ=request.environ,
            listen=options.listen,
            insecure=options.insecure,
        )
    )


def _divide(requested: Requested, plan: Plan, workers: int, name: str, *, resumes: bool) -> _Shards:
    """Divide a run into shards, or find the shards that are left of a resumed group.

    The caller holds the lock of the group, so that no other process changes it meanwhile.
    """
    request = requested.request
    number = shard_count(plan, workers)
    started: dict[int, Run] = {}
    earlier: tuple[str, ...] = ()
    with closing(open_tables(request.database)) as db:
        durations, needed = read_durations(db, request.suites), runs_needed(db, plan, name)
        known = shards_of(db, name)
        if known and not resumes:
            # A finished shard of that group would count as one of this run.
            refuse(
                f"There is a group {name} already.",
                f"Finish it with --resume {name}, or choose another --run-group.",
            )
        if resumes:
            group = or_fail(find_group(db, name, known))
            number, earlier = group.count, group.runs
            started = {shard.index: shard for shard in group.shards}
            for shard in group.shards:
                before = read_unfinished(db, shard.id)
                part = replace(request.selection, shard=(shard.index, group.count))
                same = replace(request, selection=part)
                or_fail(resumed(same, before, force=requested.options.force_resume))
                lock = f"run/{shard.id}"  # of a process that runs this shard alone
                if shard.state != "finished" and is_held(request.database, lock):
                    raise LockHeldError(lock, holder(request.database, lock))
                needed += [run for run in before.baselines.values() if run is not None]
                taped = (run for named in before.cassettes.values() for run in named.values())
                needed += [each for run in taped for each in whole_of(db, run)]
    left = {
        index: started[index].id if index in started else None
        for index in longest_first(plan, number, durations)
        if index not in started or started[index].state != "finished"
    }
    return _Shards(name, number, left, earlier, list(dict.fromkeys(needed)))


def _carry_out(
    requested: Requested, plan: Plan, shards: _Shards, fleet: Fleet, stop: Stop, held: HeldSignals
) -> None:
    """Run the shards that are left, and show why a shard did not finish."""
    request, options = requested.request, requested.options
    if options.warnings:
        left = f"{len(shards.left):,} of {count(shards.count, 'shard')} left"
        if shards.left:
            left += f", on {count(min(fleet.capacity, len(shards.left)), 'worker')}"
        note(f"Group {shards.group}: {left}.")
    if not shards.left:
        return
    secret = suite_secrets(request.environ, request.suites)
    remember_secrets(secret)
    console = make_console()
    kind = kind_of_progress(console, shown=options.progress)
    progress = kind(console, Redactor(secret), stop, options.fail_fast)
    with ExitStack() as stack:
        log = stack.enter_context(open_log(request.database, secret))
        reader = stack.enter_context(closing(log.reader()))
        news = WorkerNews(reader, plan, shards.earlier, progress)
        coordinator = Coordinator(
            log, shards.left, shards.needed, request.limits, stop, news.tell, shards.earlier, warn
        )
        tokens = stack.enter_context(closing(TokenStore(None)))
        token = or_fail(tokens.create("worker", ["push", "pull"]))
        api = stack.enter_context(closing(HistoryApi(log, tokens, fleet=coordinator)))
        try:
            server = stack.enter_context(RunningServer(api, *fleet.listen))
        except OSError as error:
            place = ":".join(map(str, fleet.listen))
            refuse(
                f"The workers cannot push to {place}: {error}", "Name another: --listen HOST:PORT"
            )
        or_fail(fleet.check(server.url))
        always = (*given_again(options, _OF_EACH_SESSION), "--no-progress")
        anew = (*always, *given_again(options, _OF_A_NEW_RUN), f"--run-group={shards.group}")
        paths = ("--", *paths_from(request.root, options.paths))
        jobs = {
            shard: ShardJob(
                server.url,
                token,
                shard,
                (*anew, f"--shard={shard}/{shards.count}", *paths),
                always,
                str(request.root),
                {SUITES: suites_hash(request.suites)},
                folder_prefix(request.database, shards.group),
            )
            for shard in shards.left
        }
        progress.shared(lambda: coordinator.workers)

        async def work() -> None:
            with held.stopping(stop):
                await coordinator.carry_out(fleet, jobs)

        with progress, redirect_stdout(sys.stderr):
            asyncio.run(work())
        guard.return_to_folder()
    if coordinator.failure is not None:
        cause = coordinator.failure.__cause__ or coordinator.failure
        lost = broken(
            f"What the workers pushed could not be recorded: {coordinator.failure}.",
            "Check the disks of the history and of temporary files, then: kindlm history verify",
            where=SourceLocation(str(request.database)),
        )
        is_sqlite = isinstance(cause, sqlite3.Error)
        show([(disk_full(request.database, cause) if is_sqlite else None) or lost])
    elif coordinator.refusal is not None:
        # The worker has formatted it as an error.
        sys.stderr.write(f"{coordinator.refusal}\n")
    elif stop.aborted:
        note(f"Stopped: {stop.reason}.")
    elif stop.reason is None:
        workers = f" --workers {options.workers}" if options.workers else ""
        once_corrected = (
            "Finished executions are kept. Correct that code, then: "
            f"kindlm test --resume {shlex.quote(shards.group)} --force-resume{workers}"
        )
        show(
            broken(
                f"Shard {shard} did not finish: {why}",
                once_corrected if shard in coordinator.ended else None,
            )
            for shard, why in sorted(coordinator.undone.items())
        )


_OF_EACH_SESSION = (
    "concurrency", "timeout_ms", "max_cost_usd", "max_rpm", "strict", "fail_fast", "force_resume",
)  # fmt: skip
_OF_A_NEW_RUN = (
    "suite", "repeat", "gate", "label", "tags", "keywords", "tests", "models", "compat",
)  # fmt: skip


class WorkerNews:
    """Shows executions that workers push like local progress.

    `earlier` are runs that the group had before.
    """

    def __init__(
        self, db: sqlite3.Connection, plan: Plan, earlier: Iterable[str], watcher: Watcher
    ) -> None:
        self._db = db
        self._watcher = watcher
        self._versions: dict[str, int] = {}
        self._planned = {
            (each.suite.suite.path, each.case.name, each.target, each.repeat): each for each in plan
        }
        watcher.planned(plan, {done.id for run in earlier for done, _ in self._ended(run)})

    def tell(self, runs: Iterable[str]) -> None:
        """Show the executions of some runs that have ended since the last call."""
        for run in runs:
            for execution, row in self._ended(run):
                status, error = Status(row["status"]), None
                if status in (Status.FAILED, Status.ERRORED):
                    view = RunView(self._db, run)
                    found = view.execution(row["id"])
                    error = broken("" if found is None else why_not_passed(view, found))
                self._watcher.finished(Finished(execution, status, error, cost_usd=row["cost_usd"]))

    def _ended(self, run: str) -> Iterator[tuple[Execution, sqlite3.Row]]:
        known = {"run": run, "version": self._versions.get(run, 0)}
        for row in self._db.execute(_ENDED, known).fetchall():
            self._versions[run] = row["version"]
            key = row["path"], row["test"], row["target"], row["repeat"]
            if (execution := self._planned.get(key)) is not None:
                yield execution, row
