"""Scenarios under pytest: run and recorded with --kindlm, skipped without."""

from __future__ import annotations

import json
import logging
import re
import signal
import threading
from typing import Any

import pytest
from pytest_project import Done, run_inside, run_new_pytest, run_pytest, start_pytest
from scenario_project import Project

from kindlm.cli.app import run
from kindlm.history.runs import REASON

MIXED = """
import pytest
from kindlm import SyncTrial, Trial, scenario

@pytest.fixture
def order():
    return "A1"

@scenario("an async one")
async def test_async(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")

@scenario("a sync one with a fixture", repeats=2)
@pytest.mark.parametrize("word", ["x", "y"])
def test_sync(order: str, trial: SyncTrial, word: str) -> None:
    reply = trial.agent.send(f"{word} {order}")
    trial.check(reply).contains("x")
    assert word == "x"

class TestMore:
    @scenario("a method")
    @pytest.mark.calm
    async def test_method(self, t: Trial, order) -> None:
        t.check(await t.agent.send("hi")).contains("hi")

def test_plain() -> None:
    pass
"""


def write_mixed(project: Project) -> None:
    project.write("pytest.ini", "[pytest]\nmarkers = calm\n")
    project.write("tests/test_it.py", MIXED)


def outcomes(done: Done) -> dict[str, int]:
    last = done.stdout.rstrip().splitlines()[-1]
    found = re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])
    # How kindlm is installed decides what pytest warns of: that it cannot rewrite what is loaded.
    return {how: int(number) for number, how in found if not how.startswith("warning")}


def runs(project: Project) -> list[tuple[Any, ...]]:
    sql = f"SELECT ended, {REASON}, planned, passed FROM runs r ORDER BY started_at"
    return project.rows(sql)


SILENT = """
import sys

def test_nothing_heavy_was_loaded():
    heavy = {"kindlm.engine", "kindlm.recording", "kindlm.cli", "pydantic", "sqlite3", "httpx"}
    assert not heavy & set(sys.modules)
"""


def test_it_is_silent_in_a_project_anyway(project: Project) -> None:
    project.write("tests/test_it.py", SILENT)
    done = run_new_pytest(project.root, "-rA", "-v")
    assert done.returncode == 0, done.stdout
    without = run_new_pytest(project.root, "-rA", "-v", plugins=("xdist.plugin",))
    assert _untimed(done.stdout) == _untimed(without.stdout)
    assert (done.stderr, (project.root / ".kindlm").exists()) == ("", False)


def _untimed(output: str) -> str:
    return re.sub(r"in \d+\.\d+s", "", output)


def test_scenarios_are_skipped_with_a_hint_unless_they_are_asked_for(project: Project) -> None:
    write_mixed(project)
    done = run_inside(project.root, "-rs", "-q")
    assert outcomes(done) == {"passed": 1, "skipped": 4}
    assert "a scenario of kindlm: run pytest --kindlm, or kindlm test" in done.stdout
    assert "kindlm run" not in done.stdout
    assert not (project.root / ".kindlm").exists()
    assert project.agent.said == []


def test_items_run_with_fixtures_and_parameters_and_fail_with_their_checks(
    project: Project,
) -> None:
    write_mixed(project)
    done = run_inside(project.root, "--kindlm")
    assert (done.returncode, outcomes(done)) == (1, {"failed": 1, "passed": 4}), done.stdout
    [(name,)] = project.rows("SELECT id FROM runs")
    assert (
        f"""
Missing in the answer: "x"
    said      "You said: y A1"
    at        tests/test_it.py:17
    look      kindlm show {name} 4
assert 'y' == 'x'
    at        tests/test_it.py:18
0 of 2 repeats passed
"""
        in done.stdout
    )
    assert 'test_sync[y] - Failed: Missing in the answer: "x"' in done.stdout
    assert runs(project) == [("finished", None, 6, 0)]
    assert f"kindlm run {name}: kindlm show {name}" in done.stdout
    assert project.rows("SELECT DISTINCT test, status FROM executions ORDER BY number") == [
        ("tests/test_it.py::test_async", "passed"),
        ("tests/test_it.py::test_sync[x]", "passed"),
        ("tests/test_it.py::test_sync[y]", "failed"),
        ("tests/test_it.py::TestMore::test_method", "passed"),
    ]


LOGS = """
import logging
from kindlm import Trial, scenario

@scenario("x", repeats=1)
async def test_failure(t: Trial) -> None:
    logging.getLogger("shop").warning("a line of the test")
    await t.agent.send("hi")

def test_of_the_user():
    logging.getLogger("shop").warning("a line of the test")
    assert False
"""


@pytest.mark.parametrize(
    ("options", "environ", "is_shown"),
    [
        ((), {}, False),
        (("--log-level=WARNING",), {}, False),
        ((), {"KINDLM_LOG": "warning"}, True),
        ((), {"KINDLM_LOG": "error"}, False),
    ],
)
def test_log_lines_of_kindlm_are_captured_only_for_those_who_ask(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    environ: dict[str, str],
    is_shown: bool,
) -> None:
    project.agent.say(404)
    project.write("tests/test_it.py", LOGS)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    before = logging.getLogger("kindlm").level
    done = run_inside(project.root, "--kindlm", *options)
    assert outcomes(done)["failed"] == 2, done.stdout
    assert ("The call failed" in done.stdout) is is_shown
    assert "a line of the test" in done.stdout
    assert logging.getLogger("kindlm").level == before


def test_an_unknown_level_of_log_lines_is_a_warning(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("tests/test_it.py", LOGS)
    monkeypatch.setenv("KINDLM_LOG", "verbse")
    done = run_inside(project.root, "--kindlm")
    assert "KINDLM_LOG=verbse is not a level: kindlm logs nothing" in done.stdout


def test_a_failed_assert_shows_what_the_agent_did_as_it_is(project: Project) -> None:
    arguments = {"order_id": "A1"}
    project.agent.answer = lambda _: {
        "message": 'He said "no".\n\nRegards, \x1b[31mÄnne' + "!" * 5_000,
        "tool_calls": [{"name": "issue_refund", "arguments": arguments}],
    }
    project.write(
        "tests/test_it.py",
        """
from kindlm import Trial, scenario

@scenario("x")
async def test_text(t: Trial) -> None:
    reply = await t.agent.send("hi")
    assert "sorry" in reply.text

@scenario("x")
async def test_reply(t: Trial) -> None:
    reply = await t.agent.send("hi")
    assert reply.mentions("sorry"), "no apology"

@scenario("x")
async def test_required(t: Trial) -> None:
    t.require((await t.agent.send("hi")).mentions("sorry"))
""",
    )
    done = run_inside(project.root, "--kindlm", "-vv")
    [(name,)] = project.rows("SELECT id FROM runs")
    for number, (reason, line) in enumerate(
        [
            ('assert "sorry" in reply.text', 7),
            ("no apology", 12),
            ('t.require((await t.agent.send("hi")).mentions("sorry"))', 16),
        ],
        start=1,
    ):
        shown = done.stdout.partition(f"\n{reason}\n")[2].splitlines()
        assert shown[0] == '    called    issue_refund {"order_id": "A1"}'
        assert shown[1].startswith('    said      "He said "no". Regards, \\x1b[31mÄnne!!!')
        assert len(shown[1]) < 300
        assert shown[2:4] == [
            f"    at        tests/test_it.py:{line}",
            f"    look      kindlm show {name} {number}",
        ]


def test_no_answer_gives_commands_to_the_runner_of_github(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    project.agent.answer = lambda _: {"message": "a ##[error]pwned ##[group]x"}
    project.write(
        "tests/test_it.py",
        """
from kindlm import SyncTrial, scenario

@scenario("x")
def test_it(t: SyncTrial) -> None:
    t.check(t.agent.send("hi")).contains("hello")
""",
    )
    done = run_inside(project.root, "--kindlm")
    assert '"a ##\\u005berror]pwned ##\\u005bgroup]x"' in done.stdout
    assert "##[" not in done.stdout


@pytest.mark.parametrize(
    ("options", "ran"),
    [
        (["-k", "sync and x"], ["test_sync[x]"]),
        (["-m", "calm"], ["TestMore::test_method"]),
        (["tests/test_it.py::test_async"], ["test_async"]),
    ],
)
def test_what_pytest_leaves_out_is_known_and_not_selected(
    project: Project, options: list[str], ran: list[str]
) -> None:
    write_mixed(project)
    done = run_inside(project.root, "--kindlm", "-W", "ignore", *options)
    assert done.returncode == 0, done.stdout
    assert sorted(project.statuses()) == ran
    selected = dict(project.rows("SELECT test, selected FROM planned_tests"))
    assert len(selected) >= 3
    assert [test for test in selected if selected[test]] == [f"tests/test_it.py::{ran[0]}"]


def test_tests_that_last_failed_leave_the_others_known_and_not_selected(project: Project) -> None:
    write_mixed(project)
    for option in ([], ["--lf"]):
        done = run_inside(project.root, "-p", "cacheprovider", "--kindlm", *option)
        assert done.returncode == 1, done.stderr
    sql = (
        "SELECT test, selected FROM planned_tests p JOIN suites s ON s.id = p.suite"
        " WHERE s.run = (SELECT id FROM runs ORDER BY started_at DESC LIMIT 1)"
    )
    selected = dict(project.rows(sql))
    assert len(selected) == 4
    assert [test for test in selected if selected[test]] == ["tests/test_it.py::test_sync[y]"]


BOTH = """
import pytest
from kindlm import SyncTrial, Trial, scenario

@scenario("one", repeats=2)
async def test_one(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi").latency(60_000)

@scenario("two")
@pytest.mark.parametrize("word", ["x", "é y"])
@pytest.mark.parametrize("number", [1, 2])
def test_two(t: SyncTrial, word: str, number: int) -> None:
    t.check(t.agent.send(word)).contains(word)
"""


def test_a_run_of_pytest_is_compared_with_one_of_kindlm_test(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/test_it.py", BOTH)
    assert run(["test", "tests", "--quiet"]) == 0
    assert run_inside(project.root, "--kindlm").returncode == 0
    told = project.rows(
        "SELECT s.name, s.config_hash, e.test, e.target, e.repeat, e.status,"
        " a.kind, a.label, a.line FROM executions e JOIN suites s ON s.id = e.suite"
        " JOIN assertions a ON a.execution = e.id"
        " ORDER BY e.run, e.number, a.position"
    )
    assert told[: len(told) // 2] == told[len(told) // 2 :]
    assert len(told) == 16
    capsys.readouterr()
    assert run(["diff", "previous", "latest"]) == 0


UNCALLED = [
    "class TestIt:\n    def __init__(self): ...",
    "class TestIt:\n    def __new__(cls): ...",
    "class TestIt(unittest.TestCase):\n    ready = True",
]


@pytest.mark.parametrize("head", UNCALLED)
@pytest.mark.parametrize("options", [[], ["tests/test_it.py::test_four"], ["-k", "four"]])
def test_a_scenario_in_a_class_that_pytest_gives_no_trial_is_an_error_as_in_kindlm_test(
    project: Project, capsys: pytest.CaptureFixture[str], head: str, options: list[str]
) -> None:
    project.write(
        "tests/test_it.py",
        f"""
import unittest
from kindlm import SyncTrial, Trial, scenario

{head}

    @scenario("five")
    def test_five(self, t: SyncTrial) -> None: ...

@scenario("four")
async def test_four(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
""",
    )
    assert run(["test", "tests", "--quiet"]) == 1
    assert "pytest gives no trial to tests of TestIt" in capsys.readouterr().err
    done = run_inside(project.root, "--kindlm", "-W", "ignore", *options)
    assert done.returncode == 1
    assert "pytest gives no trial to tests of TestIt" in done.stdout


def test_other_plugins_for_async_tests_do_not_get_in_the_way(project: Project) -> None:
    # As pytest-asyncio does it in its automatic mode.
    project.write(
        "conftest.py",
        """
import asyncio, functools, inspect
import pytest

def pytest_runtest_call(item):
    if inspect.iscoroutinefunction(item.obj):
        original = item.obj
        @functools.wraps(original)
        def run(*args, **kwargs):
            asyncio.run(original(*args, **kwargs))
        item.obj = run
""",
    )
    write_mixed(project)
    done = run_inside(project.root, "--kindlm", "-k", "async or method")
    assert outcomes(done) == {"passed": 2, "deselected": 3}, done.stdout
    assert len(project.agent.said) == 2


def test_a_fixture_that_stops_the_clock_holds_up_nothing(project: Project) -> None:
    # As freezegun does it.
    project.write(
        "tests/test_it.py",
        """
import asyncio, time
import pytest
from kindlm import Trial, scenario

@pytest.fixture
def frozen(monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(time, "time_ns", lambda: 0)

async def answer(text):
    await asyncio.sleep(0.001)
    return {"text": str(time.time_ns()), "tool_calls": []}

@scenario("long ago", agent=answer)
async def test_it(t: Trial, frozen) -> None:
    t.check(await t.agent.send("hi")).equals("0")
""",
    )
    done = run_inside(project.root, "--kindlm")
    assert outcomes(done) == {"passed": 1}, done.stdout
    years = project.rows("SELECT DISTINCT substr(at, 1, 4) FROM event_log")
    assert "1970" not in {year for (year,) in years}


def test_scenarios_in_yaml_are_items_too(project: Project) -> None:
    project.write("tests/config.yaml", "says: nothing\n")
    project.write(
        "tests/orders.yaml",
        """\
- name: good
  turns:
    - says: Where is it?
      expect: {contains: where}
- name: bad
  turns: [{says: Hello}]
  assertions: [{contains: refund}]
""",
    )
    done = run_inside(project.root, "--kindlm")
    assert outcomes(done) == {"failed": 1, "passed": 1}, done.stdout
    assert 'Missing in the answer: "refund"' in done.stdout
    assert "at        tests/orders.yaml:7\n" in done.stdout
    assert run(["test", "tests", "--quiet"]) == 1
    told = project.rows(
        "SELECT s.config_hash, e.test, e.status, a.label, a.line FROM executions e"
        " JOIN suites s ON s.id = e.suite JOIN assertions a ON a.execution = e.id"
        " ORDER BY e.run, e.number"
    )
    assert told[:2] == told[2:]
    project.write("tests/orders.yaml", "name: x\nturns: [{says: 1, expects: {}}]\n")
    broken = run_inside(project.root, "--kindlm")
    assert broken.returncode == pytest.ExitCode.INTERRUPTED
    assert "expects" in broken.stdout
    assert run_inside(project.root).returncode == pytest.ExitCode.NO_TESTS_COLLECTED


def test_what_never_came_to_run_is_recorded_as_such(project: Project) -> None:
    project.write(
        "tests/test_it.py",
        """
import pytest
from kindlm import Trial, scenario

@pytest.fixture
def broken():
    raise OSError("no database")

@pytest.fixture
def refused():
    pytest.fail("no such order")

@pytest.fixture
def elsewhere():
    pytest.skip("not here")

@scenario("marked")
@pytest.mark.skip
async def test_marked(t: Trial) -> None: ...

@scenario("fixture skips")
async def test_elsewhere(t: Trial, elsewhere) -> None: ...

@scenario("fixture fails")
async def test_broken(t: Trial, broken) -> None: ...

@scenario("fixture fails, as it should")
@pytest.mark.xfail
async def test_known(t: Trial, broken) -> None: ...

@scenario("not run")
@pytest.mark.xfail(run=False)
async def test_never_run(t: Trial, broken) -> None: ...

@scenario("fixture refuses")
async def test_refused(t: Trial, refused) -> None: ...

@scenario("says so itself")
async def test_says(t: Trial) -> None:
    pytest.fail("not good enough")
""",
    )
    done = run_inside(project.root, "--kindlm")
    assert outcomes(done) == {"failed": 1, "skipped": 2, "xfailed": 2, "errors": 2}, done.stdout
    assert project.statuses() == {
        "test_marked": "skipped",
        "test_elsewhere": "skipped",
        "test_broken": "errored",
        "test_known": "errored",
        "test_never_run": "skipped",
        "test_refused": "errored",
        "test_says": "failed",
    }
    assert runs(project) == [("finished", None, 7, 0)]
    assert "not good enough" in done.stdout


AROUND = """
import pytest
from kindlm import SyncTrial, Trial, scenario

@pytest.fixture
def order():
    yield "A1"
    {teardown}

@scenario("passes")
async def test_passes(t: Trial, order: str) -> None:
    t.check(await t.agent.send("hi")).contains("hi")

@scenario("has parts")
def test_parts(t: SyncTrial, subtests) -> None:
    reply = t.agent.send("hi")
    t.check(reply).contains("hi")
    with subtests.test("second"):
        assert {second}

@scenario("is known to fail")
@pytest.mark.xfail(strict=True)
async def test_known(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains({known})
"""


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"teardown": "raise OSError"}, "1 test that did not fail here: {}test_passes (teardown)"),
        ({"second": "0"}, "1 test that did not fail here: {}test_parts (call)"),
        ({"known": "'hi'"}, "1 test that did not fail here: {}test_known (call)"),
    ],
)
def test_a_run_is_not_passed_where_pytest_fails_what_passed(
    project: Project, changed: dict[str, str], reason: str
) -> None:
    text = AROUND
    for name, usual in {"teardown": "", "second": "1", "known": "'no'"}.items():
        text = text.replace(f"{{{name}}}", changed.get(name, usual))
    project.write("tests/test_it.py", text)
    done = run_inside(project.root, "--kindlm")
    assert done.returncode == 1
    [(ended, told, _, passed)] = runs(project)
    why = f"pytest failed {reason.format('tests/test_it.py::')}"
    assert (ended, told, passed) == ("interrupted", why, None)
    assert project.statuses()["test_passes"] == "passed"


def test_a_run_is_not_passed_if_pytest_cannot_import_its_scenarios(project: Project) -> None:
    project.write("tests/test_it.py", BOTH)
    project.write("tests/test_of_the_user.py", "import nowhere\n")
    project.write("tests/of_the_user/conftest.py", "import nowhere\n")
    project.write("tests/of_the_user/test_more.py", "def test_more(): pass\n")
    anyway = "--continue-on-collection-errors"
    assert run_inside(project.root, "--kindlm", anyway).returncode == 1
    project.write("tests/test_lost.py", "import nowhere\nfrom kindlm import Trial, scenario\n")
    assert run_inside(project.root, "--kindlm", anyway).returncode == 1
    (first, second) = runs(project)
    assert first[:2] == ("finished", None)
    assert second[:2] == ("interrupted", "pytest could not collect tests/test_lost.py")


def test_a_scenario_that_a_plugin_reruns_fails_again_with_its_cause(project: Project) -> None:
    project.write(
        "conftest.py",
        """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    runtestprotocol(item, nextitem=nextitem, log=False)
    runtestprotocol(item, nextitem=nextitem)
    return True
""",
    )
    write_mixed(project)
    done = run_inside(project.root, "--kindlm", "-k", "async or test_sync")
    assert outcomes(done) == {"failed": 3, "deselected": 2}, done.stdout
    shown = done.stdout.partition("short test summary")[0]  # which repeats all of it in CI
    assert shown.count('Missing in the answer: "x"\n    said ') == 1
    assert shown.count("\na scenario runs once in a session: to repeat it, write") == 3
    assert len(project.agent.said) == 5


def test_a_scenario_that_a_plugin_ends_is_errored(project: Project) -> None:
    project.write(
        "conftest.py",
        """
import signal
import threading
import pytest

def fire(*_):
    pytest.fail("Timeout of a plugin")

@pytest.fixture
def short():
    signal.signal(signal.SIGUSR1, fire)
    main = threading.main_thread().ident
    return lambda: signal.pthread_kill(main, signal.SIGUSR1)
""",
    )
    project.write(
        "tests/test_it.py",
        """
import asyncio
from kindlm import SyncTrial, Trial, scenario

@scenario("is ended")
async def test_ended(t: Trial, short) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
    short()
    await asyncio.sleep(600)

@scenario("goes on")
def test_next(t: SyncTrial) -> None:
    t.check(t.agent.send("hi")).contains("hi")
""",
    )
    done = run_pytest(project.root, "--kindlm")
    assert outcomes(done) == {"failed": 1, "passed": 1}, done.stdout
    assert project.statuses() == {"test_ended": "errored", "test_next": "passed"}
    [(error,)] = project.rows(
        "SELECT x.body FROM executions e JOIN contents x ON x.ref = e.error_ref"
    )
    assert error == "pytest ended the scenario: Failed: Timeout of a plugin"
    assert runs(project) == [("finished", None, 2, 0)]


def test_stopped_early_a_run_says_so_and_is_not_resumed(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/test_it.py", BOTH.replace("contains(word)", "contains('no')"))
    done = run_inside(project.root, "--kindlm", "-x")
    assert outcomes(done) == {"failed": 1, "passed": 1}
    stopped = "pytest stopped: stopping after 1 failures"
    assert runs(project) == [("interrupted", stopped, 6, None)]
    assert run(["test", "--resume"]) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "pytest selected and started its tests" in told
    assert "as a new run: pytest --kindlm. With --lf, those that never ran are left out." in told
    run(["show"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split() == ["Next:", "pytest", "--kindlm"]
    run(["show", "--db", ".kindlm/kindlm.db"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split()[1:] == ["pytest", "--kindlm", "--kindlm-db", ".kindlm/kindlm.db"]


# What is in flight has next to no time to end.
HASTY = """
from kindlm.engine.stop import Stop
Stop.__init__.__defaults__ = (0.1,)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cuts_off_what_is_in_flight_and_the_run_says_so(
    project: Project, number: signal.Signals
) -> None:
    asked = threading.Event()

    def hang(request: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        project.agent.release.wait(30)
        return {"message": "late"}

    project.agent.answer = hang
    project.write("tests/test_it.py", BOTH)
    project.write("conftest.py", HASTY)
    process = start_pytest(project.root, "--kindlm")
    assert asked.wait(60)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2, output
    assert runs(project) == [("interrupted", "pytest was interrupted", 6, None)]
    [(status,)] = project.rows("SELECT DISTINCT status FROM executions")
    assert status is None


def test_an_agent_that_is_not_configured_fails_each_item_with_the_way_out(
    project: Project,
) -> None:
    project.write("kindlm.toml", 'project = "shop"\n')
    project.write("tests/test_it.py", BOTH)
    done = run_inside(project.root, "--kindlm")
    assert outcomes(done) == {"failed": 5}
    assert "There is no agent to test" in done.stdout
    assert "Name it in kindlm.toml" in done.stdout
    [(path, code)] = project.rows("SELECT path, error_code FROM suites")
    assert (path, code) == ("tests/test_it.py", "CONFIG_VALIDATION_ERROR")


def test_a_limit_of_costs_keeps_the_rest_from_running(project: Project) -> None:
    project.agent.answer = lambda request: {"message": request["message"], "cost": 0.5}
    project.write("tests/test_it.py", BOTH)
    done = run_inside(project.root, "--kindlm", "--kindlm-max-cost", "0.1")
    assert done.returncode == 1
    assert "It did not finish" in done.stdout
    [(ended, reason, _, _)] = runs(project)
    assert ended == "aborted"
    assert "--max-cost" in reason


def test_repeats_label_and_history_are_options(project: Project) -> None:
    project.write("tests/test_it.py", BOTH)
    options = ("--kindlm-repeat", "3", "--kindlm-label", "candidate", "--kindlm-db", "other.db")
    done = run_inside(project.root, "--kindlm", "-k", "test_one", *options)
    assert done.returncode == 0, done.stdout
    assert "--db other.db" in done.stdout
    project.root.joinpath(".kindlm").mkdir(exist_ok=True)
    project.root.joinpath("other.db").rename(project.root / ".kindlm" / "kindlm.db")
    assert project.rows("SELECT label, planned FROM runs") == [("candidate", 3)]


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--kindlm-repeat", "0", "from 1 to 100"),
        ("--kindlm-max-cost", "nan", "not a limit"),
        ("--kindlm-label", "latest", "cannot be a label"),
    ],
)
def test_options_that_cannot_be_meant(project: Project, option: str, value: str, told: str) -> None:
    done = run_inside(project.root, "--kindlm", option, value)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert told in done.stderr


def test_reports_of_the_configuration_are_written(project: Project) -> None:
    project.write("tests/test_it.py", BOTH)
    project.configure('\n[report]\nformats = ["json", "junit"]\n')
    done = run_inside(project.root, "--kindlm")
    assert done.returncode == 0, done.stdout
    [(name,)] = project.rows("SELECT id FROM runs")
    report = json.loads((project.root / "reports/report.json").read_text("utf-8"))
    assert name in json.dumps(report)
    assert 'tests="5"' in (project.root / "reports/report.xml").read_text("utf-8")
    (project.root / "reports/report.xml").unlink()
    (project.root / "reports/report.xml").mkdir()
    again = run_inside(project.root, "--kindlm")
    assert again.returncode == 1
    assert "it is a folder" in again.stdout
