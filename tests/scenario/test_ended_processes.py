"""Code of a user that ends, forks, closes or holds up the process that kindlm runs it in.

Whatever it does, the command exits with 1, names what did it, writes the reports that were asked
for, and loses no other test.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import loaded_kindlm
import pytest
from pytest_project import run_pytest
from scenario_project import Project
from workspace import until

from kindlm import guard

HEAD = """
import asyncio, atexit, ctypes, os, signal, subprocess, sys, threading, time, _thread
from kindlm import SyncTrial, Trial, scenario

"""

OTHERS = """
@scenario("passes")
async def test_passes(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")

@scenario("passes in a thread", repeats=2)
def test_passes_in_a_thread(t: SyncTrial) -> None:
    t.check(t.agent.send("hi")).contains("hi")

@scenario("fails")
async def test_fails(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("zzz")
"""

ASYNC = """
@scenario("{name}")
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

IN_A_THREAD = "thread = threading.Thread(target=lambda: {way}); thread.start(); thread.join()"

# What ends the process, or leaves it in a state in which it cannot go on. There are four ways to
# find out: by the call, by how the process ended, by a signal that nobody announced, by what is
# closed afterwards. Of each of these some are tried in both forms, and each of the rest in one.
ENDING = {
    "exit": "os._exit(0)",
    "exit_in_a_thread": IN_A_THREAD.format(way="os._exit(0)"),
    "kill": "os.kill(os.getpid(), signal.SIGKILL)",
    "crash": "ctypes.string_at(0)",
    "terminate": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.1)",
    "interrupt_by_python": "_thread.interrupt_main(); time.sleep(0.1)",
    "output_closed": "os.close(1)",
    "all_closed": "os.closerange(0, 256)",
}
ENDING_ASYNC = {
    "abort": "os.abort()",
    "exit_of_c": "ctypes.CDLL(None)._exit(0)",
    "group_terminated": "os.killpg(0, signal.SIGTERM)",
    "parent_terminated": "os.kill(os.getppid(), signal.SIGTERM)",
    "interrupt": "os.kill(os.getpid(), signal.SIGINT); time.sleep(0.1)",
    "errors_closed": "os.close(2)",
    "stream_closed": "sys.stdout.close()",
}
ENDING_SYNC = {
    "exit_of_c_with_its_handlers": "ctypes.CDLL(None).exit(0)",
    "other_program": "os.execv('/bin/true', ['true'])",
    "other_program_by_name": "os.execlp('true', 'true')",
    "group_interrupted": "os.kill(-os.getpgrp(), signal.SIGINT)",
    "all_but_the_usual_closed": "os.closerange(3, 256)",
    "first_stream_closed": "sys.__stdout__.close()",
}

# What can only be done in the thread of the event loop.
ENDING_THE_LOOP = {
    "loop_stopped": "asyncio.get_running_loop().stop(); await asyncio.sleep(9)",
    "selector_closed": "asyncio.get_running_loop()._selector.close(); await asyncio.sleep(9)",
}

# What is an error of the scenario and nothing more.
RAISING = {
    "system_exit": "sys.exit(0)",
    "keyboard_interrupt": "raise KeyboardInterrupt",
    "cancelled": "raise asyncio.CancelledError",
    "loop_closed": "asyncio.get_running_loop().close()",
}

_IGNORE = "[signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)]"

# What must not change anything.
HARMLESS = {
    "fork_that_returns": "pid = os.fork(); pid and os.waitpid(pid, 0)",
    "fork_that_raises": "pid = os.fork(); pid or sys.exit(0); os.waitpid(pid, 0)",
    "trace": "sys.settrace(lambda *_: 1 / 0)",
    "profile": "sys.setprofile(lambda *_: 1 / 0)",
    "at_exit": "atexit.register(os._exit, 0)",
    "other_folder": "os.chdir('/')",
    "other_errors": "os.dup2(os.open(os.devnull, os.O_WRONLY), 2)",
    "endless_thread": "threading.Thread(target=time.sleep, args=(99,), daemon=True).start()",
}
HARMLESS_ASYNC = {
    "signals_ignored": _IGNORE,
    "fork_that_sleeps": "pid = os.fork(); await asyncio.sleep(0.01); pid and os.waitpid(pid, 0)",
}
HARMLESS_SYNC = {
    "fork_that_asks": "pid = os.fork(); pid or t.agent.send('hi'); os.waitpid(pid, 0)",
}


REPORTERS = ("--reporter", "terminal", "--reporter", "junit=report.xml")


def run(project: Project, *options: str, hasty: bool = False) -> subprocess.CompletedProcess[str]:
    return loaded_kindlm.run(
        options,
        cwd=project.root,
        env=os.environ,
        timeout_s=300,
        own_session=True,  # some signal all of their group
        grace_polls=5 if hasty else None,
    )


def run_tests(project: Project, *, hasty: bool = False) -> tuple[dict[str, str], str]:
    """Run `kindlm test`, and return how the tests ended by the report, and what was printed."""
    done = run(project, "test", "--no-progress", *REPORTERS, hasty=hasty)
    printed = done.stdout + done.stderr
    assert done.returncode == 1, printed
    return reported(project.root / "report.xml"), printed


def reported(file: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for case in ET.parse(file).iter("testcase"):
        children = {child.tag for child in case}
        how = "errored" if "error" in children else "failed" if "failure" in children else "passed"
        found[case.attrib["name"].partition("::")[2]] = how
    return found


# Both are running when one of them ends the process.
MEETING = (
    "open(__file__ + '.here', 'w').close()\n"
    "    while len([f for f in os.listdir('tests') if f.endswith('.here')]) < 2: time.sleep(0.01)\n"
    "    "
)

REST = {"test_passes": "passed", "test_passes_in_a_thread": "passed", "test_fails": "failed"}


@pytest.mark.parametrize(
    ("form", "ways", "parallelism"),
    [
        (ASYNC, {**ENDING, **ENDING_ASYNC, **ENDING_THE_LOOP, **RAISING}, 2),
        (SYNC, {**ENDING, **ENDING_SYNC}, 1),
    ],
    ids=["async", "sync"],
)
def test_what_ends_the_process_is_an_error_of_its_scenario_alone(
    project: Project, form: str, ways: dict[str, str], parallelism: int
) -> None:
    project.configure(f"[eval]\nparallelism = {parallelism}\n")
    scenarios = "".join(form.format(name=name, way=way) for name, way in ways.items())
    project.write("tests/test_it.py", HEAD + scenarios + OTHERS)
    statuses, printed = run_tests(project, hasty=True)
    expected = dict.fromkeys((f"test_{name}" for name in ways), "errored")
    assert statuses == {**expected, **REST}, printed
    for how in ("os._exit(0) at tests/test_it.py:", "SIGKILL", "SIGSEGV", "SIGTERM to itself"):
        assert how in printed
    assert run(project, "verify").returncode == 0


@pytest.mark.parametrize(
    ("form", "ways"),
    [(ASYNC, {**HARMLESS, **HARMLESS_ASYNC}), (SYNC, {**HARMLESS, **HARMLESS_SYNC})],
    ids=["async", "sync"],
)
def test_what_the_process_survives_changes_no_result(
    project: Project, form: str, ways: dict[str, str]
) -> None:
    scenarios = "".join(form.format(name=name, way=way) for name, way in ways.items())
    project.write("tests/test_it.py", HEAD + scenarios + OTHERS)
    statuses, printed = run_tests(project, hasty=True)
    expected = dict.fromkeys((f"test_{name}" for name in ways), "passed")
    expected["test_fork_that_sleeps"] = expected.get("test_fork_that_sleeps", "")
    assert {**statuses, **REST} == statuses, printed
    assert set(statuses) == {f"test_{name}" for name in ways} | set(REST)
    assert "Traceback" not in printed


# What ends the process while a file is imported.
IMPORTED = {
    "exit": "os._exit(0)",
    "exit_in_a_thread": IN_A_THREAD.format(way="os._exit(0)"),
    "kill": "os.kill(os.getpid(), signal.SIGKILL)",
    "terminate": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.1)",
    "crash": "ctypes.string_at(0)",
    "other_program": "os.execv('/bin/true', ['true'])",
    "output_closed": "os.close(1)",
    "system_exit": "sys.exit(0)",
    "keyboard_interrupt": "raise KeyboardInterrupt",
}


def test_a_file_that_ends_the_process_is_named_and_the_others_run(project: Project) -> None:
    for name, way in IMPORTED.items():
        project.write(f"tests/test_{name}.py", f"{HEAD}\n{way}\n{OTHERS}")
    project.write("tests/test_it.py", HEAD + "os.chdir('/')\nos.fork()\n" + OTHERS)
    statuses, printed = run_tests(project, hasty=True)
    assert {name: how for name, how in statuses.items() if name in REST} == REST, printed
    for name in IMPORTED:
        assert f"tests/test_{name}.py" in printed
    checked = run(project, "validate", "tests")
    assert checked.returncode == 1
    assert "os._exit(0) at tests/test_exit.py" in checked.stdout + checked.stderr


def test_a_file_whose_import_failed_is_not_blamed_for_what_ends_the_process(
    project: Project,
) -> None:
    project.write("tests/test_it.py", HEAD + ASYNC.format(name="ends_it", way="os._exit(0)"))
    project.write("tests/test_later.py", HEAD + "raise ValueError('not importable')\n")
    statuses, printed = run_tests(project, hasty=True)
    assert statuses["test_ends_it"] == "errored", printed
    report = (project.root / "report.xml").read_text()
    assert "not importable" in report
    assert "while it was imported" not in printed + report


def test_what_ends_a_run_that_is_not_resumed_is_named(project: Project) -> None:
    way = "os.environ.get('ENDS') and os._exit(0)"
    project.write("tests/test_it.py", HEAD + ASYNC.format(name="ends_it", way=way))
    assert run(project, "test").returncode == 0
    # One of all of them is in a process that was not forked: nothing is loaded yet.
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "kindlm", "rescore"],
        cwd=project.root,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "ENDS": "1"},
    )
    assert ended.returncode == 1
    assert "test_ends_it" in ended.stderr


def test_an_end_that_no_scenario_repeats_is_no_pass(project: Project) -> None:
    once = "os.path.exists('ended') or (open('ended', 'w').close(), os.kill(os.getpid(), 9))"
    for name in ("one", "other"):
        project.write(
            f"tests/test_{name}.py",
            f"{HEAD}\n" + SYNC.format(name=name, way=MEETING + once),
        )
    ended = run(project, "test", "--no-progress", "--reporter", "junit=report.xml")
    assert ended.returncode == 1
    statuses = reported(project.root / "report.xml")
    assert statuses.pop("") == "errored"  # the run itself
    assert statuses == {"test_one": "passed", "test_other": "passed"}
    assert "none of them did it again" in (project.root / "report.xml").read_text()


def test_a_scenario_that_blocks_the_event_loop_for_ever_is_ended(project: Project) -> None:
    project.configure("[eval]\ndefault_timeout = 1\n")
    blocks = ASYNC.format(name="blocks", way="threading.Event().wait()")
    project.write("tests/test_it.py", HEAD + blocks + OTHERS)
    statuses, printed = run_tests(project, hasty=True)
    assert statuses == {"test_blocks": "errored", **REST}, printed
    assert "blocked the event loop" in printed
    assert "ended kindlm's process" not in printed
    assert "not `async`" in printed


def start_hasty(project: Project, grace_polls: int = 5) -> loaded_kindlm.Started:
    return loaded_kindlm.start(
        ["test", "tests", *REPORTERS],
        cwd=project.root,
        env=os.environ,
        own_session=True,
        grace_polls=grace_polls,
    )


SPINS = """
@scenario("spins", timeout=TIMEOUT)
async def test_spins(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
    open("spinning", "w").close()
    while True: pass
"""

# Both are going when the other one spins: this one goes on for as long as it may.
BESIDE = """
@scenario("goes on")
async def test_goes_on(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
    while not os.path.exists("spinning"): await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
"""


def test_a_scenario_that_spins_beside_one_with_more_time_is_ended(project: Project) -> None:
    project.write("tests/test_it.py", HEAD + BESIDE + SPINS.replace("TIMEOUT", "1") + OTHERS)
    process = start_hasty(project)
    try:
        printed = "".join(process.communicate(timeout=60))
    finally:
        process.kill()
    assert process.returncode == 1
    expected = {"test_spins": "errored", "test_goes_on": "passed", **REST}
    assert reported(project.root / "report.xml") == expected, printed


SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("twice", [False, True])
def test_a_run_whose_event_loop_is_held_up_heeds_signals(
    project: Project, number: signal.Signals, twice: bool
) -> None:
    project.configure("[eval]\nparallelism = 1\n")
    project.write("tests/test_a.py", HEAD + OTHERS)
    project.write("tests/test_b.py", HEAD + SPINS.replace("TIMEOUT", "300") + BESIDE)
    # Where two are sent, the grace of the first one would never end.
    process = start_hasty(project, grace_polls=10_000 if twice else 5)
    try:
        until((project.root / "spinning").exists)
        process.send_signal(number)
        if twice:
            # Another one: two of the same kind may become one.
            process.send_signal(sum(SIGNALS) - number)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "INTERRUPTED" in stdout, stdout + stderr
    assert "Traceback" not in stderr
    assert project.rows("SELECT ended FROM runs") == [("interrupted",)]
    assert {name: project.statuses().get(name) for name in REST} == REST
    assert run(project, "verify").returncode == 0


def test_notes_that_are_too_long_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_SLOT_BYTES", 10_000)
    monkeypatch.setattr(guard, "_SHORT", 100)
    memory = guard._Memory()
    going = {f"e{n}": ("é" * 200, 1.5) for n in range(200)}
    memory.write(guard._Notes(run="r", going=going, how="x" * 20_000, unexplained="y" * 20_000))
    notes = memory.read()
    assert notes.run == "r"
    assert list(notes.going) == list(going)[:100]
    assert notes.how == "x" * 100


@pytest.mark.parametrize(
    "way", ["os._exit(0)", "os.execv('/bin/true', ['true'])", "__import__('posix')._exit(0)"]
)
def test_a_scenario_does_not_end_pytest_with_success(project: Project, way: str) -> None:
    project.write("tests/test_it.py", HEAD + SYNC.format(name="ends_it", way=way))
    done = run_pytest(project.root, "--kindlm", "tests")
    assert done.returncode not in (0, None)
    assert re.search(r"pytest is ended by os\._?ex\w+\(", done.stdout + done.stderr)


FIXTURE = """
import pytest

@pytest.fixture
def resource():
    {before}
    yield
    {after}

@scenario("passes")
def test_passes(t, resource):
    t.check(t.agent.send("hi")).contains("hi")

@scenario("fails")
def test_fails(t):
    t.check(t.agent.send("hi")).contains("zzz")
"""


@pytest.mark.parametrize(
    "text",
    [
        "os._exit(0)\n",
        FIXTURE.format(before="os._exit(0)", after=""),
        FIXTURE.format(before="", after="os._exit(0)"),
    ],
    ids=["import", "fixture", "teardown"],
)
def test_pytest_is_not_ended_with_success_beside_its_scenarios(project: Project, text: str) -> None:
    project.write("tests/test_it.py", HEAD + text)
    done = run_pytest(project.root, "--kindlm", "tests")
    assert done.returncode == 1
    assert "pytest is ended by os._exit(0) at tests/test_it.py:" in done.stdout + done.stderr
