"""The workers of a fleet: their jobs, how a job ends, and workers on this machine.

A worker claims its shard when it begins, pulls the run to continue if there is one, and starts
`kindlm test`. If two workers have the same shard, only the later one has a valid lease.

The history of a worker is in a temporary folder. If the coordinator is killed, the folder stays
until the group is resumed on the same machine, or until the system empties its temporary folder.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile, gettempdir
from typing import Any, Protocol

from kindlm.dataclass import dataclass
from kindlm.errors import Err, Ok, Result
from kindlm.events import merge_of
from kindlm.keeper import KINDLM, PARENT
from kindlm.team.client import HistoryClient
from kindlm.team.pulling import pull_run
from kindlm_store import EventLog, OpenError, open_reader

_DATABASE = "kindlm.db"

_OUTPUT_BYTES = 4_000

_PREFIX = "kindlm-shard-"
_WARNING = re.compile(r"^! (.*)((?:\n  .*)*)", re.MULTILINE)
"""A warning in a worker's output, with the indented lines of its hint."""

_NOT_FOR_WORKERS = ("KINDLM_DB", "GITHUB_STEP_SUMMARY", "FORCE_COLOR")
"""Variables of the coordinator alone: its history, its summary, and its colours: errors and
warnings are found in a worker's output by their first characters."""


@dataclass(frozen=True, slots=True)
class ShardJob:
    """One shard of a run, for a worker.

    Attributes:
        url: Address of the coordinator's history; `token` is valid for it in this run.
        shard: Number of the shard, from 1.
        arguments: Arguments of `kindlm test` for a new shard.
        resume_arguments: Arguments, besides `--resume`, to continue a run of the shard.
        folder: The working directory.
        environ: Variables in addition to the worker's own.
        prefix: The beginning of the name of the temporary folder.
    """

    url: str
    token: str
    shard: int
    arguments: Sequence[str]
    resume_arguments: Sequence[str]
    folder: str
    environ: Mapping[str, str] = field(default_factory=dict)
    prefix: str = _PREFIX


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """How the process of a shard ended; its results are in the coordinator's history.

    `code` is its exit code, negative for a signal, None if no process started. `output` is the end
    of its standard error, or why no process started.
    """

    code: int | None
    output: str = ""

    @property
    def warnings(self) -> Sequence[tuple[str, str | None]]:
        """The warnings in `output`, each with its hint."""
        found = _WARNING.findall(self.output)
        return [(text, re.sub(r"\n +", "\n", hint).strip() or None) for text, hint in found]


class Pending(Protocol):
    """A submitted job; futures of Python have these methods."""

    def done(self) -> bool:
        """Return whether the job has ended in any way."""

    def result(self) -> ShardEnd:
        """Return how the shard ended, or raise the error that prevented the job."""

    def cancel(self) -> object:
        """Prevent the job from starting, or end it."""


class Fleet(Protocol):
    """Workers, each of which runs one job at a time with `run_shard`.

    The history is served to them at `listen`: a host of this machine, and a port or 0. `capacity`
    is how many jobs can run at once now.
    """

    listen: tuple[str, int] = "127.0.0.1", 0
    capacity: int

    def check(self, _url: str) -> Result[None]:
        """Return an error if a worker cannot reach the history; no worker gets a job then."""
        return Ok(None)

    def submit(self, job: ShardJob) -> Pending:
        """Let a worker run a job, after the jobs submitted before."""

    def interrupt(self) -> None:
        """Send Ctrl-C to running jobs, where possible, so that a stopping run ends at once."""

    def close(self) -> None:
        """End all jobs."""


class _Job:
    def __init__(self, job: ShardJob, threads: ThreadPoolExecutor) -> None:
        self.id = new_job_id()
        self._future = threads.submit(run_shard, job, self.id)
        self.done, self.result = self._future.done, self._future.result

    def cancel(self) -> None:
        if not self._future.cancel():
            end_jobs([self.id])


class LocalFleet(Fleet):
    """Workers on this machine: a number of processes at once, in the project's own folder."""

    def __init__(self, workers: int) -> None:
        self.capacity = workers
        self._threads = ThreadPoolExecutor(workers, "kindlm-worker")
        self._jobs: list[_Job] = []

    def submit(self, job: ShardJob) -> Pending:
        """Let the next free thread run a shard."""
        self._jobs.append(_Job(job, self._threads))
        return self._jobs[-1]

    def interrupt(self) -> None:
        """Send Ctrl-C to all processes."""
        for job in self._jobs:
            if (process := _processes.get(job.id)) is not None:
                process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Kill all processes, and wait for their ends."""
        for job in self._jobs:
            job.cancel()
        self._threads.shutdown(cancel_futures=True)


_processes: dict[str, subprocess.Popen[bytes]] = {}
"""The processes that run in this one now, by the id of their job."""

_ended: set[str] = set()


def new_job_id() -> str:
    """Return an id by which a job can be ended."""
    return uuid.uuid4().hex


def end_jobs(jobs: Sequence[str]) -> None:
    """Kill those processes of jobs that this process runs, or will run."""
    _ended.update(jobs)
    for job in jobs:
        if (process := _processes.get(job)) is not None:
            process.kill()


def run_shard(shard: ShardJob, job: str) -> ShardEnd:
    """Run a shard to its end, as the job with an id."""
    with TemporaryDirectory(prefix=shard.prefix) as folder:
        database = Path(folder) / _DATABASE
        with closing(HistoryClient(shard.url, shard.token)) as client:
            claimed = client.claim(shard.shard)
            if isinstance(claimed, Err):
                return ShardEnd(None, claimed.error.message)
            if claimed.value["lease"] is None:
                return ShardEnd(None, "the shard must not run any more")
            for run in claimed.value["bring"]:
                if isinstance(pulled := pull_run(client, database, run, trusted=True), Err):
                    return ShardEnd(None, pulled.error.message)
        own = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_WORKERS}
        environ = {
            **own,
            **shard.environ,
            "KINDLM_URL": shard.url,
            "KINDLM_TOKEN": shard.token,
            "KINDLM_LEASE": claimed.value["lease"],
            PARENT: str(os.getpid()),
        }
        if (share := claimed.value["max_rpm"]) is not None:
            environ["KINDLM_MAX_RPM"] = str(share)
        arguments = _arguments(shard, claimed.value, database)
        return _test(job, arguments, environ, shard.folder)


def _arguments(shard: ShardJob, claimed: dict[str, Any], database: Path) -> list[str]:
    run, rest_s = claimed["run"], claimed["max_time_s"]
    return [
        "--push",
        "--die-with-parent",
        # The coordinator loaded the same files, and has shown their warnings.
        "--quiet",
        *(() if rest_s is None else (f"--max-time={rest_s}",)),
        f"--db={database}",
        *(shard.arguments if run is None else (f"--resume={run}", *shard.resume_arguments)),
    ]


def _test(job: str, arguments: Sequence[str], environ: dict[str, str], folder: str) -> ShardEnd:
    """Run `kindlm test` in a process of its own, which `end_jobs` can kill."""
    with TemporaryFile() as output:
        process = subprocess.Popen(
            [*KINDLM, "test", *arguments],
            cwd=folder,
            env=environ,
            # Never written to: it closes when this process ends.
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=output,
            # Ctrl-C reaches the coordinator, which tells its workers.
            start_new_session=True,
        )
        _processes[job] = process
        try:
            if job in _ended:
                process.kill()
            code = process.wait()
        finally:
            del _processes[job]
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        end = output.seek(0, os.SEEK_END)
        output.seek(max(0, end - _OUTPUT_BYTES))
        return ShardEnd(code, output.read().decode("utf-8", "replace").strip())


def folder_prefix(database: Path, group: str) -> str:
    """Return the beginning of the names of all temporary folders of a group."""
    key = sha256(f"{database.resolve()} {group}".encode()).hexdigest()
    return f"{_PREFIX}{key[:16]}-"


def merge_leftovers(log: EventLog, prefix: str) -> None:
    """Merge the histories that workers of a killed coordinator left behind, and remove them.

    A history that cannot be read or merged stays.
    """
    for folder in _folders(prefix):
        database = folder / _DATABASE
        with suppress(OpenError):
            if database.exists():
                with closing(open_reader(database)) as left:
                    taken = merge_of(log, left, database).take()
                if taken.refused:
                    continue
            shutil.rmtree(folder, ignore_errors=True)


def _folders(prefix: str) -> Iterator[Path]:
    """Yield this user's temporary folders whose names begin with a prefix."""
    for folder in Path(gettempdir()).glob(f"{prefix}*"):
        with suppress(FileNotFoundError):
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                yield folder
