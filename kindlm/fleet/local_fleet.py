"""Workers on this machine: a thread for each, which waits for a process that runs a shard."""

from __future__ import annotations

import signal
import subprocess
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from kindlm.errors import Ok, Result
from kindlm.fleet.shard_job import run_shard

if TYPE_CHECKING:
    from kindlm.fleet.fleet import Fleet


class _Job:
    """A submitted job, and its process once it has one."""

    def __init__(self) -> None:
        self.future: Future[str] = Future()
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

    def result(self) -> str:
        return self.future.result()

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            if not self.future.cancel() and self.process is not None:
                self.process.kill()


class LocalFleet:
    """So many processes at once, in the folder of the project itself."""

    listen = "127.0.0.1", 0

    def __init__(self, workers: int) -> None:
        self.capacity = workers
        self._threads = ThreadPoolExecutor(workers, "kindlm-worker")
        self._jobs: list[_Job] = []

    def check(self, _url: str) -> Result[None]:
        """Return no error: workers reach their own machine."""
        return Ok(None)

    def submit(self, job: str) -> _Job:
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


if TYPE_CHECKING:
    _: type[Fleet] = LocalFleet
