"""A disk that is full: the run stops, and `kindlm history import` takes what it could not write."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import loaded_kindlm
import pytest
from checked_server import LoopbackServer
from small_disk import mounted
from workspace import Workspace

PADDING = "x" * 4_000

EXPECT = {"output": {"contains": ["delivered"]}}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a new history and little more."""
    with mounted(tmp_path / "small", "640k") as folder:
        yield folder


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    """Answers at length: a few dozen of its answers fill the disk."""
    script = {"rules": [{"name": "answer", "when": {}, "reply": {"text": f"delivered {PADDING}"}}]}
    with LoopbackServer(script) as server:
        yield server


def write_suite(
    workspace: Workspace, server: LoopbackServer, *, order: str = "A1", **more: Any
) -> None:
    tests = [
        workspace.test(
            f"test-{number}", vars={"order": f"{number} {order}"}, tools=[], expect=EXPECT
        )
        for number in range(100)
    ]
    workspace.suite(server.url, tests=tests, defaults={"concurrency": 2}, **more)


def make_room(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)


LIMITED = """
import resource, runpy, sys
size = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
runpy.run_module("kindlm", run_name="__main__", alter_sys=True)
"""


def run_with_small_files(workspace: Workspace, size: int, *command: str) -> str:
    """Run a command where no file grows beyond `size` bytes, and fail; return what was told."""
    (workspace.root / "limited.py").write_text(LIMITED)
    done = loaded_kindlm.run(
        [str(size), *(command or ["test"])],
        cwd=workspace.root,
        env=workspace.env,
        timeout_s=120,
        module="limited",
    )
    assert done.returncode == 1
    return done.stderr


def kept_in(stderr: str) -> Path:
    """The file that the command to type next names."""
    (line,) = [line for line in stderr.splitlines() if "kindlm history import" in line]
    return Path(shlex.split(line.partition("kindlm history import")[2])[0])


def events_of(file: Path) -> list[dict[str, Any]]:
    header, *lines = map(json.loads, file.read_text("utf-8").splitlines())
    events = [line["event"] for line in lines if "event" in line]
    announced = [end["events"] - end.get("after", 0) for end in header["streams"].values()]
    assert sum(announced) == len(events)
    return events


def assert_imported(workspace: Workspace, file: Path, *where: str) -> None:
    """Once brings everything in, twice changes nothing, and the run is there to be looked at."""
    events = events_of(file)
    imported = workspace.run("import", str(file), *where)
    assert imported.returncode == 0, imported.stderr
    assert f"{len(events)} events imported" in imported.stderr
    again = workspace.run("import", str(file), *where)
    assert again.returncode == 0
    assert f"0 events imported; {len(events)} were there already" in again.stderr
    verified = workspace.run("verify", *where)
    assert verified.returncode == 0, verified.stdout
    shown = workspace.run("show", "latest", *where)
    assert "INTERRUPTED" in shown.stdout
    assert "the history could not be written" in shown.stdout


def test_what_a_full_disk_refused_is_imported_once_there_is_room(
    workspace: Workspace, server: LoopbackServer, small_disk: Path, tmp_path: Path
) -> None:
    write_suite(workspace, server)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    where = ("--db", str(small_disk / "history.db"))
    done = workspace.run_apart("test", *where, TMPDIR=str(temporary))
    assert done.returncode == 1
    assert "database or disk is full" in done.stderr
    assert "itself failed" not in done.stderr
    assert "executions" in done.stdout
    file = kept_in(done.stderr)
    assert file.parent == temporary
    assert file.stat().st_mode & 0o777 == 0o600
    assert workspace.env["OPENAI_API_KEY"] not in file.read_text("utf-8")
    assert events_of(file)[-1]["type"] == "run.interrupted"

    assert f"Next: kindlm history import {file}" in done.stdout
    assert "INTERRUPTED: the history could not be written" in done.stdout
    assert "without giving a reason" not in done.stdout

    filler = small_disk / "filler"
    with suppress(OSError), filler.open("wb") as out:
        while True:
            out.write(bytes(4096))
            out.flush()
    for path in small_disk.glob("*.lock"):
        path.unlink()
    refused = workspace.run_apart("import", str(file), *where)
    assert refused.returncode == 1
    assert "No space left" in refused.stderr or "no space left" in refused.stderr
    assert "Name a file" not in refused.stderr
    filler.unlink()

    make_room(small_disk)
    too_early = workspace.run_apart("test", "--resume", *where, TMPDIR=str(temporary))
    assert too_early.returncode == 1
    assert f"kindlm history import {file}" in " ".join(too_early.stderr.split())
    assert_imported(workspace, file, *where)
    report = json.loads(workspace.run("report", "latest", "--format", "json", *where).stdout)
    assert report["run"]["status"] == "interrupted"
    assert report["summary"]["executions"]["passed"] > 0
    # Of what was answered, at most the calls in flight are missing.
    assert report["summary"]["executions"]["passed"] >= len(server.requests) - 4
    resumed = workspace.run_apart("test", "--resume", *where, TMPDIR=str(temporary))
    assert "cannot be resumed yet" not in resumed.stderr


def test_what_is_refused_for_its_size_is_kept_beside_the_database(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_suite(workspace, server)
    file = kept_in(run_with_small_files(workspace, 300_000))
    assert file.parent == workspace.database.parent
    assert_imported(workspace, file)


def test_no_shard_is_resumed_before_its_events_are_imported(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_suite(workspace, server)
    shard = ("test", "--shard", "2/2", "--run-group", "nightly")
    file = kept_in(run_with_small_files(workspace, 300_000, *shard))
    asked = len(server.requests)
    refused = workspace.run("test", "--resume", "nightly")
    assert refused.returncode == 1
    assert f"kindlm history import {file}" in " ".join(refused.stderr.split())
    assert len(server.requests) == asked
    assert_imported(workspace, file)


def test_no_rescoring_is_resumed_before_its_events_are_imported(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_suite(workspace, server)
    workspace.run("test")
    file = kept_in(run_with_small_files(workspace, 200_000, "rescore"))
    refused = workspace.run("rescore", "--resume")
    assert refused.returncode == 1
    assert f"kindlm history import {file}" in " ".join(refused.stderr.split())
    assert_imported(workspace, file)
    assert workspace.run("rescore", "--resume").returncode == 0


def test_a_run_that_could_record_next_to_nothing_is_imported_as_a_whole(
    workspace: Workspace, server: LoopbackServer, small_disk: Path, tmp_path: Path
) -> None:
    write_suite(workspace, server, order=PADDING)
    where = ("--db", str(small_disk / "history.db"))
    done = workspace.run_apart("test", *where, TMPDIR=str(tmp_path))
    assert done.returncode == 1
    file = kept_in(done.stderr)
    assert events_of(file)[0]["type"] in ("run.started", "suite.started")
    make_room(small_disk)
    assert_imported(workspace, file, *where)


def test_what_nothing_takes_is_said_to_be_lost(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_suite(workspace, server, order=PADDING)
    stderr = run_with_small_files(workspace, 300_000)
    assert re.search(r"\d+ events.* that it lacks are lost", stderr)
    assert "itself failed" not in stderr
    assert not list(workspace.root.rglob("unwritten-*"))


def test_a_worker_keeps_no_file_beside_a_history_that_is_gone_with_it(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_suite(workspace, server)
    workspace.env["KINDLM_LEASE"] = "1.1"
    stderr = run_with_small_files(workspace, 300_000)
    assert "The history of this worker" in stderr
    assert "kindlm history import" not in stderr
    assert not list(workspace.root.rglob("unwritten-*"))


def test_a_disk_that_is_full_at_the_start_costs_nothing(
    workspace: Workspace, server: LoopbackServer, small_disk: Path
) -> None:
    workspace.suite(server.url)
    where = ("--db", str(small_disk / "history.db"))
    workspace.run_apart("test", *where)
    asked = len(server.requests)
    with suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4_096))
    full = workspace.run_apart("test", *where)
    assert full.returncode == 1
    assert "There is no space left on the disk of the history" in full.stderr
    assert "itself failed" not in full.stderr
    assert len(server.requests) == asked


def test_personal_data_is_hidden_in_what_is_kept_too(
    workspace: Workspace, server: LoopbackServer
) -> None:
    # Whatever is kept holds an answer, and each answer says what was asked.
    answer = {"name": "answer", "when": {}, "reply": {"text": f"delivered: {{{{user}}}} {PADDING}"}}
    server.use_script({"rules": [answer]})
    write_suite(workspace, server, order="ada.lovelace@example.com", record={"redactPii": True})
    text = kept_in(run_with_small_files(workspace, 400_000)).read_text("utf-8")
    assert "Where is order" in text
    assert "lovelace" not in text
