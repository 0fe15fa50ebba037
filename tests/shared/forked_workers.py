"""Workers of a coordinator in the process of the tests that are forks: none has to load kindlm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import loaded_kindlm
import pytest

from kindlm.fleet import shard_job
from kindlm.keeper import PARENT


def fork_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork what runs a shard; it does not end with the coordinator, which a fork cannot know."""
    monkeypatch.setattr(shard_job, "_test", _test)


def _test(
    arguments: Sequence[str], environ: dict[str, str], folder: str, started: Any
) -> shard_job.ShardEnd:
    process = loaded_kindlm.start(
        ["test", *(argument for argument in arguments if argument != "--die-with-parent")],
        cwd=Path(folder),
        env={name: value for name, value in environ.items() if name != PARENT},
        stdout=DEVNULL,
        own_session=True,
    )
    try:
        started(process)
        _, said = process.communicate()
    finally:
        process.kill()
    return shard_job.ShardEnd(process.wait(), said.strip())
