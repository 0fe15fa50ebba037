"""The variables that are for kindlm alone: which history server it pushes to, and as what.

While tests run, they are not in the environment, so that agents, served programs and Python code of
a user do not have the token, and a kindlm that one of them starts is no worker of this run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NAMES = ("KINDLM_URL", "KINDLM_TOKEN", "KINDLM_LEASE")

_taken: dict[str, str] = {}


@contextmanager
def kept_from_tests() -> Iterator[None]:
    """Keep these variables out of the environment as long as the context lasts."""
    _taken.update({name: os.environ.pop(name) for name in _NAMES if name in os.environ})
    try:
        yield
    finally:
        os.environ.update(_taken)
        _taken.clear()


def server_environ() -> dict[str, str]:
    """Return the environment with these variables."""
    return {**os.environ, **_taken}
