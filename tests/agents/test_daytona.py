"""Programs in sandboxes of Daytona: its own SDK, against a server that speaks its API."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap

import pytest
from daytona_server import daytona_server
from options import options_of

from kindlm.suite import AgentTarget

pytest.importorskip("daytona")

ECHO = """
    import json, os, sys
    sys.stderr.write("ready\\n")
    for line in sys.stdin:
        request = json.loads(line)
        told = {name: os.environ.get(name) for name in ("MODE", "HOST_ONLY", "DAYTONA_API_KEY")}
        text = f"{request['message']} in {os.getpid()} with {told}"
        print(json.dumps({"text": text}), flush=True)
"""


@pytest.fixture
def talk(ask, make, tmp_path):
    """Send messages to a program in a sandbox; return the results and what the server saw."""

    def talk(program: str, *messages: str, options=None, timeout_s=60.0, change=None, **environ):
        home, box = tmp_path / "home", tmp_path / "box"
        home.mkdir()
        box.mkdir()
        (box / "agent.py").write_text(textwrap.dedent(program))
        given = {"command": [sys.executable, "agent.py"], "sandbox": "daytona", **(options or {})}
        target = AgentTarget(
            "prog", "subprocess", "", options=options_of("subprocess", given), directory=str(home)
        )

        async def hold():
            async with daytona_server(box) as server:
                if change:
                    change(server)
                environment = {
                    "PATH": os.environ["PATH"],
                    "HOST_ONLY": "secret",
                    "DAYTONA_API_KEY": "dtn-key-0123456789",
                    "DAYTONA_API_URL": f"{server.url}/api",
                    **environ,
                }
                async with make(target, **environment) as agent:
                    results = [
                        await agent.send(ask(message, timeout_s=timeout_s))
                        for message in messages or ("Hello",)
                    ]
                return results, server

        return asyncio.run(hold())

    return talk


def test_a_conversation_is_held_in_a_sandbox_of_its_own(talk, success):
    options = {"env": {"MODE": "test"}, "snapshot": "my-agent"}
    (first, second), server = talk(ECHO, "a", "b", options=options)
    answers = [success(result).text for result in (first, second)]
    assert answers[0].startswith("a in ")
    assert answers[1] == answers[0].replace("a in", "b in", 1)
    assert answers[0].endswith("{'MODE': 'test', 'HOST_ONLY': None, 'DAYTONA_API_KEY': None}")
    assert success(first).warnings == ()
    assert server.keys == {"Bearer dtn-key-0123456789"}
    assert [box["snapshot"] for box in server.made] == ["my-agent"]
    assert server.made[0]["autoDeleteInterval"] == 0
    assert server.deleted == ["box-1"]


def test_the_shell_of_a_sandbox_looks_at_no_word(talk, success):
    program = "import sys; print(sys.argv[1:])"
    command = [sys.executable, "agent.py", "$HOME `id`; 'x'", "{{message}}"]
    options = {"oneShot": True, "command": command}
    (result,), _ = talk(program, "it's $(id) \n * done", options=options)
    assert success(result).text == str(["$HOME `id`; 'x'", "it's $(id) \n * done"])


def test_a_program_for_one_message_runs_to_its_end(talk, success):
    program = "import sys; print(len(sys.argv), repr(sys.stdin.read()))"
    results, server = talk(program, "it's $a\n", "two", options={"oneShot": True})
    assert [success(result).text for result in results] == ['1 "it\'s $a\\n"', "1 'two'"]
    assert len(server.made) == 1
    assert server.deleted == ["box-1"]


def test_a_program_that_ends_without_an_answer_is_an_error(talk, failure):
    (result,), server = talk("import sys; sys.stdin.readline(); sys.exit('no such order')")
    assert "exit code 1 without an answer: no such order" in failure(result).message
    assert server.deleted == ["box-1"]


def test_one_that_does_not_answer_is_ended_with_its_sandbox(talk, failure):
    (result,), server = talk("import time; time.sleep(600)", timeout_s=1.0)
    assert "did not answer within 1000 ms" in failure(result).message
    assert server.deleted == ["box-1"]
    assert [command.code for command in server.commands.values()] == [137]


def test_too_much_output_is_an_error(talk, failure, monkeypatch):
    monkeypatch.setattr("kindlm.agents.subprocess_agent.MAX_OUTPUT_BYTES", 1_000_000)
    (result,), server = talk("print('x' * 1_100_000)")
    assert "printed more than 10 MB" in failure(result).message
    assert server.deleted == ["box-1"]


def test_a_folder_that_is_not_in_the_sandbox_is_an_error(talk, failure):
    (result,), _ = talk(ECHO, options={"cwd": "elsewhere"})
    assert "did not start" in failure(result).message
    assert "elsewhere" in failure(result).message


def test_a_sandbox_that_fails_is_an_error(talk, failure):
    def break_logs(server):
        server.breaks_logs = True

    (result,), server = talk("import time; time.sleep(600)", change=break_logs)
    assert "failed with its sandbox" in failure(result).message
    assert "the runner is gone" in failure(result).message
    assert server.deleted == ["box-1"]


@pytest.mark.parametrize(
    ("status", "environ", "reason"),
    [
        (403, {}, "no more sandboxes"),
        (None, {"DAYTONA_API_KEY": ""}, "DAYTONA_API_KEY is not set"),
        (None, {"DAYTONA_API_URL": "http://127.0.0.1:1/api"}, "no Daytona sandbox"),
    ],
)
def test_without_a_sandbox_it_runs_here_with_a_warning(
    talk, success, tmp_path, status, environ, reason
):
    def refuse(server):
        server.refuses = status
        (tmp_path / "home/agent.py").write_text(
            'print(\'{"text": "at home"}\', flush=True); input()'
        )

    (result,), server = talk(ECHO, change=refuse, **environ)
    reply = success(result)
    assert reply.text == "at home"
    assert len(reply.warnings) == 1
    assert "ran on this machine" in reply.warnings[0]
    assert reason in reply.warnings[0]
    assert "0123456789" not in reply.warnings[0]
    assert server.made == []


def test_without_the_package_it_runs_here_with_a_warning(talk, success, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "daytona", None)

    def prepare(server):
        (tmp_path / "home/agent.py").write_text('print(\'{"text": "at home"}\')')

    (result,), _ = talk(ECHO, change=prepare)
    assert "pip install 'kindlm[daytona]'" in success(result).warnings[0]
