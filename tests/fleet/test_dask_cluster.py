"""`kindlm test --workers tcp://…` with a scheduler, and workers that are processes of Dask."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from orders import asked, hold, order, serve_orders, write_orders
from processes import assert_ended
from workspace import Workspace, new_workspace, until


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "project").mkdir()
    return new_workspace(tmp_path / "project")


@contextmanager
def dask_worker(workspace: Workspace, scheduler: str) -> Iterator[psutil.Process]:
    """Start a worker that has the variables of the project, and none of its files."""
    space = workspace.root.parent
    command = f"-m dask worker {scheduler} --nthreads 2 --no-nanny --no-dashboard --memory-limit 0"
    process = subprocess.Popen(
        [sys.executable, *command.split(), "--local-directory", str(space)],
        cwd=space,
        env=workspace.env,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def shard_of(worker: psutil.Process) -> list[str]:
    """Return the shards that programs of a worker run."""
    lines = [word for each in worker.children(recursive=True) for word in each.cmdline()]
    return [word for word in lines if word.startswith("--shard=")]


def test_a_worker_that_is_killed_is_replaced_and_leaves_no_program(workspace: Workspace) -> None:
    from distributed import LocalCluster

    with ExitStack() as stack:
        server = stack.enter_context(serve_orders())
        cluster = stack.enter_context(
            LocalCluster(n_workers=0, protocol="tcp", host="127.0.0.1", dashboard_address=":0")
        )
        address = cluster.scheduler_address
        workers = [stack.enter_context(dask_worker(workspace, address)) for _ in range(2)]
        until(lambda: len(cluster.scheduler.workers) == 2)
        write_orders(workspace, server, [order("k0", judged=False)])
        arrived = hold(server, "k0")

        run = workspace.start("test", "--workers", address, "--run-group", "g1", "-j", "1")
        arrived()
        (worker,) = (each for each in workers if "--shard=1/1" in shard_of(each))
        programs = [each.pid for each in worker.children(recursive=True)]
        worker.kill()
        _, said = run.communicate(timeout=100)

        assert run.returncode == 0, said
        assert_ended(programs)
        assert asked(server) == {("k0", "agent"): 2}
        assert workspace.run("history", "verify").returncode == 0
        shown = workspace.run("show", "g1")
        assert shown.returncode == 0
        assert "1 of 1 shard" in shown.stdout
