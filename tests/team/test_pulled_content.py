"""What a server could get of this history by runs that are pulled from it: nothing."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from history_server import Served, history_server
from recorded_history import History, Make

from kindlm.errors import Ok
from kindlm.events.codec import new_event
from kindlm.events.run import ScenarioGenerated, StreamsPulled
from kindlm.team import pulling
from kindlm.team.client import HistoryClient
from kindlm.team.pulling import pull_run
from kindlm.team.pushing import Push, Pushed
from kindlm_store import append

SENDS_ALL = json.dumps(
    {
        "config": {
            "upload": {
                "enabled": True,
                "apiUrl": None,
                "includeArtifacts": True,
                # The server itself does not have the text that it wants.
                "redactPatterns": ["^bait$"],
            }
        }
    }
)


def push(history: History, to: Served, token: str, *, texts: bool = False) -> Pushed:
    with closing(HistoryClient(to.url, token)) as client, closing(history.log.reader()) as db:
        pushed = Push(client, db, texts).runs(None)
    assert isinstance(pushed, Ok)
    assert not pushed.value.failed
    return pushed.value


def texts_of(served: Served) -> set[str]:
    with closing(served.log.reader()) as db:
        return {body for (body,) in db.execute("SELECT body FROM contents") if body is not None}


def crafted(path: Path, ref: str, monkeypatch: pytest.MonkeyPatch) -> History:
    """A history whose one run refers to a text that is not in it."""
    evil = History(path)
    evil.journal = "journal/evil"
    usual = append.ref_of

    def ref_of(salt: bytes, body: bytes) -> str:
        return ref if body == b"bait" else usual(salt, body)

    with monkeypatch.context() as patched:
        patched.setattr(append, "ref_of", ref_of)
        run = evil.run("evil2222")
        run.suite(tests=[Make.planned()], config=SENDS_ALL)
        run.execution(output="bait")
        run.leave()
    return evil


def test_a_pulled_run_sends_no_content_of_others_whatever_its_settings_say(
    tmp_path: Path, home: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = home.run("bbbb2222")
    secret.suite(tests=[Make.planned()])
    secret.execution(output="a pelican")
    secret.finish()
    with history_server(tmp_path / "team.db") as served:
        token = served.token()
        push(home, served, token)
        assert not texts_of(served)
        with closing(home.log.reader()) as db:
            (ref,) = db.execute("SELECT ref FROM contents WHERE body = 'a pelican'").fetchone()
        with closing(crafted(tmp_path / "evil.db", ref, monkeypatch)) as evil:
            push(evil, served, token)
        with closing(HistoryClient(served.url, token)) as client:
            assert isinstance(pull_run(client, home.log.path, "evil2222"), Ok)
    # What is recorded of it here, as when it is resumed, is sent by its settings.
    ours = ScenarioGenerated(file="f", category="c", title="recorded here", sha256="0")
    home.log.append("run/evil2222", [new_event(ours)])
    # The server says that it does not have the run.
    with history_server(tmp_path / "again.db") as served:
        assert push(home, served, served.token()).withheld
        assert texts_of(served) == {"recorded here"}
        assert all(event.type != StreamsPulled.type for event in served.log.read())


def test_a_pull_takes_nothing_unless_it_can_note_where_that_came_from(
    tmp_path: Path, home: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> str:
        message = "the disk is full"
        raise OSError(message)

    with (
        history_server(tmp_path / "team.db") as served,
        closing(History(tmp_path / "here.db")) as here,
    ):
        token = served.token()
        push(home, served, token)
        monkeypatch.setattr(pulling, "new_journal", full)
        with (
            closing(HistoryClient(served.url, token)) as client,
            pytest.raises(OSError, match="the disk is full"),
        ):
            pull_run(client, here.log.path, "aaaa2222")
        assert not list(here.log.read())


def test_a_pulled_run_is_sent_whole_if_that_is_asked_for(tmp_path: Path, home: History) -> None:
    with (
        history_server(tmp_path / "team.db") as served,
        closing(History(tmp_path / "away.db", "journal/away")) as away,
    ):
        run = away.run("bbbb2222")
        run.suite(tests=[Make.planned()])
        run.execution(output="a pelican")
        run.finish()
        token = served.token()
        push(away, served, token, texts=True)
        with closing(HistoryClient(served.url, token)) as client:
            assert isinstance(pull_run(client, home.log.path, "bbbb2222"), Ok)
    with history_server(tmp_path / "again.db") as served:
        assert not push(home, served, served.token(), texts=True).withheld
        assert "a pelican" in texts_of(served)
