"""`python -m kindlm.testing.server` as a supervisor runs it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from free_ports import free_ports

from kindlm.testing.server import main

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started = []

    def run(**environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "kindlm.testing.server", "--script", "agent.yaml"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **environment},
        )
        started.append(process)
        return process

    (tmp_path / "agent.yaml").write_text("extends: support\n")
    yield run
    for process in started:
        process.kill()
        process.communicate()


def url_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on http://127.0.0.1:"), process.communicate()
    return line.removeprefix("listening on ").strip()


def test_it_takes_the_port_of_the_environment_and_serves_until_it_is_stopped(start: Start) -> None:
    (port,) = free_ports(1)
    process = start(PORT=str(port))
    url = url_of(process)
    assert url.endswith(f":{port}")
    assert process.stdin is not None
    process.stdin.close()  # by itself, it goes on when its input ends
    process.stdin = None
    with httpx.Client() as client:  # an open connection does not keep it alive
        assert client.get(f"{url}/health").json()["status"] == "ok"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0


@pytest.mark.parametrize("ends_by", ["input", "signal"])
def test_as_a_service_it_ends_with_its_starter_or_regularly(start: Start, ends_by: str) -> None:
    process: Any = start(KINDLM_SERVICE="1")
    url_of(process)
    if ends_by == "input":
        process.stdin.close()
        process.stdin = None
    else:
        process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 0
    assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--script", "missing.yaml"], "missing.yaml: No such file"),
        (["--script", "support", "--host", "0.0.0.0"], "only loopback addresses"),
    ],
)
def test_what_cannot_be_served_is_reported(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


def test_a_taken_port_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["--script", "support", "--port", str(taken.getsockname()[1])]) == 1
    assert "address already in use" in capsys.readouterr().err


def test_it_starts_without_heavy_packages() -> None:
    code = (
        "import sys, kindlm.testing.server\n"
        "heavy = {'openai', 'anthropic', 'httpx', 'pydantic', 'sqlite3', 'typer'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
