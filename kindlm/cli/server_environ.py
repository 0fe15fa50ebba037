"""The variables about the history server, its token, and the shard of a worker.

They are not in the environment while tests run. So agents and user code do not get the token, and a
kindlm that they start does not become a worker of this run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kindlm.suite import Suite

SUITES = "KINDLM_SUITES"
"""The `suites_hash` of the run that a worker is part of."""

_NAMES = ("KINDLM_URL", "KINDLM_TOKEN", "KINDLM_LEASE", "KINDLM_MAX_RPM", SUITES)

_taken: dict[str, str] = {}


@contextmanager
def kept_from_tests() -> Iterator[None]:
    """Remove these variables from the environment while the context lasts."""
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
    """Return a hash of suites, by which a worker checks that it loaded those of the run."""
    return hashlib.sha256(
        " ".join(sorted(suite.config_hash for suite in suites)).encode()
    ).hexdigest()
