"""What the chaos tests share: how long they go on, and the dice."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_disk import mounted


@pytest.fixture
def rounds() -> int:
    """How many times as long as usual: the environment variable KINDLM_CHAOS."""
    return int(os.environ.get("KINDLM_CHAOS", "1"))


@pytest.fixture
def dice() -> random.Random:
    """Chance, seeded by KINDLM_CHAOS_SEED; the seed of a test that failed is printed."""
    seed = int(os.environ.get("KINDLM_CHAOS_SEED") or random.randrange(2**32))
    sys.stdout.write(f"KINDLM_CHAOS_SEED={seed}\n")
    return random.Random(seed)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    with mounted(tmp_path / "small", "1m") as folder:
        yield folder
