"""A run that goes on is pushed as far as it is, and a worker obeys its coordinator."""

from __future__ import annotations

import json
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from history_server import Served
from recorded_history import History

from kindlm.errors import Err, KindlmError, Ok
from kindlm.projections import PROJECTIONS
from kindlm.suite import Upload
from kindlm.team import history_api, pushing
from kindlm.team.client import HistoryClient
from kindlm.team.history_api import HistoryApi
from kindlm.team.protocol import TOKEN_PREFIX, Control
from kindlm.team.pushing import LivePush, Push
from kindlm.team.team_server import RunningServer
from kindlm.team.token_store import TokenStore
from kindlm.team.withholding import common_url
from kindlm_store import EventLog

TOKEN = TOKEN_PREFIX + "t" * 43

SENDS_ALL = json.dumps(
    {
        "config": {
            "upload": {
                "enabled": True,
                "apiUrl": None,
                "includeArtifacts": True,
                "redactPatterns": [],
            }
        }
    }
)


class Coordinator:
    """Hands out one shard; `newest` is the number of its lease."""

    newest = 1

    def hear(self, lease: str) -> bool:
        return lease == f"3.{self.newest}"

    def pushed(self, lease: str, runs: Any) -> Control:
        return Control(max_rpm=30.0)

    def claim(self, shard: int) -> dict[str, Any]:
        return {}


def live(
    client: HistoryClient,
    path: Path,
    run: str,
    *,
    texts: bool,
    also: Sequence[Upload] = (),
    on_control: Callable[[Control], None] | None = None,
    **more: Any,
) -> LivePush:
    """Push a run while it goes on."""
    return LivePush(
        path, run, lambda db: Push(client, db, texts, also, on_control=on_control), **more
    )


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[tuple[Coordinator, EventLog, HistoryClient]]:
    hooks = Coordinator()
    with (
        EventLog.open(tmp_path / "all.db", projections=PROJECTIONS) as log,
        closing(TokenStore(None)) as tokens,
        closing(HistoryApi(log, tokens, fleet=hooks)) as api,
        RunningServer(api) as server,
    ):
        created = tokens.create("worker", ["push", "pull"])
        assert isinstance(created, Ok)
        yield hooks, log, HistoryClient(server.url, created.value, lease="3.1", patience_s=0)


def test_a_worker_is_heard_of_and_obeys(
    coordinator: tuple[Coordinator, EventLog, HistoryClient], home: History
) -> None:
    hooks, log, client = coordinator
    controls: Queue[Control] = Queue()
    stale: Queue[KindlmError] = Queue()
    with live(
        client, home.log.path, "aaaa2222", texts=True, every_s=0.01,
        on_control=controls.put, on_refused=stale.put,
    ) as push:  # fmt: skip
        # One of the push, and of what is said while nothing happens.
        assert [controls.get(timeout=20).max_rpm for _ in range(3)] == [30.0] * 3
        hooks.newest = 2
        assert "409" in stale.get(timeout=20).message
    assert push.error is not None
    with closing(log.reader()) as db:
        assert db.execute("SELECT count(*) FROM contents WHERE body IS NULL").fetchone()[0] == 0


def test_what_has_not_arrived_is_sent_in_the_end(served: Served, home: History) -> None:
    token = served.token()
    client = HistoryClient(served.url, token, patience_s=0)
    with live(client, home.log.path, "aaaa2222", texts=False, every_s=600) as push:
        pass
    assert push.error is None
    assert push.pushed.added == len(list(served.log.read())) == len(list(home.log.read()))
    assert push.pushed.withheld


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_run_of_which_nothing_is_recorded_is_not_pushed(served: Served, home: History) -> None:
    client = HistoryClient(served.url, served.token(), patience_s=0)
    with live(client, home.log.path, "bbbb3333", texts=False) as push:
        pass
    assert push.error is not None
    assert "nothing of it was recorded" in push.error.message


@pytest.mark.parametrize("sends_now", [True, False])
def test_a_resumed_run_sends_content_only_if_its_suites_still_do(
    served: Served, home: History, make: Any, sends_now: bool
) -> None:
    """Who began it may have had other settings, which are no part of the hash of a suite."""
    run = home.run("bbbb3333")
    run.suite(tests=[make.planned()], config=SENDS_ALL)
    run.execution(output="a pelican")
    run.leave()
    client = HistoryClient(served.url, served.token(), patience_s=0)
    also = [Upload(include_texts=sends_now)]
    with live(client, home.log.path, "bbbb3333", texts=False, also=also) as push:
        pass
    assert push.error is None
    assert push.pushed.withheld is not sends_now
    with closing(served.log.reader()) as db:
        found = db.execute("SELECT 1 FROM contents WHERE body = 'a pelican'").fetchone()
    assert (found is not None) is sends_now


def test_a_token_that_is_not_accepted_ends_it(served: Served, home: History) -> None:
    client = HistoryClient(served.url, TOKEN, patience_s=0)
    with live(client, home.log.path, "aaaa2222", texts=False) as push:
        pass
    assert push.error is not None
    assert push.error.details["status"] == 401


@pytest.mark.parametrize("listens", [False, True])
def test_ctrl_c_gives_up_without_a_traceback(home: History, listens: bool) -> None:
    main = threading.main_thread().ident
    assert main is not None
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    ctrl_c = threading.Timer(0.3, signal.pthread_kill, [main, signal.SIGUSR1])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        if not listens:
            silent.close()
        try:
            client = HistoryClient(url, TOKEN, patience_s=0, answer_s=2)
            with live(client, home.log.path, "aaaa2222", texts=False) as push:
                ctrl_c.start()
        finally:
            ctrl_c.join()
            signal.signal(signal.SIGUSR1, before)
        assert push.error is not None
        assert "it was interrupted" in push.error.message
        # Whatever its thread raises fails the test.
        for thread in threading.enumerate():
            if thread.name == "kindlm-push":
                thread.join(20)
                assert not thread.is_alive()


def test_several_suites_are_sent_to_one_server() -> None:
    one, other = Upload(url="https://a"), Upload(url="https://b")
    assert common_url([Upload(), one, one]) == Ok("https://a")
    assert common_url([Upload()]) == Ok(None)
    apart = common_url([one, other])
    assert isinstance(apart, Err)
    assert "https://a and https://b" in apart.error.message


def test_a_worker_leaves_out_nothing_however_large(
    coordinator: tuple[Coordinator, EventLog, HistoryClient], home: History, make: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # Small limits of what others push, in place of a large text.
    for module in (pushing, history_api):
        monkeypatch.setattr(module, "LONGEST_BODY", 3_000)
    large = home.run("bbbb3333")
    large.suite(tests=[make.planned()])
    large.execution(output=random.Random(1).randbytes(20_000).hex())
    large.finish()
    _, log, client = coordinator
    with live(client, home.log.path, "bbbb3333", texts=True, on_control=lambda _: None) as push:
        pass
    assert push.error is None
    with closing(log.reader()) as db:
        lengths = "SELECT max(length(body)), sum(body IS NULL) FROM contents"
        longest, missing = db.execute(lengths).fetchone()
    assert longest > 40_000
    assert missing == 0


def test_a_worker_whose_events_are_not_taken_hears_of_it(
    coordinator: tuple[Coordinator, EventLog, HistoryClient], home: History, make: Any
) -> None:
    odd = home.run("bbbb3333")
    odd.suite(tests=[make.planned()])
    odd.execution(cost_usd=1e15)
    odd.finish()
    refused: Queue[KindlmError] = Queue()
    with live(
        coordinator[2], home.log.path, "bbbb3333", texts=True,
        on_control=lambda _: None, on_refused=refused.put,
    ):  # fmt: skip
        pass
    assert "the number is too large" in refused.get_nowait().message
