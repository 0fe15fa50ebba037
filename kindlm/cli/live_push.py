"""`kindlm test --push`: the run is sent to a history server while it goes on.

Whatever goes wrong with that is one warning: it changes no exit code, and the run stays here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from rich.console import Console

from kindlm.cli.console import fail, note, or_fail, show
from kindlm.cli.history_server import find_server
from kindlm.cli.options import TestOptions
from kindlm.cli.run_recording import Beside, end_now
from kindlm.config import Diagnostic
from kindlm.engine.steering import Steering
from kindlm.errors import Err, ErrorCode, KindlmError
from kindlm.recording.request import RunRequest
from kindlm.team.client import HistoryClient
from kindlm.team.credentials import NO_SERVER, Login
from kindlm.team.protocol import Control
from kindlm.team.pushing import LivePush
from kindlm.team.upload_rules import combined
from kindlm.wording import count

_SILENT_S = 10.0


def live_push(
    request: RunRequest, run: str, options: TestOptions, console: Console
) -> Beside | None:
    """Return what pushes a run while it goes on; None if that is not possible, after a warning.

    With `KINDLM_LEASE`, this process is a worker: it pushes to `KINDLM_URL`, whatever suites say.
    """
    lease = os.environ.get("KINDLM_LEASE")
    configured = None
    if lease is None:
        configured = or_fail(combined(suite.upload for suite in request.suites)).url
    login = find_server(None, configured, request.root)
    if isinstance(login, Err):
        if login.error.code is not ErrorCode.CLOUD_AUTH_ERROR:
            fail([login.error])
        _warn(login.error, run, console)
        return None
    if login.value is None:
        fail([NO_SERVER])
    found = login.value
    if lease is not None:
        return lambda steering: _as_worker(request, run, found, lease, steering)
    return lambda _: _as_guest(request, run, found, options, console)


@contextmanager
def _as_guest(
    request: RunRequest, run: str, login: Login, options: TestOptions, console: Console
) -> Iterator[None]:
    with closing(_client(login)) as client:
        push = LivePush(client, request.database, run, texts=options.texts)
        with push:
            yield
    if push.error is not None:
        _warn(push.error, run, console)
    elif options.warnings:
        held = " Content stayed here: --texts sends it, too." if push.pushed.withheld else ""
        note(f"{count(push.pushed.added, 'event')} pushed to {client.base}.{held}", console)


@contextmanager
def _as_worker(
    request: RunRequest, run: str, login: Login, lease: str, steering: Steering
) -> Iterator[None]:
    def obey(control: Control) -> None:
        if control.max_rpm is not None:
            steering.set_max_rpm(control.max_rpm)
        if control.stop is not None:
            steering.stop(control.stop, at_once=control.at_once)

    def end(_error: KindlmError) -> None:
        end_now("another worker has taken over this shard")

    with (
        closing(_client(login, lease)) as client,
        LivePush(
            client,
            request.database,
            run,
            texts=True,
            every_s=1.0,
            on_control=obey,
            on_stale=end,
        ) as push,
    ):
        yield
    if push.error is not None:
        show([push.error])


def _client(login: Login, lease: str | None = None) -> HistoryClient:
    return HistoryClient(
        login.address.base, login.token, lease=lease, patience_s=0, silent_s=_SILENT_S
    )


def _warn(error: KindlmError, run: str, console: Console) -> None:
    hint = f"The run stays here. To push it later: kindlm push {run}"
    if error.code is ErrorCode.CLOUD_AUTH_ERROR:
        hint = f"{error.hint} {hint}"
    show([Diagnostic(replace(error, hint=hint), "warning", "upload", None)], console)
