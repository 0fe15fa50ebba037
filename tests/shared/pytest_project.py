"""Runs pytest, as a user does, in a project with scenarios."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import loaded_kindlm
import pytest

from kindlm.recording import secrets

_PLUGINS = ("kindlm.pytest_plugin.plugin", "xdist.plugin")


@dataclass(frozen=True)
class Done:
    """How a session of pytest ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def run_inside(root: Path, *options: str) -> Done:
    """Run pytest with the plugin in this process, where all that it loads is loaded already."""
    named = [argument for plugin in _PLUGINS[:1] for argument in ("-p", plugin)]
    quiet = ["-p", "no:cacheprovider", "-p", "no:faulthandler", "--capture=sys"]
    # It collects garbage twice in each session, which takes as long as a short test.
    quiet += ["-p", "no:unraisableexception"]
    out, err = io.StringIO(), io.StringIO()
    with as_it_was(root), redirect_stdout(out), redirect_stderr(err):
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        os.environ.pop("PYTEST_ADDOPTS", None)
        code = pytest.main([*named, *quiet, f"--rootdir={root}", *options])
    return Done(int(code), out.getvalue(), err.getvalue())


@contextmanager
def as_it_was(root: Path) -> Iterator[None]:
    """Forget the modules of a project, its folders, variables and secrets, once it has run."""
    environ, path, modules = dict(os.environ), list(sys.path), set(sys.modules)
    known = set(secrets._REMEMBERED)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environ)
        sys.path[:] = path
        secrets._REMEMBERED.intersection_update(known)
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            is_its_own = file is not None and Path(file).is_relative_to(root)
            if is_its_own or name.partition(".")[0].startswith(("test", "conftest")):
                del sys.modules[name]


def run_pytest(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin and with pytest-xdist in a process of its own."""
    named = _named(_PLUGINS, options)
    return loaded_kindlm.run(
        named, cwd=root, env=pytest_environment(), timeout_s=120, module="pytest"
    )


def start_pytest(root: Path, *options: str) -> loaded_kindlm.Started:
    """Start what `run_pytest` runs."""
    named = _named(_PLUGINS, options)
    return loaded_kindlm.start(named, cwd=root, env=pytest_environment(), module="pytest")


def run_new_pytest(
    root: Path, *options: str, plugins: Sequence[str] = _PLUGINS
) -> subprocess.CompletedProcess[str]:
    """Run pytest in a process that has loaded nothing yet."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *_named(plugins, options)],
        cwd=root,
        env=pytest_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _named(plugins: Sequence[str], options: Sequence[str]) -> list[str]:
    named = [argument for plugin in plugins for argument in ("-p", plugin)]
    return ["-p", "no:cacheprovider", *named, *options]


def pytest_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
