"""Programs that a suite serves: a run that lost one is never green."""

from __future__ import annotations

import json

import pytest

LIVES = "import sys; sys.stdin.read()"
DIES = "import os, sys; print('out of memory', flush=True); sys.exit(3)"
DIES_LATER = (
    "import os, socket, sys\n"
    "with socket.create_server(('127.0.0.1', int(os.environ['PORT']))) as server:\n"
    "    print('up', flush=True)\n"
    "    held = server.accept()\n"
    "    print('out of memory', flush=True)\n"
    "    os._exit(3)"  # only then the connection is closed
)
WAITS = (
    "import socket, sys\n"
    "with socket.create_connection(('127.0.0.1', int(sys.argv[1]))) as connection:\n"
    "    connection.recv(1)\n"
    "print('done')"
)


@pytest.fixture
def run(workspace):
    """Test programs beside a served one; return the process and the report."""

    def run(serve: dict, *tests: str):
        config = {
            "kindlm": 1,
            "project": "shop",
            "suite": {"name": "orders"},
            "serve": [{"name": "shop", **serve}],
            "tests": [
                {
                    "name": f"test-{index}",
                    "command": ["python", "-c", source, "{{serve.shop.port}}"],
                    "expect": {"output": {"contains": ["done"]}},
                }
                for index, source in enumerate(tests)
            ],
            "defaults": {"concurrency": 1},
        }
        (workspace.root / "kindlm.yaml").write_text(json.dumps(config), "utf-8")
        done = workspace.run("test", "--reporter", "json")
        return done, json.loads(done.stdout)

    return run


@pytest.mark.parametrize(
    "serve",
    [
        {"command": ["python", "-c", DIES_LATER], "ready": {"line": "up"}},
        {"command": ["python", "-c", DIES]},
    ],
)
def test_a_run_that_loses_a_program_is_stopped_and_says_why(workspace, run, serve):
    tests = [WAITS] if "ready" in serve else ["import time; time.sleep(1); print('done')"]
    done, report = run(serve, *tests, "print('done')")
    assert done.returncode == 1
    assert report["run"]["status"] == "aborted"
    (error,) = report["errors"]
    assert error["code"] == "RUN_ABORTED"
    assert "'shop' ended while the tests ran" in error["message"]
    assert "out of memory" in error["message"]
    assert "out of memory" in done.stderr
    ((reason,),) = workspace.query(
        "SELECT body FROM contents JOIN event_log ON ref = data ->> '$.reason.$ref'"
        " WHERE type = 'run.aborted'"
    )
    # How many there are depends on when it ended.
    missing = error["message"].removeprefix(reason)
    assert missing in {"", *(f"; {n} of 2 executions did not finish" for n in (1, 2))}


def test_it_is_stopped_also_when_all_tests_had_passed_by_then(run):
    serve = {"command": ["python", "-c", DIES_LATER], "ready": {"line": "up"}}
    done, report = run(serve, WAITS)
    assert report["summary"]["executions"]["passed"] == 1
    assert (done.returncode, report["run"]["status"]) == (1, "aborted")


def test_a_program_that_is_there_to_the_end_is_ended_without_a_word(run):
    done, report = run({"command": ["python", "-c", LIVES]}, "print('done')")
    assert (done.returncode, report["run"]["status"]) == (0, "passed")
    assert "ended" not in done.stderr
