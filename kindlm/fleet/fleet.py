"""Where the shards of a run are carried out: what a coordinator asks of workers, and those here.

What carries out a job calls `run_shard` with it, in a thread of its own.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

from kindlm.errors import Ok, Result
from kindlm.fleet.shard_job import ShardEnd, ShardJob, run_shard


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
    """Workers that carry out jobs, each one at a time."""

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
