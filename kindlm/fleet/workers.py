"""The workers of a fleet: their job, how they end, and those on this machine.

A worker claims its shard, pulls a run that it has to continue, and starts `kindlm test`. It claims
the shard when it begins, not when the job is submitted: of two workers with the same shard, the
later one has the lease, and pushes of the other are refused.

The history of a worker is in a temporary folder. If the coordinator is killed, the folder stays
until the group is resumed on the same machine, or until a shard begins there a month later.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile, gettempdir
from typing import Any, Protocol, Self

from kindlm.dataclass import dataclass
from kindlm.errors import Err, Ok, Result
from kindlm.events import merge_of
from kindlm.keeper import KINDLM, PARENT
from kindlm.team.client import HistoryClient
from kindlm.team.pulling import pull_run
from kindlm_store import EventLog, OpenError, open_reader

_DATABASE = "kindlm.db"

_SAID_BYTES = 4_000

_PREFIX = "kindlm-shard-"
_KEPT_S = 30 * 24 * 3600
"""How long what a killed group left behind can be resumed."""

_WARNING, _INDENT = "! ", "  "
"""What a warning begins with that a worker shows, and the lines that belong to it."""

_NOT_FOR_WORKERS = ("KINDLM_DB", "GITHUB_STEP_SUMMARY")
"""The history and the summary are the coordinator's."""


@dataclass(frozen=True, slots=True)
class ShardJob:
    """One shard of a run, to be carried out somewhere.

    Attributes:
        url: Address of the coordinator's history.
        token: What opens it, for this run alone.
        shard: Number of the shard, from 1.
        arguments: What `kindlm test` is given if the shard starts anew.
        again: What it is given, besides the run, if an unfinished run of the shard goes on.
        folder: Where `kindlm test` is started; paths among the arguments are relative to it.
        environ: What its environment has besides that of the worker.
        prefix: How the name of its temporary folder begins.
    """

    url: str
    token: str
    shard: int
    arguments: tuple[str, ...]
    again: tuple[str, ...]
    folder: str
    environ: Mapping[str, str] = field(default_factory=dict)
    prefix: str = _PREFIX

    def dump(self) -> str:
        """Return the job as a text."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Self:
        """Return the job that a text holds."""
        job = json.loads(text)
        return cls(**job | {name: tuple(job[name]) for name in ("arguments", "again")})


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """How the process of a shard ended. What it did is in the history of the coordinator.

    `code` is its exit code, negative for a signal; None if none was started. `said` is what it
    wrote last to standard error, or why none was started.
    """

    code: int | None
    said: str = ""

    def dump(self) -> str:
        """Return the end as a text."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Self:
        """Return the end that a text holds."""
        return cls(**json.loads(text))

    @property
    def warnings(self) -> Sequence[tuple[str, str | None]]:
        """The warnings among what it wrote last, each with its hint."""
        found: list[list[str]] = []
        is_warning = False
        for line in self.said.splitlines():
            if line.startswith(_WARNING):
                is_warning = True
                found.append([line.removeprefix(_WARNING)])
            elif is_warning and line.startswith(_INDENT):
                found[-1].append(line.strip())
            else:
                is_warning = False
        return [(message, "\n".join(rest) or None) for message, *rest in found]


class Pending(Protocol):
    """A job that was submitted; futures of Python have these methods."""

    def done(self) -> bool:
        """Return whether the job has ended, however it did."""
        ...

    def result(self) -> ShardEnd:
        """Return how the shard ended; raise what kept the job from being carried out."""
        ...

    def cancel(self) -> object:
        """Let the job not start any more."""
        ...


class Fleet(Protocol):
    """Workers that carry out jobs, each one at a time, by `run_shard` in a thread of its own."""

    @property
    def listen(self) -> tuple[str, int]:
        """Where the history is served to them: a host of this machine, and a port or 0."""
        ...

    @property
    def capacity(self) -> int:
        """How many jobs can go on at once now."""
        ...

    def check(self, url: str, /) -> Result[None]:
        """Return an error if a worker does not reach the history: then none gets a job."""
        ...

    def submit(self, job: ShardJob) -> Pending:
        """Let some worker carry out a job, after those that were submitted before."""
        ...

    def interrupt(self) -> None:
        """Send Ctrl-C to what goes on, where that is possible: it stops already, and has to end."""
        ...

    def close(self) -> None:
        """End everything that was started."""
        ...


class _Job:
    """A submitted job, and its process once it has one."""

    def __init__(self) -> None:
        self.future: Future[ShardEnd] = Future()
        self.process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False
        self._lock = threading.Lock()

    def started(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self.process = process
            if self._is_cancelled:
                process.kill()

    def done(self) -> bool:
        return self.future.done()

    def result(self) -> ShardEnd:
        return self.future.result()

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            if not self.future.cancel() and self.process is not None:
                self.process.kill()


class LocalFleet:
    """Workers on this machine: so many processes at once, in the folder of the project itself."""

    listen = "127.0.0.1", 0

    def __init__(self, workers: int) -> None:
        self.capacity = workers
        self._threads = ThreadPoolExecutor(workers, "kindlm-worker")
        self._jobs: list[_Job] = []

    def check(self, _url: str) -> Result[None]:
        """Return no error: workers reach their own machine."""
        return Ok(None)

    def submit(self, job: ShardJob) -> _Job:
        """Let the next thread that is free run a shard."""
        submitted = _Job()
        submitted.future = self._threads.submit(run_shard, job, started=submitted.started)
        self._jobs.append(submitted)
        return submitted

    def interrupt(self) -> None:
        """Send Ctrl-C to all processes."""
        for job in self._jobs:
            if job.process is not None:
                with suppress(ProcessLookupError):
                    job.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """End all processes, and wait until they are gone."""
        for job in self._jobs:
            job.cancel()
        self._threads.shutdown(cancel_futures=True)


_Started = Callable[[subprocess.Popen[bytes]], None]


def run_shard(shard: ShardJob, *, started: _Started = lambda _: None) -> ShardEnd:
    """Carry out a job; `started` gets the process."""
    _remove_forgotten()
    with TemporaryDirectory(prefix=shard.prefix) as folder:
        database = Path(folder) / _DATABASE
        with closing(HistoryClient(shard.url, shard.token)) as client:
            claimed = client.claim(shard.shard)
            if isinstance(claimed, Err):
                return ShardEnd(None, claimed.error.message)
            if claimed.value["lease"] is None:
                return ShardEnd(None, "the shard is not to be run any more")
            for run in claimed.value["bring"]:
                if isinstance(pulled := pull_run(client, database, run, trusted=True), Err):
                    return ShardEnd(None, pulled.error.message)
        arguments = _arguments(shard, claimed.value, database)
        environ = {
            name: value for name, value in os.environ.items() if name not in _NOT_FOR_WORKERS
        }
        environ |= shard.environ
        environ |= {
            "KINDLM_URL": shard.url,
            "KINDLM_TOKEN": shard.token,
            "KINDLM_LEASE": claimed.value["lease"],
            PARENT: str(os.getpid()),
        }
        return _test(arguments, environ, shard.folder, started)


def _arguments(shard: ShardJob, claimed: dict[str, Any], database: Path) -> list[str]:
    limits = {"--max-rpm": claimed["max_rpm"], "--max-time": claimed["max_time_s"]}
    run = claimed["run"]
    return [
        "--push",
        "--die-with-parent",
        # The coordinator has loaded the same files, and warned of what is in them.
        "--quiet",
        *(f"{name}={limit}" for name, limit in limits.items() if limit is not None),
        f"--db={database}",
        *(shard.arguments if run is None else (f"--resume={run}", *shard.again)),
    ]


def _test(
    arguments: Sequence[str], environ: dict[str, str], folder: str, started: _Started
) -> ShardEnd:
    """Run `kindlm test` in a process of its own, to its end."""
    with TemporaryFile() as said:
        process = subprocess.Popen(
            [*KINDLM, "test", *arguments],
            cwd=folder,
            env=environ,
            # Held open and never written: its end is that of this process.
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
            # Ctrl-C reaches the coordinator, which tells its workers.
            start_new_session=True,
        )
        try:
            started(process)
            code = process.wait()
        finally:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        end = said.seek(0, os.SEEK_END)
        said.seek(max(0, end - _SAID_BYTES))
        return ShardEnd(code, said.read().decode("utf-8", "replace").strip())


def folder_prefix(database: Path, group: str) -> str:
    """Return how the temporary folders of all workers of a group begin."""
    key = sha256(f"{database.resolve()} {group}".encode()).hexdigest()
    return f"{_PREFIX}{key[:16]}-"


def take_left(log: EventLog, prefix: str) -> None:
    """Take what workers could not push any more, as their coordinator was killed; then remove it.

    What cannot be read, or not be taken, stays.
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
    """Yield the temporary folders of this user whose names begin so."""
    for folder in Path(gettempdir()).glob(f"{prefix}*"):
        with suppress(FileNotFoundError):
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                yield folder


def _remove_forgotten() -> None:
    """Remove what groups left behind that were killed, and not resumed for a month.

    A folder with more than a history is somebody else's.
    """
    for folder in _folders(_PREFIX):
        with suppress(OSError):  # another worker may remove it, too
            held = [*folder.iterdir()]
            written = max(path.lstat().st_mtime for path in (folder, *held))
            is_ours = all(path.name.startswith(_DATABASE) for path in held)
            if is_ours and written < time.time() - _KEPT_S:
                shutil.rmtree(folder)
