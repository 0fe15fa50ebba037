"""`kindlm watch` as a user runs it: rounds are processes, a file is broken and mended, Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loaded_kindlm
import pytest
from processes import assert_ended
from workspace import Workspace, until

SUITE = """
kindlm: 1
project: shop
suite: { name: orders }
tests:
  - name: greets
    tags: [polite]
    command: [python, agent.py]
    expect: { output: { contains: [hello] } }
"""
AGENT = 'print("hello")\n'
HANGS = """
import os, pathlib, time
pathlib.Path("pid.new").write_text(str(os.getpid()))
os.replace("pid.new", "pid")
time.sleep(600)
"""


@pytest.fixture
def project(workspace: Workspace) -> Workspace:
    (workspace.root / "kindlm.yaml").write_text(SUITE, encoding="utf-8")
    (workspace.root / "agent.py").write_text(AGENT, encoding="utf-8")
    return workspace


@pytest.fixture(scope="module")
def forked_rounds() -> Iterator[dict[str, Any]]:
    """Let `kindlm watch` have its rounds forked; a signal to such a round would not reach it."""
    with loaded_kindlm.command() as folder:
        yield {"kindlm.cli.commands.watch_rounds.KINDLM": [str(folder / "kindlm")]}


def told(process: subprocess.Popen[str], beginning: str) -> list[str]:
    """Return the lines on standard error up to one that begins so."""
    assert process.stderr is not None
    lines = [""]
    while not lines[-1].startswith(beginning):
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    return lines


def test_files_are_broken_and_fixed_until_ctrl_c(
    project: Workspace, forked_rounds: dict[str, Any]
) -> None:
    started = project.start("test", "--watch", "--reporter", "json", constants=forked_rounds)
    with started as watch:
        assert "Round 1 passed.\n" in told(watch, "Waiting for changes to 2 files")

        (project.root / "kindlm.yaml").write_text(SUITE + "  - [", encoding="utf-8")
        shown = told(watch, "No tests run")
        assert "Changed: kindlm.yaml\n" in shown
        assert sum("kindlm.yaml:" in line for line in shown) == 1

        (project.root / "agent.py").write_text('print("bye")', encoding="utf-8")
        (project.root / "kindlm.yaml").write_text(SUITE, encoding="utf-8")
        assert "Round 2 did not pass.\n" in told(watch, "Waiting")

        watch.send_signal(signal.SIGINT)
        stdout, rest = watch.communicate(timeout=60)
    assert watch.returncode == 1, "as the last round"
    assert rest == ""
    # Standard output holds the reports alone, one for each round.
    statuses, decoder = [], json.JSONDecoder()
    while stdout := stdout.lstrip():
        report, end = decoder.raw_decode(stdout)
        statuses.append(report["run"]["status"])
        stdout = stdout[end:]
    assert statuses == ["passed", "failed"]
    assert project.query("SELECT count(*) FROM runs WHERE ended = 'finished'") == [(2,)]


def test_signals_interrupt_the_round_that_goes_on_and_leave_nothing_running(
    project: Workspace,
) -> None:
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        pytest.skip("this process ignores the signal, as under nohup, and so does what it starts")
    (project.root / "agent.py").write_text(HANGS, encoding="utf-8")
    with project.start("watch") as watch:
        pid = project.root / "pid"
        until(pid.exists)
        watch.send_signal(signal.SIGHUP)
        told(watch, "SIGHUP")
        watch.send_signal(signal.SIGINT)
        stdout, _ = watch.communicate(timeout=60)
    assert watch.returncode == 1
    assert "INTERRUPTED" in stdout
    assert_ended([int(pid.read_text())])
    assert project.query("SELECT ended FROM runs") == [("interrupted",)]


def test_options_and_paths_reach_every_round_as_they_were_typed(
    project: Workspace, forked_rounds: dict[str, Any]
) -> None:
    file = Path(project.root / "-odd name.yaml")
    file.write_text(SUITE.replace("name: greets", 'name: "-greets"'), encoding="utf-8")
    options = ["--runs", "2", "-t", "-greets", "-t", "greets", "--gate=0.5", "-xq"]
    options += ["--tags", "short, polite", "-k", "greets and not rude"]
    with project.start("watch", *options, "--", file.name, constants=forked_rounds) as watch:
        assert watch.stdout is not None
        assert any(line.startswith("PASSED") for line in watch.stdout)
        until(lambda: project.query("SELECT ended FROM runs") == [("finished",)])
        watch.send_signal(signal.SIGINT)
        watch.communicate(timeout=60)
    ((planned,),) = project.query(
        "SELECT json_extract(data, '$.options') FROM event_log WHERE type = 'run.started'"
    )
    recorded = json.loads(planned)
    assert recorded["paths"] == [file.name]
    assert (recorded["repeat"], recorded["gate"]) == (2, "0.5")
    assert recorded["tests"] == ["-greets", "greets"]
    assert recorded["tags"] == ["short", "polite"]
    assert recorded["keywords"] == "greets and not rude"
