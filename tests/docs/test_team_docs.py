"""The commands and files of the pages on teams and clusters work."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import loaded_kindlm
import pytest
import yaml

from kindlm.cli.app import run

DOCS = Path(__file__).parents[2] / "docs" / "how-to"
TEAM = (DOCS / "team-history.md").read_text("utf-8")
SERVER = (DOCS / "history-server.md").read_text("utf-8")
CLUSTER = (DOCS / "cluster.md").read_text("utf-8")

SUITE = """
kindlm: 1
project: shop
suite: { name: orders }
providers: { fake: { type: scripted, replies: [{ text: "Delivered." }] } }
models: [{ id: fake, provider: fake, model: fake-1 }]
prompts: { ask: { user: "Where is my order?" } }
tests:
"""


def block(page: str, marker: str, language: str) -> str:
    found = re.search(rf"<!-- {re.escape(marker)} -->\n```{language}\n(.*?)```", page, re.DOTALL)
    assert found, marker
    return found[1]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of twenty tests on the branch main, and no CI service."""
    for name in ("CI", "KINDLM_URL", "KINDLM_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("KINDLM_COMMIT", "a1" * 20)
    monkeypatch.setenv("KINDLM_BRANCH", "main")
    monkeypatch.chdir(tmp_path)
    tests = (
        f"- {{ name: t{n}, prompt: ask, expect: {{ output: {{ contains: [delivered] }} }} }}\n"
        for n in range(20)
    )
    Path("kindlm.yaml").write_text(SUITE + "".join(tests), "utf-8")
    return tmp_path


@pytest.fixture
def served(here: Path) -> Iterator[str]:
    """The server as the Dockerfile starts it, on loopback."""
    run(["token", "create", "--name", "first", "--db", "team.db"])
    command = yaml.safe_load(re.findall(r"^CMD (.+)", SERVER, re.MULTILINE)[0])
    command[command.index("--host") + 1] = "127.0.0.1"
    server = loaded_kindlm.start(
        [*command, "--port", "0"], cwd=here, env=os.environ, stderr=subprocess.DEVNULL
    )
    assert server.stdout is not None
    try:
        yield server.stdout.readline().partition("/-/")[0]
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate()


def test_the_first_commands_work(
    here: Path, served: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = re.search(r"```console\n(.*?)```", TEAM, re.DOTALL)
    assert shown
    lines = [shlex.split(line, comments=True)[2:] for line in shown[1].splitlines() if line]
    (create, serve, login, push, pull) = lines
    assert serve[0] == "serve-history"
    capsys.readouterr()
    assert run(create) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(capsys.readouterr().out))
    assert run([served if word.startswith("https:") else word for word in login]) == 0
    assert run(["test", "--quiet"]) == 0
    assert run(push) == 0
    assert run(push) == 0
    assert "0 events pushed" in capsys.readouterr().err
    Path(".kindlm/kindlm.db").unlink()
    assert run(pull) == 0
    assert run(["show"]) == 0
    assert "[withheld]" not in capsys.readouterr().out


def test_the_unit_of_systemd_starts_what_there_is(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unit = block(SERVER, "team: systemd", "ini")
    (command,) = re.findall(r"^ExecStart=\S+ (.+)", unit, re.MULTILINE)
    assert run(["serve-history", "--help"]) == 0
    shown = capsys.readouterr().out
    assert {*re.findall(r" (--\w+)", command)} <= {*re.findall(r"--\w+", shown)}


def test_a_pod_runs_its_shard(
    here: Path, served: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = yaml.safe_load(block(CLUSTER, "cluster: job", "yaml"))["spec"]
    (container,) = job["template"]["spec"]["containers"]
    given = {each["name"]: each.get("value") for each in container["env"]}
    assert given["JOB_COMPLETIONS"] == str(job["completions"])
    run(["token", "create", "--name", "pods", "--db", "team.db"])
    for name, value in {
        "JOB_COMPLETIONS": given["JOB_COMPLETIONS"],
        "JOB_COMPLETION_INDEX": "3",
        "KINDLM_URL": served,
        "KINDLM_TOKEN": capsys.readouterr().out.split()[-1],
    }.items():
        monkeypatch.setenv(name, value)
    program, *arguments = container["args"]
    assert program == "kindlm"
    arguments[arguments.index("--db") + 1] = str(here / "pod.db")
    assert run(arguments) == 0
    Path("pod.db").unlink()
    assert run(["pull", "--group", "agents-42"]) == 0
    run(["show", "agents-42"])
    assert "1 of 16 shards" in capsys.readouterr().out
