"""The variables for kindlm alone: the history server, its token, and the shard of a worker.

While tests run, they are not in the environment. So agents, served programs and a user's Python
code do not get the token, and a kindlm that one of them starts does not act as a worker of this
run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kindlm.suite import Suite

SUITES = "KINDLM_SUITES"
"""The `suites_hash` of the run that a worker is part of."""

_NAMES = ("KINDLM_URL", "KINDLM_TOKEN", "KINDLM_LEASE", SUITES)

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


def suites_hash(suites: Iterable[Suite]) -> str:
    """Return the same for the same suites: all workers of a run have to load what it began with."""
    return hashlib.sha256(
        " ".join(sorted(suite.config_hash for suite in suites)).encode()
    ).hexdigest()
