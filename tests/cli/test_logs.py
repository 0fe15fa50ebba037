"""The handler of log lines: what it lets through, whatever is handed to it."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from kindlm.cli.logs import log_as_asked, name_run

SECRET = "sk-live-0123456789abcdef"


def say(message: str, **fields: Any) -> None:
    logging.getLogger("kindlm.test").warning(message, extra={"fields": fields})


def test_fields_of_unknown_names_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    with log_as_asked({"KINDLM_LOG": "debug"}):
        say("It happened", model="gpt-4o", prompt="who are you?", reply="I am.", call=None)
    (line,) = capsys.readouterr().err.splitlines()
    said = json.loads(line)
    assert said["model"] == "gpt-4o"
    assert said.keys().isdisjoint({"prompt", "reply", "call"})
    assert (said["level"], said["code"], said["run_id"]) == ("warning", None, None)


def test_secrets_are_taken_out_of_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    with log_as_asked({"KINDLM_LOG": "debug", "SHOP_API_KEY": SECRET}):
        say(f"refused {SECRET}", model=f"x-{SECRET}")
        name_run("k3f9x2ab", {"another-secret"})
        say("refused another-secret", model=SECRET)
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["message"], first["model"]) == ("refused [redacted]", "x-[redacted]")
    assert (second["message"], second["model"]) == ("refused [redacted]", "[redacted]")
    assert second["run_id"] == "k3f9x2ab"


def test_nothing_is_left_behind(capsys: pytest.CaptureFixture[str]) -> None:
    with log_as_asked({"DEBUG": "kindlm*"}):
        pass
    say("nobody asks any more")
    assert capsys.readouterr().err == ""


def test_a_stream_that_is_closed_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def isatty(self) -> bool:
            return False

        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    with log_as_asked({"DEBUG": "kindlm*"}):
        say("into the void")
