"""When no garbage is looked for: while things are loaded that stay until the end.

Python looks for garbage each time that so many objects more have come. Modules, SDKs and suites are
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
