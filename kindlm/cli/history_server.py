"""Finds the history server of a command, and pushes runs to it while they go on.

A failed push of `kindlm test --push` is only a warning: the run stays in the local history.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kindlm.cli.console import fail, note, or_fail, show
from kindlm.cli.history import open_tables
from kindlm.cli.options import TestOptions
from kindlm.cli.server_environ import server_environ
from kindlm.config import load_suite
from kindlm.config.diagnostics import Diagnostic
from kindlm.config.interpolation import insert
from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, KindlmError, Result
from kindlm.recording.project import project_name, run_environment
from kindlm.suite import Upload
from kindlm.team.client import HistoryClient
from kindlm.team.credentials import NO_SERVER, Login, server_login
from kindlm.team.protocol import NOT_TAKEN, Control
from kindlm.team.pushing import LivePush, Push, Pushed
from kindlm.team.withholding import common_url
from kindlm.wording import count

if TYPE_CHECKING:
    from kindlm.cli.run_recording import Beside
    from kindlm.engine.resources import Steering
    from kindlm.recording.request import RunRequest

_ANSWER_S = 10.0

REDACTS = "Content that upload.redactPatterns match stayed here."


@contextmanager
def history_server(
    url: str | None, configured: str | None, root: Path, *, insecure: bool
) -> Iterator[HistoryClient]:
    """Yield a client of the server for a command; end the command without a server."""
    login = or_fail(find_server(url, configured, root, insecure=insecure))
    with closing(HistoryClient(login.address.base, login.token, wait=_wait)) as client:
        yield client


def _wait(pause_s: float) -> None:
    if pause_s > 1:
        note(f"The history server is not ready; the next try is in {pause_s:.0f} s.")
    time.sleep(pause_s)


def find_server(
    url: str | None, configured: str | None, root: Path, *, insecure: bool = False
) -> Result[Login]:
    """Return the server for a command, with its token; `NO_SERVER` without one.

    `url` is that of the option, and `configured` that of a suite, which may hold variables.
    """
    own = server_environ()
    if configured is not None:
        environ = run_environment([root], own)
        configured = insert(configured, lambda name: environ.get(name.removeprefix("env."), ""))
    return server_login(url, configured, own, insecure=insecure)


def upload_now(
    root: Path, path: str = "kindlm.yaml", project: str | None = None, name: str | None = None
) -> Upload | None:
    """Return the current `upload` of the suite in a file; None if the file does not have it now.

    With a project and a name, the suite has these.
    """
    if not (root / path).is_file():
        return None
    loaded = load_suite(root / path, root=root, project=partial(project_name, root))
    if (suite := loaded.suite) is None:
        fail([each for each in loaded.diagnostics if each.severity == "error"])
    is_meant = name is None or (suite.project, suite.name) == (project, name)
    return suite.upload if is_meant else None


def live_push(request: RunRequest, run: str, options: TestOptions) -> Beside | None:
    """Return the context that pushes a run while it goes on; None, after a warning, without server.

    With `KINDLM_LEASE`, this process is a worker: it pushes to `KINDLM_URL`, not to the server of
    its suites. `KINDLM_MAX_RPM` is its share of `--max-rpm`, until the coordinator names another.
    """
    found, lease = _login(request), server_environ().get("KINDLM_LEASE")
    if isinstance(found, Err):
        if found.error is NO_SERVER or found.error.code is not ErrorCode.CLOUD_AUTH_ERROR:
            fail([found.error])
        _warn(found.error, run)
        return None
    login = found.value
    if lease is not None:
        return lambda steering: _as_worker(request, run, login, lease, steering)
    return lambda _: _as_guest(request, run, login, options)


def _login(request: RunRequest) -> Result[Login]:
    if "KINDLM_LEASE" in server_environ():
        return find_server(None, None, request.root)
    url = common_url(_uploads(request))
    return url if isinstance(url, Err) else find_server(None, url.value, request.root)


def push_group(request: RunRequest, group: str, options: TestOptions) -> None:
    """Push the shards of a group that has ended."""
    login = _login(request)
    if isinstance(login, Err):
        _warn(login.error, group)
        return
    with closing(_client(login.value)) as client, closing(open_tables(request.database)) as db:
        rows = db.execute("SELECT id FROM runs WHERE group_id = ? ORDER BY id", (group,))
        shards = [run for (run,) in rows.fetchall()]
        done = Push(client, db, options.texts, _uploads(request)).runs(shards)
        if isinstance(done, Err):
            _warn(done.error, group)
            return
        for run, error in done.value.failed.items():
            _warn(error, run)
        _tell(done.value, client, options)


@contextmanager
def _as_guest(request: RunRequest, run: str, login: Login, options: TestOptions) -> Iterator[None]:
    client = _client(login)
    also = _uploads(request)
    with LivePush(request.database, run, lambda db: Push(client, db, options.texts, also)) as push:
        yield
    if push.error is not None:
        _warn(push.error, run)
    else:
        _tell(push.pushed, client, options)


@contextmanager
def _as_worker(
    request: RunRequest, run: str, login: Login, lease: str, steering: Steering
) -> Iterator[None]:
    from kindlm.cli.run_recording import end_now

    def obey(control: Control) -> None:
        if control.max_rpm is not None:
            steering.set_max_rpm(control.max_rpm)
        if control.stop is not None:
            steering.stop(control.stop, at_once=control.at_once)

    def end(error: KindlmError) -> None:
        if error.details.get("status") == 409:
            end_now("another worker has taken over this shard")
        # The coordinator would not accept any further event.
        end_now(error.message, NOT_TAKEN)

    if (share := server_environ().get("KINDLM_MAX_RPM")) is not None:
        steering.set_max_rpm(float(share))
    client = _client(login, lease)
    with LivePush(
        request.database,
        run,
        lambda db: Push(client, db, texts=True, on_control=obey),
        every_s=1.0,
        on_refused=end,
    ) as push:
        yield
    if push.error is not None:
        show([push.error])


def _uploads(request: RunRequest) -> list[Upload]:
    """Return the current settings of the suites, which may differ from those a run began with."""
    return [suite.upload for suite in request.suites]


def _client(login: Login, lease: str | None = None) -> HistoryClient:
    return HistoryClient(
        login.address.base, login.token, lease=lease, patience_s=0, answer_s=_ANSWER_S
    )


def _tell(pushed: Pushed, client: HistoryClient, options: TestOptions) -> None:
    if options.warnings:
        note(f"{count(pushed.added, 'event')} pushed to {client.base}.")
        if pushed.withheld:
            note("Content stayed here: --push --texts sends it, too.")
        if pushed.redacts:
            note(REDACTS)


def _warn(error: KindlmError, run: str) -> None:
    again = f"kindlm push {shlex.quote(run)}"
    hint = f"The run stays here. To push it later: {again}"
    if error.code is ErrorCode.CLOUD_AUTH_ERROR:
        hint = f"{error.hint} {hint}"
    elif error.details.get("status") in (413, 422):  # the same push would fail again
        hint = error.hint or hint
    show([Diagnostic(replace(error, hint=hint), "warning", "upload")])
