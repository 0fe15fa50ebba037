"""`kindlm serve-history`: its pages, behind a proxy or without one."""

from __future__ import annotations

import os
import signal
from typing import Any

import httpx
import loaded_kindlm
import pytest


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--keep", "long"), "--keep 'long' is not an age or a date."),
        (("--keep", "9999-01-01"), "--keep '9999-01-01' is in the future."),
        (("--keep", "6m"), "--keep 180d for 6 months"),
        (("--keep", "0d"), "To keep all: no --keep"),
        (("--trust-header", "X User"), "'X User' is not a header."),
        (("--host", "0.0.0.0", "--port", "0"), "kindlm token create"),
    ],
)
def test_what_cannot_be_meant_is_refused(kindlm: Any, options: Any, says: str) -> None:
    outcome = kindlm("serve-history", *options)
    assert outcome.code == 1
    assert says in outcome.err


def test_pages_are_for_people_that_the_proxy_names(
    history: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as long_ago:
        long_ago.setattr("kindlm_store.new_event._Clock._time_ns", lambda _: 10**18)  # in 2001
        writer = history.run("aaaa2222")
        writer.suite(tests=[make.planned()])
        writer.execution(assertions=(make.passed(),))
        writer.finish()
    options = ("--port", "0", "--trust-header", "X-Person", "--keep", "2w")
    command = ("serve-history", "--db", str(history.path), *options)
    server = loaded_kindlm.start(command, cwd=history.path.parent, env=os.environ)
    try:
        url = server.stdout.readline().strip()
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"X-Person": "ann"}).status_code == 200
    finally:
        server.send_signal(signal.SIGINT)
        _, said = server.communicate(timeout=30)
    assert server.returncode == 0
    assert "Retention erased" in said
    assert "of 1 run from before 20" in said
