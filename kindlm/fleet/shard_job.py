"""What a worker does with a shard: claim it, fetch what it goes on with, let `kindlm test` run it.

The shard is claimed when a worker begins, not when it is submitted: of two workers with the same
shard, the one that claimed it last has the lease, and pushes of the other one are refused.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from kindlm.errors import Err
from kindlm.fleet.fleet import ShardEnd, ShardJob
from kindlm.keeper import PARENT
from kindlm.recording.history_file import open_log
from kindlm.team.client import HistoryClient
from kindlm.team.protocol import ApiError
from kindlm.team.taking import take_body

_SAID_BYTES = 4_000

_NOT_FOR_WORKERS = ("KINDLM_DB", "GITHUB_STEP_SUMMARY")
"""The history and the summary are the coordinator's."""

Started = Callable[[subprocess.Popen[bytes]], None]


def run_shard(job: str, *, started: Started = lambda _: None) -> str:
    """Carry out a `ShardJob`, and return its `ShardEnd`; `started` gets the process."""
    shard = ShardJob.load(job)
    with TemporaryDirectory(prefix="kindlm-shard-") as folder:
        database = Path(folder) / "kindlm.db"
        with closing(HistoryClient(shard.url, shard.token)) as client:
            claimed = client.claim(shard.shard)
            if isinstance(claimed, Err):
                return ShardEnd(None, claimed.error.message).dump()
            if claimed.value["lease"] is None:
                return ShardEnd(None, "the shard is not to be run any more").dump()
            for run in claimed.value["bring"]:
                if (problem := _bring(client, run, database)) is not None:
                    return ShardEnd(None, problem).dump()
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
        return _test(arguments, environ, shard.folder, started).dump()


def _arguments(shard: ShardJob, claimed: dict[str, Any], database: Path) -> list[str]:
    limits = {"--max-rpm": claimed["max_rpm"], "--max-time": claimed["max_time_s"]}
    run = claimed["run"]
    return [
        "--push",
        "--die-with-parent",
        *(f"{name}={limit}" for name, limit in limits.items() if limit is not None),
        f"--db={database}",
        *(shard.arguments if run is None else (f"--resume={run}", *shard.again)),
    ]


def _bring(client: HistoryClient, run: str, database: Path) -> str | None:
    """Put a run of the coordinator's history into that of the worker; return why it failed."""
    with TemporaryFile() as file:
        fetched = client.fetch(run, file)
        if isinstance(fetched, Err):
            return fetched.error.message
        file.seek(0)
        with open_log(database, set()) as log:
            taken = take_body(log, file, allowed=lambda _: None)
    return taken.message if isinstance(taken, ApiError) else None


def _test(
    arguments: Sequence[str], environ: dict[str, str], folder: str, started: Started
) -> ShardEnd:
    """Run `kindlm test` in a process of its own, to its end."""
    # `-P`: modules of the folder are not to be taken for those of Python.
    command = [sys.executable, "-P", "-m", "kindlm", "test", *arguments]
    with TemporaryFile() as said:
        process = subprocess.Popen(
            command,
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
