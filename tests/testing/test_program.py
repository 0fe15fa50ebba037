"""`python -m kindlm.testing.server` as a supervisor runs it."""

from __future__ import annotations

import json
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

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started = []

    def run(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "kindlm.testing.server", *arguments],
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


def ask(url: str, text: str = "Hi", key: str = "planted-key-0123456789") -> Any:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_stopped(start, number):
    process = start("--script", "agent.yaml")
    url = url_of(process)
    with httpx.Client() as client:  # an open connection does not keep it alive
        assert client.get(f"{url}/health").json()["status"] == "ok"
        process.send_signal(number)
        assert process.wait(timeout=20) == 0


def test_it_takes_the_port_of_the_environment(start):
    (port,) = free_ports(1)
    assert url_of(start("--script", "support", PORT=str(port))).endswith(f":{port}")


def test_a_taken_port_is_reported_with_exit_code_1(start):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = start("--script", "support", "--port", str(taken.getsockname()[1]))
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "address already in use" in errors
    assert "Traceback" not in errors.partition("error: ")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--script", "missing.yaml"], "missing.yaml: No such file"),
        (["--script", "support", "--host", "0.0.0.0"], "only loopback addresses"),
        (["--script", "support", "--fault", "staus=500"], "did you mean 'status'"),
        (["--script", "support", "--fault", "empty"], "expected KEY=VALUE"),
        (["--script", "support", "--request-log", "no/such/folder"], "No such file"),
    ],
)
def test_what_cannot_be_served_is_reported(start, arguments, message):
    process = start(*arguments)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert message in errors


def test_faults_can_be_given_as_flags(start):
    url = url_of(
        start(
            "--script", "support", "--fault", "status=429,retryAfter=2,next=1", "--latency-ms", "1"
        )
    )
    refused = ask(url)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
    assert ask(url).status_code == 200


def test_the_request_log_is_complete_before_the_answer_is_sent(start, tmp_path):
    log = tmp_path / "requests.jsonl"
    process = start("--script", "support", "--request-log", str(log))
    url = url_of(process)
    for number in range(5):
        ask(url, f"Hi {number}")
        lines = log.read_text().splitlines()
        assert len(lines) == number + 1
    process.kill()
    process.wait()
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [entry["number"] for entry in entries] == [1, 2, 3, 4, 5]
    assert entries[4]["body"]["messages"][0]["content"] == "Hi 4"
    assert {entry["key"] for entry in entries} == {"accepted"}
    assert "planted-key" not in log.read_text()


def test_the_log_is_there_to_read(start):
    url = url_of(start("--script", "support"))
    ask(url)
    (entry,) = httpx.get(f"{url}/requests").json()["requests"]
    assert entry["path"] == "/v1/chat/completions"
    assert (entry["status"], entry["rule"], entry["asks"]) == (200, "greeting", "agent")
    assert "authorization" not in entry["headers"]


def test_it_starts_without_heavy_packages():
    code = (
        "import sys, kindlm.testing.server\n"
        "heavy = {'openai', 'anthropic', 'httpx', 'pydantic', 'sqlite3', 'typer'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_as_a_service_it_ends_with_its_starter(start):
    process = start("--script", "agent.yaml", KINDLM_SERVICE="1")
    url_of(process)
    process.stdin.close()
    process.stdin = None
    assert process.wait(timeout=20) == 0


def test_as_a_service_it_ends_regularly_while_its_input_is_open(start):
    process = start("--script", "agent.yaml", KINDLM_SERVICE="1")
    url_of(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 0
    assert process.stderr.read() == ""


def test_by_itself_it_goes_on_when_its_input_ends(start):
    process = start("--script", "agent.yaml")
    url = url_of(process)
    process.stdin.close()
    process.stdin = None
    assert ask(url).status_code == 200
    assert process.poll() is None
