"""Code of a user that ends, forks or holds up the process that kindlm runs it in.

Whatever it does, the command exits with 1, names what was running, and loses nothing that finished.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import loaded_kindlm
import pytest
from pytest_project import run_pytest
from scenario_project import Project
from workspace import until

HEAD = """
import asyncio, atexit, ctypes, os, signal, sys, threading, time, _thread
from kindlm import SyncTrial, Trial, scenario

"""

PASSES = """
@scenario("passes")
async def test_passes(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
"""

FAILS = """
@scenario("fails")
def test_fails(t: SyncTrial) -> None:
    t.check(t.agent.send("hi")).contains("zzz")
"""

ASYNC = """
@scenario("{name}", timeout=1)
async def test_{name}(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
    {way}
"""

SYNC = """
@scenario("{name}")
def test_{name}(t: SyncTrial) -> None:
    t.check(t.agent.send("hi")).contains("hi")
    {way}
"""

REPORTERS = ("--reporter", "terminal", "--reporter", "junit=report.xml")


def run(project: Project, *options: str) -> subprocess.CompletedProcess[str]:
    return loaded_kindlm.run(
        options,
        cwd=project.root,
        env=os.environ,
        timeout_s=300,
        own_session=True,
        grace_polls=15,  # a busy machine may hold the event loop up, too
    )


def ended(project: Project, *options: str) -> str:
    """Run kindlm, and return what it prints when it exits with 1."""
    done = run(project, *options)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout + done.stderr


def reported(file: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for case in ET.parse(file).iter("testcase"):
        children = {child.tag for child in case}
        how = "errored" if "error" in children else "failed" if "failure" in children else "passed"
        found[case.attrib["name"].partition("::")[2]] = how
    return found


def test_a_run_that_code_of_a_user_has_ended_is_named_and_can_be_resumed(project: Project) -> None:
    project.configure("[eval]\nparallelism = 1\n")
    ends = SYNC.format(name="ends_it", way="os.path.exists('mended') or os._exit(0)")
    project.write("tests/test_it.py", HEAD + PASSES + ends + FAILS)
    printed = ended(project, "test")
    assert "test_ends_it: os._exit(0) at tests/test_it.py:" in printed
    (command,) = re.findall(r"kindlm (test --resume \w+ --force-resume)", printed)
    assert project.rows("SELECT ended FROM runs") == [(None,)]
    assert project.statuses()["test_passes"] == "passed"

    project.write("mended", "")
    printed = ended(project, *command.split(), *REPORTERS)
    expected = {"test_passes": "passed", "test_ends_it": "passed", "test_fails": "failed"}
    assert reported(project.root / "report.xml") == expected, printed
    assert len(project.agent.said) == 4  # what had passed was not asked again
    assert run(project, "verify").returncode == 0


def test_a_worker_that_code_of_a_user_has_ended_is_not_replaced(project: Project) -> None:
    ends = SYNC.format(name="ends_it", way="os._exit(0)")
    called = "asyncio.get_running_loop().call_later(0.1, sys.exit, 0); await asyncio.sleep(9)"
    calls = ASYNC.format(name="calls", way=called).replace("timeout=1", "timeout=60")
    project.write("tests/test_it.py", HEAD + PASSES + ends + calls + FAILS)
    printed = ended(project, "test", "--workers", "2", "--run-group", "g1")
    assert len(re.findall(r"test_ends_it: os\._exit\(0\) at tests/test_it\.py:\d+", printed)) == 1
    assert printed.count("a callback or a signal handler called sys.exit") == 1
    assert "workers were lost" not in printed
    assert len(project.agent.said) == 4
    assert "kindlm test --resume g1 --force-resume --workers 2" in printed


@pytest.mark.parametrize(
    ("form", "way", "how"),
    [
        (ASYNC, "os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        (ASYNC, "ctypes.CDLL(None)._exit(0)", "exit status 0"),
        (SYNC, "os.execlp('true', 'true')", r"os\.execv\w*\(.+\) at tests/test_it\.py:\d+"),
        (
            ASYNC,
            "x = threading.Thread(target=lambda: os._exit(0)); x.start(); x.join()",
            r"os\._exit\(0\) at tests/test_it\.py:\d+",
        ),
        (ASYNC, "threading.Event().wait()", "it blocked the event loop for more than"),
    ],
)
def test_what_ends_or_blocks_the_process_is_named(
    project: Project, form: str, way: str, how: str
) -> None:
    project.write("tests/test_it.py", HEAD + form.format(name="ends_it", way=way))
    assert re.search(rf"ended while it ran \S+::test_ends_it: {how}", ended(project, "test"))


@pytest.mark.parametrize(
    "way",
    [
        "os.closerange(0, 256)",
        "asyncio.get_running_loop().stop(); await asyncio.sleep(9)",
    ],
)
def test_what_stops_the_run_does_not_let_it_pass(project: Project, way: str) -> None:
    project.write("tests/test_it.py", HEAD + ASYNC.format(name="stops_it", way=way))
    ended(project, "test")
    assert project.rows("SELECT ended FROM runs") != [("finished",)]


# What is an error of the scenario and nothing more.
RAISING = {
    "system_exit": "sys.exit(0)",
    "keyboard_interrupt": "raise KeyboardInterrupt",
    "cancelled": "raise asyncio.CancelledError",
    "loop_closed": "asyncio.get_running_loop().close()",
}

# What must not change anything.
HARMLESS = {
    "signal_to_itself": "signal.raise_signal(signal.SIGTERM); await asyncio.sleep(0.01)",
    "fork_that_sleeps": "pid = os.fork(); await asyncio.sleep(0.01); pid and os.waitpid(pid, 0)",
}
HARMLESS_SYNC = {
    "fork_that_returns": "pid = os.fork(); pid and os.waitpid(pid, 0)",
    "fork_that_raises": "pid = os.fork(); pid or sys.exit(0); os.waitpid(pid, 0)",
    "fork_that_asks": "pid = os.fork(); pid or t.agent.send('hi'); os.waitpid(pid, 0)",
    "at_exit": "atexit.register(os._exit, 0)",
    "other_folder": "os.chdir('/')",
    "endless_thread": "threading.Thread(target=time.sleep, args=(99,), daemon=True).start()",
}


def test_what_the_process_survives_changes_no_other_result(project: Project) -> None:
    scenarios = "".join(
        form.format(name=name, way=way)
        for form, ways in ((ASYNC, {**RAISING, **HARMLESS}), (SYNC, HARMLESS_SYNC))
        for name, way in ways.items()
    )
    project.write("tests/test_it.py", HEAD + "os.fork()\n" + scenarios + FAILS)
    printed = ended(project, "test", *REPORTERS)
    expected = {f"test_{name}": "errored" for name in RAISING}
    expected |= {f"test_{name}": "passed" for name in (*HARMLESS, *HARMLESS_SYNC)}
    found = reported(project.root / "report.xml")
    assert found == {**expected, "test_fails": "failed"}, printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("command", "way", "how"),
    [
        ("test", "os._exit(0)", r"os\._exit\(0\) at tests/test_it\.py:\d+"),
        ("validate", "os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    ],
)
def test_a_file_that_ends_the_process_is_named(
    project: Project, command: str, way: str, how: str
) -> None:
    project.write("tests/test_it.py", f"{HEAD}\n{way}\n{PASSES}")
    printed = ended(project, command, "tests")
    assert re.search(rf"ended while it ran the import of tests/test_it\.py: {how}", printed)


@pytest.mark.parametrize(
    ("way", "how"),
    [("ctypes.CDLL(None)._exit", "exit status 3"), ("os._exit", r"os\._exit\(3\)")],
)
def test_what_ends_the_process_after_a_run_that_passed_does_not_let_it_pass(
    project: Project, way: str, how: str
) -> None:
    project.write("tests/test_it.py", f"{HEAD}\natexit.register({way}, 3)\n{PASSES}")
    printed = ended(project, "test")
    assert "1 test passed" in printed
    assert re.search(rf"kindlm's process was ended: {how}", printed)


def test_a_callback_that_exits_with_0_does_not_let_the_run_pass(project: Project) -> None:
    exits = "asyncio.get_running_loop().call_later(0.1, sys.exit, 0); await asyncio.sleep(9)"
    scenario = ASYNC.format(name="exits", way=exits).replace("timeout=1", "timeout=60")
    project.write("tests/test_it.py", HEAD + scenario)
    printed = ended(project, "test")
    assert "a callback or a signal handler called sys.exit" in printed
    assert re.search(r"kindlm test --resume \w+ --force-resume", printed)


@pytest.mark.parametrize("code", ["0", "None"])
def test_a_signal_handler_that_exits_with_0_does_not_let_the_run_pass(
    project: Project, code: str
) -> None:
    project.configure("[eval]\nparallelism = 1\n")
    leave = f"import typer\n\ndef leave(*_):\n    raise typer.Exit({code})\n"
    rings = "signal.signal(signal.SIGALRM, leave); signal.setitimer(signal.ITIMER_REAL, 0.3)"
    way = f"{rings}\n    await asyncio.sleep(9)"
    scenario = ASYNC.format(name="exits", way=way).replace("timeout=1", "timeout=60")
    project.write("tests/test_it.py", HEAD + leave + FAILS + scenario)
    printed = ended(project, "test")
    assert "a signal handler raised typer.Exit" in printed
    assert project.statuses()["test_fails"] == "failed"


def test_signal_handlers_of_a_scenario_end_with_it(project: Project) -> None:
    project.configure("[eval]\nparallelism = 1\n")
    handles = "[signal.signal(s, lambda *_: sys.exit(0)) for s in (signal.SIGINT, signal.SIGTERM)]"
    waits = 'open("waiting", "w").close(); await asyncio.sleep(60)'
    waiting = ASYNC.format(name="waits", way=waits).replace("timeout=1", "timeout=300")
    handling = ASYNC.format(name="handles", way=handles) + "    t.require(False)\n"
    project.write("tests/test_it.py", HEAD + handling + waiting)
    process = loaded_kindlm.start(
        ["test", "tests"], cwd=project.root, env=os.environ, own_session=True
    )
    try:
        until((project.root / "waiting").exists)
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "SIGTERM: finishing running executions" in stderr, stdout + stderr
    assert project.statuses()["test_handles"] == "failed"


def test_a_run_whose_event_loop_is_held_up_heeds_a_signal(project: Project) -> None:
    spins = 'open("spinning", "w").close()\n    while True: pass'
    spinning = ASYNC.format(name="spins", way=spins).replace("timeout=1", "timeout=300")
    project.write("tests/test_it.py", HEAD + spinning)
    process = loaded_kindlm.start(
        ["test", "tests"], cwd=project.root, env=os.environ, own_session=True, grace_polls=5
    )
    try:
        until((project.root / "spinning").exists)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "test_spins: it blocked the event loop" in stderr, stdout + stderr
    assert "kindlm test --resume" in stderr


FIXTURE = """
import pytest

@pytest.fixture
def resource():
    yield
    {after}

@scenario("passes")
def test_passes(t, resource):
    t.check(t.agent.send("hi")).contains("hi")
"""


@pytest.mark.parametrize(
    "text",
    [
        "os._exit(0)\n",
        FIXTURE.format(after="__import__('posix')._exit(0)"),
        SYNC.format(name="ends_it", way="os.execv('/bin/true', ['true'])"),
    ],
    ids=["import", "teardown", "scenario"],
)
def test_pytest_is_not_ended_with_success(project: Project, text: str) -> None:
    project.write("tests/test_it.py", HEAD + text)
    done = run_pytest(project.root, "--kindlm", "tests")
    assert done.returncode == 1
    assert re.search(r"pytest is ended by os\._?ex\w+\(.* at tests/", done.stdout + done.stderr)


def test_pytest_fails_if_something_calls_sys_exit_while_it_ends(project: Project) -> None:
    project.write("tests/test_it.py", HEAD + FAILS)
    project.write("conftest.py", "import sys\ndef pytest_sessionfinish():\n    sys.exit(0)\n")
    done = run_pytest(project.root, "--kindlm", "tests")
    assert done.returncode == pytest.ExitCode.INTERNAL_ERROR
    assert "pytest was ended by sys.exit(0)" in done.stderr


def test_a_session_with_failures_does_not_end_with_success(project: Project) -> None:
    exits = "import pytest\n\ndef test_zzz():\n    pytest.exit('enough', returncode=0)\n"
    project.write("tests/test_it.py", HEAD + FAILS + exits)
    done = run_pytest(project.root, "--kindlm", "tests")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED


def test_a_signal_handler_that_exits_ends_the_scenario_under_pytest(project: Project) -> None:
    fixture = (
        "import pytest\n\n@pytest.fixture\ndef alarm():\n"
        "    signal.signal(signal.SIGALRM, lambda *_: sys.exit(0))\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.5)\n"
    )
    waits = ASYNC.format(name="waits", way="await asyncio.sleep(60)")
    waits = waits.replace("timeout=1", "timeout=300").replace("t: Trial", "t: Trial, alarm")
    project.write("tests/test_it.py", HEAD + fixture + waits + PASSES)
    done = run_pytest(project.root, "--kindlm", "tests")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert project.statuses() == {"test_waits": "errored", "test_passes": "passed"}
