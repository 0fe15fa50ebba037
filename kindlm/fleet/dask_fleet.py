"""Workers on other machines, by Dask: `kindlm test --workers tcp://HOST:PORT`.

Dask starts functions of this module on its workers by name. Only text crosses the network, and the
bundle of the project's files as bytes: nothing of kindlm is pickled.

Workers are examined before they get a shard. All workers that are there at the beginning must be
fit, or nothing runs; an unfit one that comes later gets no shard. The resource `kindlm` makes a
worker run one shard at a time. Shards wait here, in the order of their submission, until a worker
is free, since Dask's own queues keep no order.

Unencrypted connections beyond this machine need `--insecure`: that to a scheduler elsewhere unless
it is `tls://`, and the pushes of workers elsewhere.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import threading
import uuid
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from kindlm.bounds import SCHEDULERS
from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, misuse
from kindlm.fleet.bundle import make_bundle, unpack
from kindlm.fleet.workers import ShardEnd, ShardJob, run_shard
from kindlm.recording.loading import Loaded
from kindlm.recording.project import git_state, project_name, run_environment
from kindlm.recording.suite_secrets import needed_variables
from kindlm.team.protocol import is_loopback
from kindlm.wording import count, listed_names

if TYPE_CHECKING:
    from distributed import Client, Future, Worker

_CERTIFICATES = "Name them in Dask's configuration, as distributed.comm.tls: https://docs.dask.org"

_CONNECT_S = 10.0
_LOOK_EVERY_S = 2.0
_END_S = 5.0
"""How long workers may take to hear that it is over."""

_SLOT = "kindlm"
"""Each worker has one of this resource, and a shard takes it."""


def connect(
    address: str,
    loaded: Loaded,
    root: Path,
    *,
    environ: Mapping[str, str],
    listen: str | None = None,
    insecure: bool = False,
) -> Result[DaskFleet]:
    """Connect to a scheduler; an error says why the suites cannot run on its workers.

    `listen` is where they are to reach this machine, if that has to be named: `HOST[:PORT]`.
    """
    parts = urlsplit(address)
    if not (address.startswith(SCHEDULERS) and _has_port(parts)):
        hint = "Write a number of processes, or the address of a scheduler: tcp://HOST:8786"
        return Err(misuse(f"--workers {address} is not the address of a scheduler.", hint))
    if listen is not None and not urlsplit(f"//{listen}").hostname:
        return Err(misuse(f"--listen {listen} is no host.", "Write it like --listen 10.0.0.5:8787"))
    if parts.scheme == "tcp" and not is_loopback(parts.hostname or "") and not insecure:
        return Err(
            misuse(
                f"{address} is another machine, and the connection to it is not encrypted.",
                "Use tls:// with certificates in Dask's configuration. In a network that you trust:"
                " --insecure",
            )
        )
    bundle = make_bundle(loaded, root)
    if isinstance(bundle, Err):
        return bundle
    client = _client(address)
    if isinstance(client, Err):
        return client
    fleet = DaskFleet(client.value, bundle.value, root, _needed(loaded, root, environ), address)
    refused = fleet.look(listen, insecure=insecure)
    if refused is not None:
        fleet.close()
        return Err(refused)
    return Ok(fleet)


def _client(address: str) -> Result[Client]:
    try:
        import dask
        from distributed import Client, Security
    except ImportError:
        return Err(
            misuse(
                "--workers with the address of a scheduler needs Dask, which is not installed.",
                "Install it here and on all workers: pip install 'kindlm[cluster]'",
            )
        )
    # What it has to say, this module says; the other is how it forgets a connection that broke.
    for name in ("distributed", "distributed.client", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"})
    hint = f"Is it there? Start one with: dask scheduler --port {urlsplit(address).port}"
    try:
        security = Security().get_connection_args("client")
        if address.startswith("tls:") and security["ssl_context"] is None:
            how, hint = "there are no certificates", _CERTIFICATES
        elif address.startswith("tcp:") and security["require_encryption"]:
            how, hint = "Dask's configuration requires encryption", "Write tls:// instead of tcp://"
        else:
            return Ok(Client(address, timeout=_CONNECT_S, set_as_default=False, name="kindlm"))
    except OSError as error:
        how = str(error)
    message = f"The scheduler {address} cannot be reached: {how}."
    return Err(KindlmError(ErrorCode.PROVIDER_NETWORK_ERROR, message, hint))


def _needed(loaded: Loaded, root: Path, environ: Mapping[str, str]) -> frozenset[str]:
    """Return the variables that each worker must have: `.env` files stay here.

    They are those in these files, and those that suites name and that are set here.
    """
    in_files = run_environment([*loaded.folders, root], {})
    named = {name for suite in loaded.suites for name in needed_variables(suite)}
    return frozenset(in_files) | {name for name in named if environ.get(name)}


class DaskFleet:
    """The workers of a scheduler.

    `left_out` are workers that came later and are not fit, by address, with what is wrong.
    """

    def __init__(
        self, client: Client, bundle: bytes, root: Path, needed: Collection[str], address: str
    ) -> None:
        self.listen = "127.0.0.1", 0
        self.left_out: dict[str, str] = {}
        self._fit: tuple[str, ...] = ()
        self._client, self._address = client, address
        self._root = root
        self._needed = sorted(needed)
        self._url = ""
        # Variables that stand for the repository, which workers do not have.
        self._environ = {"KINDLM_PROJECT": project_name(root)}
        if (git := git_state(root)) is not None:
            self._environ["KINDLM_COMMIT"] = git.commit + ("-dirty" if git.dirty else "")
            self._environ["KINDLM_BRANCH"] = git.branch or ""
        # The scheduler keeps what it takes to give them to a worker, whichever one is lost.
        self._files = client.submit(_kept, bundle, key=f"kindlm-{uuid.uuid4()}", retries=0)
        self._waiting: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._look_after_workers, name="kindlm-fleet")

    @property
    def capacity(self) -> int:
        """How many workers can have a shard now."""
        return len(self._fit)

    @property
    def is_lost(self) -> bool:
        """Whether the connection to the scheduler broke: Dask gives up what was submitted."""
        return bool(self._files.cancelled())

    def look(self, listen: str | None, *, insecure: bool) -> KindlmError | None:
        """Look at the workers, and how they reach this machine; return what is wrong."""
        workers = sorted(self._client.scheduler_info(n_workers=-1).get("workers", {}))
        if not workers:
            return misuse(
                f"The scheduler {self._address} has no workers.",
                f"Start some, on any machine: dask worker {self._address} --nthreads 1",
            )
        if wrong := self._admit(workers):
            return _unfit(wrong, len(workers))
        self._fit = tuple(workers)
        hosts = {urlsplit(worker).hostname or "" for worker in workers}
        away = next((host for host in sorted(hosts) if not is_loopback(host)), None)
        if listen is not None:
            named = urlsplit(f"//{listen}")
            self.listen = named.hostname or "", named.port or 0
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

    def check(self, url: str) -> Result[None]:
        """Return an error if a worker does not reach the history: then none gets a shard."""
        self._url = url
        if wrong := self._admit(self._fit):
            return Err(_unfit(wrong, len(self._fit)))
        self._watch.start()
        return Ok(None)

    def submit(self, job: ShardJob) -> _Job:
        """Let the next worker that is free run a shard."""
        folder = os.path.relpath(job.folder, self._root)
        environ = {**job.environ, **self._environ}
        sent = _Job(self, replace(job, folder=folder, environ=environ).dump())
        with self._lock:
            self._waiting.append(sent)
        self._feed()
        return sent

    def interrupt(self) -> None:
        """Do nothing: workers hear that it is over from the answers to their pushes."""

    def close(self) -> None:
        """End what goes on, and leave the scheduler as it was."""
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
        """Let the processes of jobs be killed, wherever they are."""
        ask = threading.Thread(
            target=self._client.run,
            args=(end_jobs, list(jobs)),
            kwargs={"on_error": "ignore"},
            daemon=True,
        )
        ask.start()
        ask.join(_END_S)

    def _feed(self, _: object = None) -> None:
        """Give waiting jobs to workers that are free."""
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
                # Left to itself, Dask prefers a worker that has the files, however busy it is. If
                # this one dies, Dask takes any other.
                job.future = self._client.submit(
                    carry_out,
                    *(job.text, self._files, job.id),
                    key=f"kindlm-{job.id}",
                    workers=[job.worker],
                    allow_other_workers=True,
                    resources={_SLOT: 1},
                    retries=0,
                )
                job.future.add_done_callback(self._feed)

    def _look_after_workers(self) -> None:
        """Count the workers as they come and go, and look at those that come."""
        while not self._is_over.wait(_LOOK_EVERY_S) and not self.is_lost:
            try:
                workers = self._client.scheduler_info(n_workers=-1)["workers"]
                fit = {name for name, worker in workers.items() if _SLOT in worker["resources"]}
                new = workers.keys() - fit - self.left_out.keys()
                self.left_out |= self._admit(sorted(new))
            except (OSError, KeyError):
                continue  # the scheduler is gone, or comes back
            self._fit = tuple(sorted((fit | new) - self.left_out.keys()))
            self._feed()

    def _admit(self, workers: Sequence[str]) -> dict[str, str]:
        """Let workers have shards if they are fit; return what is wrong with the others."""
        if not workers:
            return {}
        # Theirs may be too old to know `examine`; this function is Python's.
        versions = self._run(metadata.version, "kindlm", workers=workers)
        here = metadata.version("kindlm")
        wrong = {
            worker: f"has kindlm {found}, not {here}" if isinstance(found, str)
            else "does not have kindlm"
            for worker, found in versions.items()
            if found != here
        }  # fmt: skip
        same = [worker for worker in versions if worker not in wrong]
        asked = json.dumps({"needed": self._needed, "url": self._url})
        for worker, found in self._run(examine, asked, workers=same).items():
            if found != "":
                wrong[worker] = str(found)
        fit = [worker for worker in same if worker not in wrong]
        self._run(take_one_at_a_time, workers=fit)
        return wrong

    def _run(self, function: Any, *arguments: str, workers: Sequence[str]) -> dict[str, Any]:
        """Return what a function returns on each worker, or what it raises there."""
        if not workers:
            return {}
        return dict(
            self._client.run(function, *arguments, workers=list(workers), on_error="return")
        )


class _Job:
    """A job that was submitted, and what Dask has of it once a worker is free."""

    def __init__(self, fleet: DaskFleet, text: str) -> None:
        self.id = uuid.uuid4().hex
        self.text = text
        self.future: Future[str] | None = None
        self.worker: str | None = None
        self._fleet = fleet
        self._is_cancelled = False

    def done(self) -> bool:
        """Return whether it has ended, or will never start."""
        is_done = self.future is not None and self.future.done()
        return is_done or self._is_cancelled or self._fleet.is_lost

    def result(self) -> ShardEnd:
        """Return how the shard ended; raise what kept the job from being carried out."""
        if self._fleet.is_lost or self.future is None:
            raise ConnectionError("the connection to the scheduler broke")
        return ShardEnd.load(self.future.result())

    def cancel(self) -> None:
        """Let the job not start any more, or end its process."""
        if not (self.done() or self.future is None):
            self._fleet.end([self.id])
            self.future.cancel()
        self._is_cancelled = True


def _unfit(wrong: Mapping[str, str], workers: int) -> KindlmError:
    found = "; ".join(f"{worker} {what}" for worker, what in sorted(wrong.items()))
    message = f"{len(wrong)} of {count(workers, 'worker')} cannot run the tests: {found}."
    return misuse(message, "Nothing was run. Fix them, or end them, and run it again.")


def _has_port(parts: SplitResult) -> bool:
    try:
        return bool(parts.hostname and parts.port)
    except ValueError:
        return False


def _seen_from(host: str) -> str:
    """Return the address of this machine on the way to another one; nothing is sent."""
    family, *_, there = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(there)
        return str(probe.getsockname()[0])


# What runs on workers.

_processes: dict[str, subprocess.Popen[bytes]] = {}
_ended: set[str] = set()


def _kept(data: bytes) -> bytes:
    """Return the bundle: as a task's result, Dask takes it once to each worker that needs it."""
    return data


def examine(asked: str) -> str:
    """Return what keeps this worker from running the tests; nothing if all is well."""
    request = json.loads(asked)
    missing = [name for name in request["needed"] if not os.environ.get(name)]
    if missing:
        return f"lacks {listed_names(missing)}"
    place = urlsplit(request["url"])
    if place.hostname is None:
        return ""
    try:
        socket.create_connection((place.hostname, place.port), timeout=_CONNECT_S).close()
    except OSError as error:
        return f"cannot reach {request['url']} ({error}); --listen names another address"
    return ""


async def take_one_at_a_time(dask_worker: Worker) -> None:
    """Give this worker the resource that a shard takes."""
    await dask_worker.set_resources(**{_SLOT: 1})


def carry_out(job: str, files: bytes, number: str) -> str:
    """Run a shard in a copy of the project that is there as long as the shard runs."""
    from distributed import get_worker

    def started(process: subprocess.Popen[bytes]) -> None:
        _processes[number] = process
        if number in _ended:
            process.kill()

    space = get_worker().local_directory
    with TemporaryDirectory(prefix="kindlm-", dir=space, ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        unpack(files, root)
        wanted = ShardJob.load(job)
        here = root / wanted.folder
        here.mkdir(parents=True, exist_ok=True)
        # It marks the root of the project, also where nothing else does.
        (root / ".kindlm").mkdir(exist_ok=True)
        try:
            return run_shard(replace(wanted, folder=str(here)), started=started).dump()
        finally:
            _processes.pop(number, None)


def end_jobs(numbers: list[str]) -> None:
    """Kill the processes of jobs, if they are here."""
    _ended.update(numbers)
    for number in numbers:
        if (process := _processes.get(number)) is not None:
            process.kill()
