"""Locks of streams: exclusive, readable, and gone with the process that held them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kindlm_store import LockHeldError, OpenError, holder, is_held, stream_lock

HOLD = """
import sys, time
from kindlm_store import stream_lock
with stream_lock(sys.argv[1], "run/1"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_exclusive_and_names_its_holder(path: Path) -> None:
    with stream_lock(path, "run/1"):
        assert is_held(path, "run/1")
        assert not is_held(path, "run/2")
        assert holder(path, "run/1").startswith(f"process {os.getpid()} on ")
        with pytest.raises(LockHeldError, match=f"run/1 is locked by process {os.getpid()}"):
            stream_lock(path, "run/1").__enter__()
        with stream_lock(path, "run/2"):
            pass
    assert not is_held(path, "run/1")
    with stream_lock(path, "run/1"):
        pass


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_lock_ends_with_its_process(path: Path, how: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(LockHeldError) as error:
        stream_lock(path, "run/1").__enter__()
    assert error.value.by.startswith(f"process {process.pid} on ")
    process.send_signal(how)
    process.communicate()
    assert not is_held(path, "run/1")
    with stream_lock(path, "run/1"):
        pass


def test_a_lock_whose_note_cannot_be_written_is_given_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OpenError, match="No space left"):
            stream_lock(path, "run/1").__enter__()
    assert not is_held(path, "run/1")
    with stream_lock(path, "run/1"):
        assert is_held(path, "run/1")


def test_asking_does_not_take_the_lock_away_from_anyone(path: Path) -> None:
    def ask(_: int) -> None:
        for _ in range(100):
            is_held(path, "run/1")

    with ThreadPoolExecutor(2) as threads:
        asking = threads.map(ask, range(2))
        for _ in range(100):
            with stream_lock(path, "run/1"):
                assert is_held(path, "run/1")
        list(asking)


def test_only_one_of_many_holds_a_lock_at_a_time(path: Path) -> None:
    inside = []

    def hold(number: int) -> int:
        taken = 0
        for _ in range(40):
            try:
                with stream_lock(path, "run/1"):
                    inside.append(number)
                    assert inside == [number]
                    inside.remove(number)
                    taken += 1
            except LockHeldError:
                continue
        return taken

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(hold, range(4))) > 0


def test_names_of_streams_cannot_leave_the_folder(path: Path) -> None:
    with stream_lock(path, "../../etc/passwd"), stream_lock(path, "x" * 1_000):
        assert {file.name for file in path.parent.iterdir()} == {"log.db.locks"}


def test_a_lock_of_another_user_may_be_held(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert is_held(path, "run/1")


def test_a_file_in_place_of_the_folder_is_said_to_be_in_the_way(path: Path) -> None:
    path.with_name("log.db.locks").touch()
    assert not is_held(path, "run/1")
    with pytest.raises(OpenError, match=r"cannot be locked \(log.db.locks: File exists\)"):
        stream_lock(path, "run/1").__enter__()
