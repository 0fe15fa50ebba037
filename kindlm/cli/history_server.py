"""Which history server a command talks to, and by which settings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from kindlm.cli.console import fail, note, or_fail
from kindlm.cli.server_environ import server_environ
from kindlm.config import load_suite
from kindlm.config.interpolation import insert
from kindlm.errors import Result
from kindlm.recording.project import project_name, run_environment
from kindlm.suite import Suite, Upload
from kindlm.team.client import HistoryClient
from kindlm.team.credentials import NO_SERVER, Login, server_login

REDACTS = "Content that upload.redactPatterns match stayed here."


@contextmanager
def history_server(
    url: str | None, configured: str | None, root: Path, *, insecure: bool
) -> Iterator[HistoryClient]:
    """Yield the client of the server that is meant; end the command if there is none."""
    login = or_fail(find_server(url, configured, root, insecure=insecure))
    if login is None:
        fail([NO_SERVER])
    with closing(HistoryClient(login.address.base, login.token, wait=_wait)) as client:
        yield client


def _wait(pause_s: float) -> None:
    if pause_s > 1:
        note(f"The history server is not ready; the next try is in {pause_s:.0f} s.")
    time.sleep(pause_s)


def find_server(
    url: str | None, configured: str | None, root: Path, *, insecure: bool = False
) -> Result[Login | None]:
    """Return the server that is meant, with its token; `configured` may hold variables."""
    own = server_environ()
    if configured is not None:
        environ = run_environment([root], own)
        configured = insert(configured, lambda name: environ.get(name.removeprefix("env."), ""))
    return server_login(url, configured, own, insecure=insecure)


def configured_upload(root: Path) -> Upload | None:
    """Return `upload` of the project's kindlm.yaml; None without such a file."""
    suite = _suite_now(root / "kindlm.yaml", root)
    return None if suite is None else suite.upload


def upload_now(root: Path, path: str, project: str, name: str) -> Upload | None:
    """Return `upload` that a recorded suite has now; None if its file is gone or has another."""
    suite = _suite_now(root / path, root)
    if suite is None or (suite.project, suite.name) != (project, name):
        return None
    return suite.upload


def _suite_now(file: Path, root: Path) -> Suite | None:
    if not file.is_file():
        return None
    loaded = load_suite(file, root=root, project=partial(project_name, root))
    if loaded.suite is None:
        fail([each for each in loaded.diagnostics if each.severity == "error"])
    return loaded.suite
