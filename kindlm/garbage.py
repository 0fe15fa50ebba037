"""Limits Python's garbage collection: none while modules and suites load, little in a run.

By default, Python collects after each 700 new objects. Modules, SDKs and suites are half a million
objects that never become garbage.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def put_off() -> Iterator[None]:
    """Disable collection in this context, and exclude all objects that exist at its end."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # Otherwise, the next collection would go through all of them.
        keep()
        gc.enable()


def keep() -> None:
    """Exclude all existing objects from collection."""
    gc.freeze()


def expect_little() -> None:
    """Exclude all existing objects, and collect seldom: it takes 5 % of a run's time."""
    keep()
    gc.set_threshold(5_000)
