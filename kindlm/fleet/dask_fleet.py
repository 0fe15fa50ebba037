"""Runs shards on other machines, by Dask: `kindlm test --workers tcp://HOST:PORT`.

Dask starts functions of this module on its workers by name. They get values of JSON, and the bundle
of the project's files as bytes; no object of kindlm is pickled.

kindlm examines each worker before it gets a shard. If a worker is unfit at the beginning, nothing
runs; an unfit worker that comes later gets no shard. The resource `kindlm` limits a worker to one
shard at a time. Shards wait here until a worker is free, since Dask's queues keep no order.

Without TLS, connections to a scheduler or from workers on other machines need `--insecure`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kindlm.bounds import SCHEDULERS
from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, misuse
from kindlm.fleet.bundle import pack, unpack
from kindlm.fleet.workers import Fleet, ShardEnd, ShardJob, end_jobs, new_job_id, run_shard
from kindlm.recording.loading import Loaded
from kindlm.recording.project import git_state, project_name, run_environment
from kindlm.recording.suite_secrets import needed_variables
from kindlm.recording.watched_files import watched_files
from kindlm.team.protocol import is_loopback
from kindlm.wording import count, listed_names

if TYPE_CHECKING:
    from distributed import Client, Future, Worker

_NO_SCHEDULER = (
    "Start one: dask scheduler --port 8786. Name that port, not 8787 of its dashboard. For tls://,"
    " Dask's configuration has the certificates, as distributed.comm.tls: https://docs.dask.org"
)

_NO_PLACE = "", 0
_CONNECT_S = 10.0
_LOOK_EVERY_S = 2.0
_END_S = 5.0
"""How long to wait until workers have got the order to end."""

_SLOT = "kindlm"
"""The Dask resource that a shard takes; each worker has one."""


def connect(
    address: str,
    loaded: Loaded,
    root: Path,
    *,
    environ: Mapping[str, str],
    listen: str | None = None,
    insecure: bool = False,
) -> Result[DaskFleet]:
    """Connect to a scheduler, or return why the suites cannot run on its workers.

    `listen` is the address at which workers reach this machine, `HOST[:PORT]`; None: find it out.
    """
    host, port = _host_and_port(address)
    if not (address.startswith(SCHEDULERS) and port):
        hint = "Write a number of processes, or the address of a scheduler: tcp://HOST:8786"
        return Err(misuse(f"--workers {address} is not the address of a scheduler.", hint))
    named = None if listen is None else _host_and_port(f"//{listen}")
    if named == _NO_PLACE:
        message = f"--listen {listen} is not of the form HOST or HOST:PORT."
        return Err(misuse(message, "Write it like --listen 10.0.0.5:8787"))
    if address.startswith("tcp:") and not is_loopback(host) and not insecure:
        message = f"{address} is another machine, and the connection to it is not encrypted."
        hint = "Use tls:// with certificates in Dask's configuration."
        return Err(misuse(message, f"{hint} In a network that you trust: --insecure"))
    bundle = pack(sorted(watched_files((), loaded, root).stamps()), root)
    if isinstance(bundle, Err):
        return bundle
    client = _client(address)
    if isinstance(client, Err):
        return client
    fleet = DaskFleet(client.value, bundle.value, root, _needed(loaded, root, environ), address)
    refused = fleet.look(named, insecure=insecure)
    if refused is not None:
        fleet.close()
        return Err(refused)
    return Ok(fleet)


def _client(address: str) -> Result[Client]:
    try:
        import dask
        from distributed import Client, Security
    except ImportError:
        message = "--workers with the address of a scheduler needs Dask, which is not installed."
        hint = "Install it here and on all workers: pip install 'kindlm[cluster]'"
        return Err(misuse(message, hint))
    # This module reports Dask's errors itself; asyncio logs connections that broke.
    for name in ("distributed", "distributed.client", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"})
    try:
        # With a program that is no scheduler, `Client` waits without end.
        security = Security().get_connection_args("client")
        asyncio.run(asyncio.wait_for(_greeted(address, security), 2 * _CONNECT_S))
        return Ok(Client(address, timeout=_CONNECT_S, set_as_default=False, name="kindlm"))
    except (TimeoutError, MemoryError, OverflowError, ValueError):
        # Dask takes the first bytes of any program for a length, and reserves this memory.
        how = "what listens there is no scheduler"
    except (OSError, TypeError, RuntimeError) as error:  # the last two for missing certificates
        how = str(error)
    message = f"The scheduler {address} cannot be reached: {how}."
    return Err(KindlmError(ErrorCode.PROVIDER_NETWORK_ERROR, message, _NO_SCHEDULER))


async def _greeted(address: str, security: dict[str, Any]) -> None:
    """Connect once, until both sides have greeted each other."""
    from distributed.comm import connect

    comm = await connect(address, timeout=_CONNECT_S, **security)
    comm.abort()


def _needed(loaded: Loaded, root: Path, environ: Mapping[str, str]) -> frozenset[str]:
    """Return the variables that each worker must have, since `.env` files stay here.

    These are the variables in these files, and those set here that suites name.
    """
    in_files = run_environment([*loaded.folders, root], {})
    named = {name for suite in loaded.suites for name in needed_variables(suite)}
    return frozenset(in_files) | {name for name in named if environ.get(name)}


class DaskFleet(Fleet):
    """The workers of a scheduler."""

    def __init__(
        self, client: Client, bundle: bytes, root: Path, needed: Collection[str], address: str
    ) -> None:
        self._unfit: set[str] = set()
        self._use([])
        self._client, self._address = client, address
        self._root = root
        self._needed = sorted(needed)
        self._url = ""
        # Workers have no repository; these variables describe it.
        self._environ = {"KINDLM_PROJECT": project_name(root)}
        if (git := git_state(root)) is not None:
            self._environ["KINDLM_COMMIT"] = git.commit + ("-dirty" if git.dirty else "")
            self._environ["KINDLM_BRANCH"] = git.branch or ""
        # As the result of a task, the bundle is sent once to each worker, and made again if a
        # worker is lost.
        self._files = client.submit(bytes, bundle, key=f"kindlm-{new_job_id()}", retries=0)
        self._waiting: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._look_after_workers, name="kindlm-fleet")

    @property
    def is_lost(self) -> bool:
        """Whether the connection to the scheduler broke; Dask then cancels everything."""
        return bool(self._files.cancelled())

    def look(self, listen: tuple[str, int] | None, *, insecure: bool) -> KindlmError | None:
        """Examine the workers, and choose where they reach this machine; return an error if any."""
        workers = sorted(self._client.scheduler_info(n_workers=-1).get("workers", {}))
        if not workers:
            hint = f"Start some, on any machine: dask worker {self._address} --nthreads 1"
            return misuse(f"The scheduler {self._address} has no workers.", hint)
        if wrong := self._admit(workers):
            return _unfit(wrong, len(workers))
        self._use(workers)
        hosts = {urlsplit(worker).hostname or "" for worker in workers}
        away = next((host for host in sorted(hosts) if not is_loopback(host)), None)
        if listen is not None:
            self.listen = listen
        elif away is not None:
            self.listen = _seen_from(away), 0
        host = self.listen[0]
        if insecure:
            self._environ["KINDLM_INSECURE"] = "1"
        elif not is_loopback(host):
            return misuse(
                f"The workers push what they record to {host} over plain HTTP.",
                "In a network that you trust: --insecure. Elsewhere forward a port of theirs to"
                " 127.0.0.1 here, and name it: --listen 127.0.0.1:PORT",
            )
        return None

    def _use(self, workers: Sequence[str]) -> None:
        self._fit, self.capacity = tuple(workers), len(workers)

    def check(self, url: str) -> Result[None]:
        """Return an error if a worker cannot reach the history; no worker gets a shard then."""
        self._url = url
        if wrong := self._admit(self._fit):
            return Err(_unfit(wrong, len(self._fit)))
        self._watch.start()
        return Ok(None)

    def submit(self, job: ShardJob) -> _Job:
        """Let the next free worker run a shard."""
        folder = os.path.relpath(job.folder, self._root)
        environ = {**job.environ, **self._environ}
        sent = _Job(self, replace(job, folder=folder, environ=environ))
        with self._lock:
            self._waiting.append(sent)
        self._feed()
        return sent

    def interrupt(self) -> None:
        """Do nothing: workers learn from the answers to their pushes that the run ends."""

    def close(self) -> None:
        """End all jobs, and close the connection; the scheduler stays."""
        self._is_over.set()
        with self._lock:
            self._waiting.clear()
            running = [job.id for job in self._running]
        if running and not self.is_lost:
            self.end(running)
        if self._watch.ident is not None:
            self._watch.join()
        self._client.close(timeout=_END_S)

    def end(self, jobs: Sequence[str]) -> None:
        """Kill the processes of jobs on all workers."""
        ask = threading.Thread(
            target=self._client.run,
            args=(end_jobs, list(jobs)),
            kwargs={"on_error": "ignore"},
            daemon=True,
        )
        ask.start()
        ask.join(_END_S)

    def _feed(self, _: object = None) -> None:
        with self._lock:
            self._running = {job for job in self._running if not job.done()}
            busy = {job.worker for job in self._running}
            free = [] if self.is_lost else [each for each in self._fit if each not in busy]
            while self._waiting and free:
                job = self._waiting.popleft()
                if job.done():
                    continue
                job.worker = free.pop(0)
                self._running.add(job)
                # By itself, Dask prefers a worker that has the files, even a busy one. If the
                # chosen worker dies, Dask takes any other.
                job.future = self._client.submit(
                    carry_out,
                    *(job.shard, self._files, job.id),
                    key=f"kindlm-{job.id}",
                    workers=[job.worker],
                    allow_other_workers=True,
                    resources={_SLOT: 1},
                    retries=0,
                )
                job.future.add_done_callback(self._feed)

    def _look_after_workers(self) -> None:
        """Notice workers that come and go; admit those that come if they are fit."""
        while not self._is_over.wait(_LOOK_EVERY_S) and not self.is_lost:
            try:
                workers = self._client.scheduler_info(n_workers=-1)["workers"]
                fit = {name for name, worker in workers.items() if _SLOT in worker["resources"]}
                new = workers.keys() - fit - self._unfit
                self._unfit |= self._admit(sorted(new)).keys()
            except (OSError, KeyError):
                continue  # the scheduler is gone, or comes back
            self._use(sorted((fit | new) - self._unfit))
            self._feed()

    def _admit(self, workers: Sequence[str]) -> dict[str, str]:
        """Let fit workers have shards; return what is wrong with the others, by address."""
        if not workers:
            return {}
        # An older kindlm may lack `examine`; this function is from the standard library.
        versions = self._run(metadata.version, "kindlm", workers=workers)
        here = metadata.version("kindlm")
        wrong = {
            worker: f"has kindlm {found}, not {here}" if isinstance(found, str)
            else "does not have kindlm"
            for worker, found in versions.items()
            if found != here
        }  # fmt: skip
        same = [worker for worker in versions if worker not in wrong]
        for worker, found in self._run(examine, self._needed, self._url, workers=same).items():
            if found != "":
                wrong[worker] = str(found)
        fit = [worker for worker in same if worker not in wrong]
        self._run(take_one_at_a_time, workers=fit)
        return wrong

    def _run(self, function: Any, *arguments: object, workers: Sequence[str]) -> dict[str, Any]:
        """Call a function on workers; return its result or exception by address."""
        if not workers:
            return {}
        found = self._client.run(function, *arguments, workers=list(workers), on_error="return")
        return dict(found)


class _Job:
    """A submitted job, see `Pending`; it has a `future` of Dask once a worker has it."""

    def __init__(self, fleet: DaskFleet, shard: ShardJob) -> None:
        self.id = new_job_id()
        self.shard = asdict(shard)
        self.future: Future[dict[str, Any]] | None = None
        self.worker: str | None = None
        self._fleet = fleet
        self._is_cancelled = False

    def done(self) -> bool:
        is_done = self.future is not None and self.future.done()
        return is_done or self._is_cancelled or self._fleet.is_lost

    def result(self) -> ShardEnd:
        if self._fleet.is_lost or self.future is None:
            raise ConnectionError("the connection to the scheduler broke")
        return ShardEnd(**self.future.result())

    def cancel(self) -> None:
        if not (self.done() or self.future is None):
            self._fleet.end([self.id])
            self.future.cancel()
        self._is_cancelled = True


def _unfit(wrong: Mapping[str, str], workers: int) -> KindlmError:
    found = "; ".join(f"{worker} {what}" for worker, what in sorted(wrong.items()))
    message = f"{len(wrong)} of {count(workers, 'worker')} cannot run the tests: {found}."
    return misuse(message, "Nothing was run. Fix or end these workers, and run it again.")


def _host_and_port(url: str) -> tuple[str, int]:
    """Return the host of a URL, and its port or 0; `_NO_PLACE` if it has no host."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return _NO_PLACE
    return (host, port or 0) if host else _NO_PLACE


def _seen_from(host: str) -> str:
    """Return this machine's address on the route to a host; nothing is sent."""
    family, *_, there = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(there)
        return str(probe.getsockname()[0])


# The rest runs on workers.


def examine(needed: Sequence[str], url: str) -> str:
    """Return why this worker cannot run the tests, an empty text if it can."""
    missing = [name for name in needed if not os.environ.get(name)]
    if missing:
        return f"lacks {listed_names(missing)}"
    place = urlsplit(url)
    if place.hostname is None:
        return ""
    try:
        socket.create_connection((place.hostname, place.port), timeout=_CONNECT_S).close()
    except OSError as error:
        return f"cannot reach {url} ({error}); --listen names another address"
    return ""


async def take_one_at_a_time(dask_worker: Worker) -> None:
    """Give this worker one of the resource that a shard takes."""
    await dask_worker.set_resources(**{_SLOT: 1})


def carry_out(shard: dict[str, Any], files: bytes, job: str) -> dict[str, Any]:
    """Run a shard in a temporary copy of the project."""
    from distributed import get_worker

    space = get_worker().local_directory
    with TemporaryDirectory(prefix="kindlm-", dir=space, ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        unpack(files, root)
        wanted = ShardJob(**shard)
        here = root / wanted.folder
        here.mkdir(parents=True, exist_ok=True)
        # This folder marks the root of the project.
        (root / ".kindlm").mkdir(exist_ok=True)
        return asdict(run_shard(replace(wanted, folder=str(here)), job))
