"""Runs pytest, as a user does, in a project with scenarios."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_PLUGINS = ("kindlm.pytest_plugin.plugin", "xdist.plugin")


def run_pytest(
    root: Path, *options: str, plugins: Sequence[str] = _PLUGINS
) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin, whether or not it is installed, and with pytest-xdist."""
    return subprocess.run(
        pytest_command(*options, plugins=plugins),
        cwd=root,
        env=pytest_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def pytest_command(*options: str, plugins: Sequence[str] = _PLUGINS) -> list[str]:
    named = [argument for plugin in plugins for argument in ("-p", plugin)]
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *named, *options]


def pytest_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
