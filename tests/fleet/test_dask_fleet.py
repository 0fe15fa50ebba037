"""Workers by Dask: who may have a shard, and how shards get there.

The workers of most tests are in this process; their sockets are real.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from kindlm.errors import Err, Ok
from kindlm.fleet import dask_fleet
from kindlm.fleet.dask_fleet import DaskFleet, connect
from kindlm.fleet.workers import ShardEnd, ShardJob
from kindlm.recording.loading import Loaded, load_paths

SUITE = """\
kindlm: 1
project: demo
suite: {name: shop}
providers: {openai: {apiKeyEnv: SHOP_KEY}}
models: [{id: m, provider: openai, model: gpt-4o-mini}]
prompts: {ask: {user: Hello}}
tests:
  - {name: hello, prompt: ask, expect: {output: {contains: hi}}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2,
        threads_per_worker=2,
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address=":0",
    ) as cluster:
        yield cluster


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "tests").mkdir(parents=True)
    (root / "tests/kindlm.yaml").write_text(SUITE)
    return root


def loaded_from(root: Path) -> Loaded:
    loaded = load_paths([root / "tests"], root)
    assert isinstance(loaded, Ok)
    return loaded.value


@pytest.fixture
def connected(cluster: Any, root: Path) -> Iterator[Callable[..., DaskFleet]]:
    fleets = []

    def connect_now(**environ: str) -> DaskFleet:
        fleet = connect(cluster.scheduler_address, loaded_from(root), root, environ=environ)
        assert isinstance(fleet, Ok)
        fleets.append(fleet.value)
        return fleet.value

    yield connect_now
    for fleet in fleets:
        fleet.close()


@pytest.fixture
def url() -> Iterator[str]:
    """Return an address that something listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def job(root: Path, shard: int) -> ShardJob:
    return ShardJob("http://127.0.0.1:9", "kdl_t", shard, (), (), str(root / "tests"))


def until(happened: Callable[[], object]) -> None:
    limit = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < limit
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("http://127.0.0.1:8786", "is not the address of a scheduler"),
        ("tcp://127.0.0.1", "is not the address of a scheduler"),
        ("tcp://127.0.0.1:many", "is not the address of a scheduler"),
        ("tcp://[::1:8786", "is not the address of a scheduler"),
        ("tcp://10.0.0.1:8786", "is another machine, and the connection to it is not encrypted"),
        ("tcp://127.0.0.1.example:8786", "is another machine"),
        ("tcp://127.0.0.1:1", "cannot be reached"),
        ("tls://127.0.0.1:1", "cannot be reached"),
    ],
)
def test_says_why_a_scheduler_is_not_asked(
    root: Path, address: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_fleet, "_CONNECT_S", 0.2)

    refused = connect(address, loaded_from(root), root, environ={})

    assert isinstance(refused, Err)
    assert what in refused.error.message


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-OpenSSH_9.9\r\n", b"HTTP/1.1 400 Bad\r\n\r\n"])
def test_does_not_wait_for_a_program_that_is_no_scheduler(
    root: Path, greeting: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_fleet, "_CONNECT_S", 0.5)

    with socket.create_server(("127.0.0.1", 0)) as other:

        def greet() -> None:
            peer, _ = other.accept()
            with peer:
                peer.sendall(greeting)
                while peer.recv(100_000):
                    pass

        threading.Thread(target=greet, daemon=True).start()
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        refused = connect(address, loaded_from(root), root, environ={})

    assert isinstance(refused, Err)
    assert "cannot be reached: what listens there is no scheduler." in refused.error.message


@pytest.mark.parametrize("listen", [":8787", "[::1", "10.0.0.5:many", "10.0.0.5:99999"])
def test_refuses_a_place_to_listen_that_is_no_host_and_port(root: Path, listen: str) -> None:
    refused = connect("tcp://127.0.0.1:1", loaded_from(root), root, environ={}, listen=listen)

    assert isinstance(refused, Err)
    assert refused.error.message == f"--listen {listen} is not of the form HOST or HOST:PORT."


def test_names_what_each_worker_lacks(
    cluster: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_KEY", raising=False)
    (root / ".env").write_text("SHOP_DESK_NUMBER=7\n")
    at = "apiKeyEnv: SHOP_KEY, baseUrl: '{{env.SHOP_MODELS}}'"
    (root / "tests/kindlm.yaml").write_text(SUITE.replace("apiKeyEnv: SHOP_KEY", at))
    here = {"SHOP_KEY": "sk-here-and-not-there", "SHOP_MODELS": "http://127.0.0.1:9/v1"}

    refused = connect(cluster.scheduler_address, loaded_from(root), root, environ=here)

    assert isinstance(refused, Err)
    assert refused.error.message.startswith("2 of 2 workers cannot run the tests: tcp://127.0.0.1:")
    assert refused.error.message.count("lacks SHOP_DESK_NUMBER, SHOP_KEY, SHOP_MODELS") == 2


def test_names_workers_of_another_version(
    cluster: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(package: str) -> str:
        return "0.1.0" if threading.current_thread() is threading.main_thread() else "0.0.9"

    monkeypatch.setattr(metadata, "version", version)

    refused = connect(cluster.scheduler_address, loaded_from(root), root, environ={})

    assert isinstance(refused, Err)
    assert refused.error.message.count("has kindlm 0.0.9, not 0.1.0") == 2


def test_needs_consent_to_send_in_plain_text(cluster: Any, root: Path) -> None:
    address, loaded = cluster.scheduler_address, loaded_from(root)

    refused = connect(address, loaded, root, environ={}, listen="192.0.2.7:8787")
    allowed = connect(address, loaded, root, environ={}, listen="192.0.2.7:8787", insecure=True)

    assert isinstance(refused, Err)
    assert refused.error.message == (
        "The workers push what they record to 192.0.2.7 over plain HTTP."
    )
    assert isinstance(allowed, Ok)
    assert allowed.value.listen == ("192.0.2.7", 8787)
    allowed.value.close()


def test_refuses_workers_that_cannot_reach_the_history(
    root: Path, connected: Callable[..., DaskFleet]
) -> None:
    refused = connected().check("http://127.0.0.1:1")

    assert isinstance(refused, Err)
    assert refused.error.message.count("cannot reach http://127.0.0.1:1") == 2


def test_runs_a_shard_in_a_copy_of_the_project_and_removes_it(
    root: Path, url: str, connected: Callable[..., DaskFleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []

    def run(given: ShardJob, _: str) -> ShardEnd:
        folders.append(Path(given.folder))
        assert (Path(given.folder) / "kindlm.yaml").read_text() == SUITE
        return ShardEnd(0, given.environ["KINDLM_PROJECT"])

    monkeypatch.setattr(dask_fleet, "run_shard", run)
    fleet = connected()
    assert fleet.check(url) == Ok(None)

    pending = fleet.submit(job(root, 1))

    until(pending.done)
    assert pending.result() == ShardEnd(0, "project")
    (folder,) = folders
    assert folder.name == "tests"
    assert not folder.parent.exists()


def test_each_worker_runs_one_shard_at_a_time_in_their_order(
    root: Path, url: str, connected: Callable[..., DaskFleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[int] = []
    go_on = threading.Semaphore(0)

    def run(given: ShardJob, _: str) -> ShardEnd:
        began.append(given.shard)
        assert go_on.acquire(timeout=30)
        return ShardEnd(0)

    monkeypatch.setattr(dask_fleet, "run_shard", run)
    fleet = connected()
    assert fleet.check(url) == Ok(None)
    assert fleet.capacity == 2

    submitted = [fleet.submit(job(root, shard)) for shard in range(1, 6)]

    until(lambda: len(began) == 2)
    for count in (3, 4):
        go_on.release()
        until(lambda count=count: len(began) == count)
    submitted[4].cancel()
    go_on.release(2)
    until(lambda: all(each.done() for each in submitted))
    assert [began[0], began[1]] in ([1, 2], [2, 1])
    assert began[2:] == [3, 4]


def test_without_its_scheduler_no_shard_is_waited_for(root: Path, url: str) -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address=":0"
    ) as cluster:
        fleet = connect(cluster.scheduler_address, loaded_from(root), root, environ={})
        assert isinstance(fleet, Ok)
        assert fleet.value.check(url) == Ok(None)

    later = fleet.value.submit(job(root, 3))

    until(later.done)
    with pytest.raises(ConnectionError):
        later.result()
    fleet.value.close()
