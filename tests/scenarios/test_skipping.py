"""Scenarios that are skipped: by marks, by themselves, and for want of what only pytest does."""

from __future__ import annotations

import re

import pytest
from pytest_project import run_inside
from scenario_files import ONE, told_by_test
from scenario_project import Project

from kindlm.cli.app import run

MARKED = """
import pytest

@pytest.mark.skip(reason="it is dangerous")
@scenario("x")
async def test_skip(t: Trial): ...

@pytest.mark.skipif(1 == 1, reason="so it is")
@scenario("x")
async def test_skipif(t: Trial): ...

@pytest.mark.xfail(run=False)
@scenario("x")
async def test_never_run(t: Trial): ...

@pytest.mark.skip
class TestSkipped:
    @scenario("x")
    async def test_inside(self, t: Trial): ...

@pytest.mark.skipif(1 == 2, reason="never")
@pytest.mark.xfail
@pytest.mark.parametrize("v", ["runs", pytest.param("skipped", marks=pytest.mark.skip)])
@scenario("x")
async def test_some(t: Trial, v):
    t.check(await t.agent.send(v)).contains("runs")
"""


def test_marks_that_skip_are_heeded(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    file = project.write("tests/test_it.py", "from kindlm import *" + MARKED)
    code, told = told_by_test(capsys)
    assert code == 0
    assert "run pytest" not in told
    assert project.agent.said == ["runs"]
    assert project.statuses() == {
        "test_skip": "skipped",
        "test_skipif": "skipped",
        "test_never_run": "skipped",
        "TestSkipped::test_inside": "skipped",
        "test_some[runs]": "passed",
        "test_some[skipped]": "skipped",
    }
    file.write_text(file.read_text() + "\npytestmark = [pytest.mark.skip]\n")
    assert project.test() == 1  # nothing was tested
    assert set(project.statuses().values()) == {"skipped"}


COUNTING = [
    ("@pytest.mark.usefixtures('ready')\n{test}", "the fixture ready"),
    ("@pytest.mark.skipif('sys.platform')\n{test}", "'sys.platform'"),
    ("@pytest.mark.xfail('sys.platform', run=False)\n{test}", "its xfail has the text"),
    ("pytestmark = pytest.mark.usefixtures('ready')\n{test}", "the fixture ready"),
    ("@pytest.fixture(autouse=True)\ndef ready(): ...\n{test}", "ready, which is automatic"),
    ("from ready import *\n{test}", "ready, which is automatic"),
    ("def setup_module(): ...\n{test}", "setup_module"),
    ("def setup_function(): ...\n{test}", "setup_function"),
    ("class TestIt:\n def setup_method(self): ...\n {method}", "setup_method"),
    ("def pytest_generate_tests(metafunc): ...\n{test}", "pytest_generate_tests"),
    (
        "class TestIt:\n @pytest.fixture(autouse=True)\n def ready(self): ...\n {method}",
        "ready, which is automatic",
    ),
    (
        "class TestIt:\n @pytest.fixture\n def agent(self): ...\n class TestThat:\n  {inner}",
        "the fixture agent is a method of TestIt",
    ),
]


def test_a_test_that_counts_on_pytest_is_skipped_with_a_hint(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write(
        "tests/ready.py", "import pytest\n@pytest.fixture(autouse=True)\ndef ready(): ...\n"
    )
    test = "@scenario('x')\ndef test_it(t: Trial): ..."
    method = "@scenario('x')\n def test_it(self, t: Trial): ..."
    inner = method.replace("\n", "\n ")
    for number, (text, _) in enumerate(COUNTING):
        head = "from kindlm import *\nimport pytest\n"
        body = text.format(test=test, method=method, inner=inner)
        project.write(f"tests/test_{number}.py", f"{head}{body}\n")
    code, found = told_by_test(capsys)
    assert code == 1  # nothing was tested
    assert list(project.tests().values()) == ["skipped"] * len(COUNTING)
    hints = re.findall(r"is skipped: (.*?) /\S+/test_(\d+)\.py:\d+", found)
    assert len(hints) == len(COUNTING)
    for hint, number in hints:
        assert COUNTING[int(number)][1] in hint


@pytest.mark.parametrize(
    ("place", "runs"), [("conftest.py", 0), ("tests/conftest.py", 0), ("tests/b/conftest.py", 1)]
)
def test_an_automatic_fixture_of_a_conftest_that_applies_is_not_passed_over(
    project: Project, capsys: pytest.CaptureFixture[str], place: str, runs: int
) -> None:
    project.write("tests/a/test_one.py", ONE)
    fixture = "import pytest\n@pytest.fixture(autouse=True)\ndef ready(): ...\n"
    project.write(place, fixture + "raise ValueError('it is read, not run')\n")
    _, told = told_by_test(capsys, "-t", "test_refund")
    assert len(project.agent.said) == runs
    assert ("needs the fixture ready" in told) is not bool(runs)


def test_a_conftest_that_cannot_be_read_is_reported_and_its_tests_do_not_run(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/a/test_one.py", ONE)
    project.write("tests/a/conftest.py", "ready = 1\nx = (\n")
    project.write("tests/b/test_other.py", ONE.replace("refund", "else"))
    code, told = told_by_test(capsys, "-t", "Refund flow")
    assert code == 1
    assert project.agent.said == ["else"]
    assert "conftest.py cannot be read: SyntaxError: '(' was never closed" in told
    assert "conftest.py:2" in told


def test_a_test_that_needs_a_fixture_is_skipped_with_a_hint(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/test_one.py", ONE)
    project.write(
        "tests/test_two.py",
        'from kindlm import *\n@scenario("x")\ndef test_x(t: SyncTrial, tmp_path): ...\n',
    )
    assert run(["test", "tests"]) == 0
    assert project.statuses()["test_x"] == "skipped"
    shown = capsys.readouterr()
    assert "pytest --kindlm" in shown.err + shown.out


def test_a_file_that_skips_itself_keeps_no_other_from_running(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    skips = "from kindlm import *\nimport pytest\n"
    project.write("tests/test_a.py", skips + "pytest.importorskip('no_such_module')\n")
    project.write("tests/test_b.py", skips + "pytest.skip('why', allow_module_level=True)\n")
    project.write("tests/test_c.py", ONE)
    code, told = told_by_test(capsys)
    assert code == 0
    assert len(project.agent.said) == 2
    assert "no_such_module" in told
    assert "why" in told
    assert "test_b.py:3" in told


@pytest.mark.parametrize("kind", ["async def", "def"])
def test_a_scenario_that_skips_itself_from_inside_is_errored(
    project: Project, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    text = f"""from kindlm import *
import pytest

@scenario("x")
{kind} test_x(t) -> None:
    t.require(True)
    pytest.skip("no wish")
"""
    project.write("tests/test_it.py", text)
    code, told = told_by_test(capsys)
    assert code == 1
    assert project.statuses() == {"test_x": "errored"}
    assert "cannot skip itself after it has started (tests/test_it.py:7)" in told
    done = run_inside(project.root, "--kindlm")
    assert done.returncode == 1
    assert project.statuses() == {"test_x": "errored"}
    assert "cannot skip itself after it has started (tests/test_it.py:7)" in done.stdout
