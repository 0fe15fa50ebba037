"""The example with an assistant: what its README says, with its server, and with another one."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from assistants_stand_in import AssistantsApp, ScriptedRun
from scenario_examples import copied, good_and_rude, held_against, lost_checks, rows

from kindlm.cli.app import run
from kindlm.testing.http1 import listening

EXAMPLE = Path(__file__).parents[2] / "examples" / "openai-assistant"

REFUND = "tests/test_returns.py::test_refund"
DELIVERY = "tests/delivery.yaml::a question that only the thread explains"
READ_IT, WAIT = '"That is on our website. Read it."', '"You will see when it is there."'
NO_SEARCH = "Expected a call to file_search; the agent called no tool."
NO_PROGRAM = "Expected a call to code_interpreter; the agent called no tool."

BROKEN = {
    REFUND: [
        ("contains", 9, f'Expected the output to contain "30 days", got {READ_IT}.'),
        ("tool_called", 9, NO_SEARCH),
        ("contains", 12, f'Expected the output to contain "145.47", got {WAIT}.'),
        ("tool_called", 12, NO_PROGRAM),
    ],
    DELIVERY: [
        ("contains", 6, f'Expected the output to contain "5 days", got {READ_IT}.'),
        ("tool_called", 7, NO_SEARCH),
        ("contains", 10, f'Expected the output to contain "12.00", got {WAIT}.'),
    ],
}
"""What each test holds against the rude assistant: kinds of checks, their lines, what is said."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return copied(EXAMPLE, tmp_path / "shoes", monkeypatch)


class Shell:
    """Follows the commands of a README: its servers are processes, kindlm runs in this one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._set = monkeypatch.setenv
        self.servers: list[subprocess.Popen[str]] = []
        self.codes: dict[str, int] = {}

    def follow(self, line: str) -> None:
        match shlex.split(line):
            case ["python", program, "&", "server=$!"]:
                self._serve(program)
            case ["kill", "$server"]:
                self.servers[-1].kill()
                self.servers[-1].wait()
            case ["export", assignment]:
                self._set(*assignment.split("="))
            case ["kindlm", *arguments]:
                self.codes[line] = run(arguments)
            case _:
                pytest.fail(f"no such command is known here: {line}")

    def _serve(self, program: str) -> None:
        server = subprocess.Popen(
            [sys.executable, program],
            env={**os.environ, "SHOP_PORT": "0"},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.servers.append(server)
        assert server.stdout is not None
        self._set("SHOP_PORT", server.stdout.readline().split()[-1])


@pytest.fixture
def shell(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    made = Shell(monkeypatch)
    yield made
    for server in made.servers:
        server.kill()
        server.communicate()


def test_the_readme_can_be_followed(
    project: Path, shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its commands, one by one; only what installs kindlm is left out."""
    text = (project / "README.md").read_text("utf-8")
    install, *blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    assert "pip install" in install
    for block in blocks:
        for line in block.splitlines():
            shell.follow(line)
    assert shell.codes == {
        "kindlm test --label good": 0,
        "kindlm test --label rude": 1,
        "kindlm diff good rude": 1,
    }
    assert all(server.poll() is not None for server in shell.servers)
    assert held_against(project, "rude") == BROKEN
    statuses = "SELECT r.label, e.test, e.status, count(*) FROM executions e JOIN runs r"
    assert rows(project, f"{statuses} ON r.id = e.run GROUP BY 1, 2, 3 ORDER BY 1, 2") == [
        ("good", DELIVERY, "passed", 1),
        ("good", REFUND, "passed", 4),
        ("rude", DELIVERY, "failed", 1),
        ("rude", REFUND, "failed", 4),
    ]
    check_comparison(capsys)


def check_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    """`kindlm diff` says which tests regressed, and by which checks."""
    tests = good_and_rude(capsys)
    assert {name: test["change"] for name, test in tests.items()} == dict.fromkeys(
        BROKEN, "regressed"
    )
    assert tests[REFUND]["strength"] == "confirmed"
    for name, test in tests.items():
        assert lost_checks(test) == [kind for kind, _, _ in BROKEN[name]]


def test_another_server_takes_nothing_but_its_configuration(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of the README, with the address of a server that is not the example's own."""
    (table,) = re.findall(
        r"```toml\n(.*?)```", (project / "README.md").read_text("utf-8"), re.DOTALL
    )
    searched = step("file_search", results=[])
    computed = step("code_interpreter", input="print(145.47)", outputs=[])
    app = AssistantsApp(
        ScriptedRun("Within 30 days.", steps=[searched]), ScriptedRun("145.47", steps=[computed])
    )
    monkeypatch.setenv("ASSISTANTS_KEY", "planted-key-0123")
    with served(app) as port:
        (project / "kindlm.toml").write_text(table.replace("9000", str(port)), "utf-8")
        assert run(["test", "-q", "-t", "test_refund", "--runs", "1"]) == 0
    assert {asked.headers["authorization"] for asked in app.requests} == {"Bearer planted-key-0123"}
    assert [asked.body for asked in app.requests if asked.line.endswith("/runs")] == [
        {"assistant_id": "asst_mine"}
    ] * 2


def step(kind: str, **detail: Any) -> dict[str, Any]:
    call = {"id": f"call_{kind}", "type": kind, kind: detail}
    return {"id": "step_1", "created_at": 1, "step_details": {"tool_calls": [call]}}


@contextmanager
def served(app: AssistantsApp) -> Iterator[int]:
    """Serve an app from a thread of its own; yield the port."""
    ready, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    ports: list[int] = []

    async def serve() -> None:
        async with listening(app, "127.0.0.1", 0) as port:
            ports.append(port)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    yield ports[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()
