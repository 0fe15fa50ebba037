"""Content of old runs is erased from a served history; their events stay."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from kindlm.cli.commands.serve_history import erase_older, retention
from kindlm.events.codec import new_event
from kindlm.events.run import ReviewRecorded
from kindlm_store import stream_lock
from kindlm_store.verification import verify_file

RUNS = ("aaaa2222", "bbbb3333")


@pytest.fixture
def since(history: Any, make: Any) -> str:
    """Record two runs; return when the second began."""
    for run in RUNS:
        writer = history.run(run)
        writer.suite(tests=[make.planned()])
        writer.execution(user=f"I am {run}.", assertions=(make.passed(),))
        writer.finish()
    (found,) = history.reader().execute("SELECT started_at FROM runs WHERE id = 'bbbb3333'")
    return str(found[0])


def kept(history: Any) -> list[str]:
    """Return the runs whose content is there."""
    with closing(history.log.reader()) as reader:
        text = "\n".join(row[0] or "" for row in reader.execute("SELECT body FROM contents"))
    return [run for run in RUNS if f"I am {run}." in text]


def purges(history: Any) -> list[Any]:
    found = history.log.read(types=["contents.purged"])
    return [(event.data["runs"], event.data["by"]) for event in found]


def test_old_content_goes_and_the_rest_stays(
    history: Any, since: str, capsys: pytest.CaptureFixture[str]
) -> None:
    erase_older(history.log, since)
    assert kept(history) == ["bbbb3333"]
    assert purges(history) == [(["aaaa2222"], "retention")]
    assert "of 1 run from before" in capsys.readouterr().err
    assert verify_file(history.path).ok


def test_each_run_is_named_once_in_the_log(history: Any, since: str) -> None:
    """A server that runs for years does not record every old run each day."""
    erase_older(history.log, since)
    erase_older(history.log, since)
    assert len(purges(history)) == 1
    erase_older(history.log, "9999-01-01T00:00:00.000000Z")
    assert purges(history)[1:] == [(["bbbb3333"], "retention")]
    assert kept(history) == []


def test_a_note_about_an_old_run_goes_too(history: Any, since: str) -> None:
    for journal in ("before", "after"):
        note = ReviewRecorded(
            run="aaaa2222", execution=1, passed=True, note=f"I am aaaa2222. {journal}", by="ann"
        )
        history.log.append(f"journal/{journal}", [new_event(note)])
        erase_older(history.log, since)
        assert kept(history) == ["bbbb3333"]


def test_a_run_that_goes_on_is_left_alone(history: Any, since: str) -> None:
    with stream_lock(history.path, "run/aaaa2222"):
        erase_older(history.log, since)
        assert kept(history) == list(RUNS)
    erase_older(history.log, since)
    assert kept(history) == ["bbbb3333"]


def test_it_begins_with_the_server_and_ends_with_it(history: Any, since: str) -> None:
    with retention(history.log, since):
        pass
    assert kept(history) == ["bbbb3333"]
