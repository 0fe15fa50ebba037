"""Moving and erasing, with processes that are killed in the midst of it, and beside one another."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import loaded_kindlm
import pytest
from recorded_history import History

_ENVIRON = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}


def start(folder: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kindlm", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=_ENVIRON,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def done(folder: Path, *arguments: str | Path) -> str:
    """Run a command that must go well; return what it told."""
    finished = loaded_kindlm.run([*map(str, arguments)], cwd=folder, env=_ENVIRON, timeout_s=120.0)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout + finished.stderr


def kill_in_the_midst(folder: Path, seconds: float, *arguments: str | Path) -> None:
    process = start(folder, *arguments)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)


def facts(path: Path) -> Any:
    queries = [
        "SELECT id, stream, version, hash FROM event_log",
        "SELECT ref, body FROM contents",
        "SELECT * FROM executions",
        "SELECT * FROM assertions",
        "SELECT * FROM seals",
    ]
    with closing(sqlite3.connect(path)) as db:
        return [sorted(db.execute(query).fetchall(), key=repr) for query in queries]


@pytest.fixture
def large(tmp_path: Path, make: Any) -> Path:
    """A history of ten runs of a hundred executions each; every text names its run."""
    history = History(tmp_path / "large.db")
    for number in range(10):
        run = f"run{number}xyz"
        writer = history.run(run)
        writer.suite(tests=[make.planned(repeat=100)])
        for repeat in range(1, 101):
            writer.execution(
                repeat=repeat,
                user=f"{run} asks {repeat}",
                output=f"{run} answers {repeat}",
                assertions=(make.failed(),),
            )
        writer.finish()
    history.close()
    return tmp_path / "large.db"


def test_a_merge_that_is_killed_is_finished_by_the_next_one(large: Path, tmp_path: Path) -> None:
    target = tmp_path / "merged.db"
    dice = random.Random(7)
    for _ in range(6):
        kill_in_the_midst(tmp_path, dice.uniform(0.3, 1.5), "merge", large, "--db", target)
        if target.exists():
            assert "all as recorded" in done(tmp_path, "verify", "--db", target)
    done(tmp_path, "merge", large, "--db", target)
    assert facts(target) == facts(large)
    done(tmp_path, "rebuild", "--db", target)
    assert facts(target) == facts(large)


def test_an_import_that_is_killed_leaves_all_or_nothing(large: Path, tmp_path: Path) -> None:
    target, file = tmp_path / "imported.db", tmp_path / "run.jsonl"
    done(tmp_path, "export", "run3", "-o", file, "--db", large)
    dice = random.Random(8)
    for _ in range(4):
        kill_in_the_midst(tmp_path, dice.uniform(0.3, 1.5), "import", file, "--db", target)
        if target.exists():
            told = done(tmp_path, "verify", "--db", target)
            assert "0 events" in told or "all as recorded" in told
    done(tmp_path, "import", file, "--db", target)
    assert "0 events imported" in done(tmp_path, "import", file, "--db", target)


def test_a_purge_that_is_killed_is_finished_by_the_next_one(large: Path, tmp_path: Path) -> None:
    dice = random.Random(9)
    purge = ("purge", "--matching", "run[0-4]xyz", "--yes", "--db", large)
    for _ in range(4):
        kill_in_the_midst(tmp_path, dice.uniform(0.3, 1.5), *purge)
        assert "all as recorded" in done(tmp_path, "verify", "--db", large)
    done(tmp_path, *purge)
    done(tmp_path, "backup", tmp_path / "copy.db", "--db", large)
    for file in (large, tmp_path / "copy.db", *tmp_path.glob("large.db-*")):
        content = file.read_bytes()
        assert b"run3xyz answers" not in content
        assert b"run3xyz asks" not in content
    assert b"run7xyz answers" in large.read_bytes()
    assert "[erased]" in done(tmp_path, "show", "run3", "1", "--db", large)


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
