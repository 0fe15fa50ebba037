"""Limits Python's garbage collection: none while modules and suites load, little in a run.

Python looks for garbage each time that 700 objects more have come. Modules, SDKs and suites are
half a million objects, and none of them ever is garbage.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def put_off() -> Iterator[None]:
    """Look for no garbage while the context lasts, and never in what is there when it ends."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # Else the next look, a moment later, would go through all of it.
        keep()
        gc.enable()


def keep() -> None:
    """Look for no garbage in what is there by now."""
    gc.freeze()


def expect_little() -> None:
    """Look for no garbage in what is there by now, and seldom in what comes.

    Of what a run makes, little is garbage that is to be looked for, and looking takes 5 % of its
    time.
    """
    keep()
    gc.set_threshold(5_000)
