"""The environment of a measurement: versions, processors, and the load of the machine."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("kindlm", "openai", "anthropic", "pydantic-evals")


def versions() -> dict[str, str]:
    """Return the versions of what is installed, and the kind of the machine."""
    found = {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found | {"system": f"{platform.system()} {platform.machine()}", "CPUs": str(_cpus())}


def load() -> float:
    """Return the load average over the last minute, 0 on an idle machine."""
    return os.getloadavg()[0]


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
