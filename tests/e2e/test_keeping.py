"""Moving and erasing, with processes that are killed in the midst of it, and beside one another."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import loaded_kindlm
import pytest
from inside import run_inside
from loaded_kindlm import Started
from recorded_history import History, Make

MOMENTS_S = (0.0, 0.01, 0.2)
"""After which something is killed: at once, and for machines of any speed in the midst."""

_ENVIRON = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}


def start(folder: Path, *arguments: str | Path) -> Started:
    return loaded_kindlm.start([*map(str, arguments)], cwd=folder, env=_ENVIRON)


def done(folder: Path, *arguments: str | Path) -> str:
    """Run a command that must go well; return what it told."""
    finished = run_inside([*map(str, arguments)], cwd=folder, env=_ENVIRON)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout + finished.stderr


def assert_sound_so_far(folder: Path, database: Path) -> None:
    """A history whose creation was cut off holds nothing yet; any other one is as recorded."""
    finished = run_inside(["verify", "--db", str(database)], cwd=folder, env=_ENVIRON)
    nothing_yet = finished.returncode == 1 and "No runs are recorded yet" in finished.stderr
    assert nothing_yet or finished.returncode == 0, finished.stdout + finished.stderr
    assert nothing_yet or "all as recorded" in finished.stdout


def kill_in_the_midst(database: Path, seconds: float, *arguments: str | Path) -> bool:
    """Kill a process so long after it began to write; return whether it was still at it."""
    before = last_written(database)
    process = start(database.parent, *arguments, "--db", database)
    while process.poll() is None and last_written(database) in (before, None):
        time.sleep(0.001)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=seconds)
    process.kill()
    process.communicate(timeout=60)
    return process.returncode == -signal.SIGKILL and last_written(database) not in (before, None)


def kill_again_and_again(folder: Path, *arguments: str | Path) -> Path:
    """Kill a command that fills a new history at each of the moments; return that history.

    One that ends before it is killed has filled its history, which takes nothing any more: another
    history is tried then.
    """
    for number in range(20):
        target = folder / f"target{number}.db"
        hits = 0
        for moment in MOMENTS_S:
            hits += kill_in_the_midst(target, moment, *arguments)
            assert_sound_so_far(folder, target)
        if hits:
            return target
    raise AssertionError("it ended before each kill")


def last_written(database: Path) -> int | None:
    """When a process last wrote into a database, while what it wrote stands beside it.

    It is gone when the last process that has the database open closes it.
    """
    with suppress(FileNotFoundError):
        found = Path(f"{database}-wal").stat()
        return found.st_mtime_ns if found.st_size else None
    return None


def facts(path: Path) -> Any:
    queries = [
        "SELECT id, stream, version, hash FROM event_log",
        "SELECT ref, body FROM contents",
        "SELECT * FROM executions",
        "SELECT * FROM assertions",
    ]
    with closing(sqlite3.connect(path)) as db:
        return [sorted(db.execute(query).fetchall(), key=repr) for query in queries]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of four runs of fifty executions each; every text names its run."""
    history = History(tmp_path_factory.mktemp("large") / "large.db")
    for number in range(4):
        run = f"run{number}xyz"
        writer = history.run(run)
        writer.suite(tests=[Make.planned(repeat=50)])
        for repeat in range(1, 51):
            writer.execution(
                repeat=repeat,
                user=f"{run} asks {repeat}",
                output=f"{run} answers {repeat}",
                assertions=(Make.failed(),),
            )
        writer.finish()
    history.close()
    return history.path


@pytest.fixture
def large(recorded: Path, tmp_path: Path) -> Path:
    """A copy of that history, to merge, erase and break."""
    return Path(shutil.copy(recorded, tmp_path))


def test_a_merge_that_is_killed_is_finished_by_the_next_one(large: Path, tmp_path: Path) -> None:
    target = kill_again_and_again(tmp_path, "merge", large)
    done(tmp_path, "merge", large, "--db", target)
    assert facts(target) == facts(large)
    done(tmp_path, "rebuild", "--db", target)
    assert facts(target) == facts(large)


def test_an_import_that_is_killed_leaves_all_or_nothing(large: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    done(tmp_path, "export", "run1", "-o", file, "--db", large)
    target = kill_again_and_again(tmp_path, "import", file)
    done(tmp_path, "import", file, "--db", target)
    assert "0 events imported" in done(tmp_path, "import", file, "--db", target)


def test_a_purge_that_is_killed_is_finished_by_the_next_one(recorded: Path, tmp_path: Path) -> None:
    purge = ("purge", "--matching", "run[0-1]xyz", "--yes")
    # A purge that was not hit has nothing left to erase: each moment has a history of its own, in a
    # file of its own, since a killed purge leaves a WAL.
    for moment in (0.0, 0.01):
        copy = shutil.copy(recorded, tmp_path / f"after-{moment}.db")
        kill_in_the_midst(copy, moment, *purge)
        assert "all as recorded" in done(tmp_path, "verify", "--db", copy)
    large = shutil.copy(recorded, tmp_path / "large.db")
    # While somebody reads, a purge that has erased waits to empty the WAL.
    with closing(sqlite3.connect(large, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM event_log").fetchone()
        assert kill_in_the_midst(large, 0.0, *purge)
    assert "all as recorded" in done(tmp_path, "verify", "--db", large)
    done(tmp_path, *purge, "--db", large)
    done(tmp_path, "backup", tmp_path / "copy.db", "--db", large)
    for file in (large, tmp_path / "copy.db", *tmp_path.glob("large.db-*")):
        content = file.read_bytes()
        assert b"run1xyz answers" not in content
        assert b"run1xyz asks" not in content
    assert b"run3xyz answers" in large.read_bytes()
    assert "[erased]" in done(tmp_path, "show", "run1", "1", "--db", large)


def test_merges_purges_and_backups_side_by_side(large: Path, tmp_path: Path) -> None:
    target = tmp_path / "merged.db"
    done(tmp_path, "merge", large, "--db", target)
    running = [
        start(tmp_path, "merge", large, "--db", target),
        start(tmp_path, "purge", "--run", "run1", "--yes", "--db", target),
        start(tmp_path, "purge", "--run", "run2", "--yes", "--db", target),
        start(tmp_path, "backup", tmp_path / "copy.db", "--db", target),
        start(tmp_path, "rebuild", "--db", target),
    ]
    told = [process.communicate(timeout=240)[1] for process in running]
    assert [process.returncode for process in running] == [0] * 5, told
    for file in (target, tmp_path / "copy.db"):
        assert "all as recorded" in done(tmp_path, "verify", "--db", file)
    before = facts(target)
    done(tmp_path, "rebuild", "--db", target)
    assert facts(target) == before
    assert before[1] != facts(large)[1]
