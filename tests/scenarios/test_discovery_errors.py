"""What is told of files whose scenarios cannot be run, or are written wrongly."""

from __future__ import annotations

import sys

import pytest
from pytest_project import run_inside
from scenario_files import ONE, told_by_test
from scenario_project import Project

LOST = "class Lost(Exception):\n    def __str__(self): return self.order\n"
BAD = [
    ("\ndef test_x(:\n", 3, "SyntaxError"),
    ("\nimport no_such_module\n", 3, f"nor installed for {sys.executable}"),
    ("\nimport no_such_module\n", 3, "or name its folder in PYTHONPATH"),
    ("\nimport autogen_ext.models.no_such\n", 3, "Install its package where kindlm is installed"),
    ("raise SystemExit(3)\n", 2, "SystemExit"),
    ('@scenario("  ")\ndef test_x(t): ...\n', 2, "A scenario needs a name"),
    ("@scenario\ndef test_x(t): ...\n", 2, "Write @scenario("),
    ('@scenario("x")\ndef other(t): ...\n', 2, "test_other"),
    ('@scenario("x")\nclass TestIt: ...\n', 2, "applies to functions"),
    ('@scenario("x")\n@scenario("y")\ndef test_x(t): ...\n', 2, "two @scenario above test_x"),
    ('@scenario("x", repeats=0)\ndef test_x(t): ...\n', 2, "repeats must be"),
    ('@scenario("x", repeats=2.0)\ndef test_x(t): ...\n', 2, "repeats must be"),
    ('@scenario("x", pass_rate=Fraction(1, 2))\ndef test_x(t): ...\n', 2, "pass_rate must be"),
    ('@scenario("x", timeout=Fraction(5))\ndef test_x(t): ...\n', 2, "timeout must be"),
    ('@scenario("x", tags=[1])\ndef test_x(t): ...\n', 2, "tags must be"),
    ('@scenario("x")\ndef test_x(t): yield\n', 2, "Remove `yield` from test_x"),
    ('@scenario("x")\nasync def test_x(t): yield\n', 2, "Remove `yield` from test_x"),
    (f"{LOST}raise Lost", 4, "Lost: <exception str() failed>"),
]


IMPORTS = "from fractions import Fraction; from kindlm import scenario"


def test_files_that_do_not_import_are_reported_and_the_others_run(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, (text, _, _) in enumerate(BAD):
        project.write(f"tests/test_bad{number}.py", f"{IMPORTS}\n{text}")
    project.write("tests/test_one.py", ONE)
    assert project.test() == 1
    assert sorted(project.agent.said) == ["other", "refund"]
    shown = " ".join("".join(capsys.readouterr()).split())
    for number, (_, line, told) in enumerate(BAD):
        assert f"test_bad{number}.py:{line}" in shown
        assert told in shown


@pytest.mark.parametrize("ending", ["skip('in tests only')", "fail('it cannot be')"])
def test_a_file_that_ends_its_import_otherwise_is_an_error(project: Project, ending: str) -> None:
    project.write("tests/test_bad.py", f"from kindlm import *\nimport pytest\npytest.{ending}\n")
    project.write("tests/test_one.py", ONE)
    assert project.test() == 1
    assert len(project.agent.said) == 2


TWO = """
class TestIt:
    @scenario("one")
    async def test_it(self, t: Trial): ...

    @scenario("two")
    async def test_it(self, t: Trial): ...
"""


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        (ONE.replace("test_other", "test_refund"), "test_refund", 3),
        ("from kindlm import *" + TWO, "TestIt::test_it", 3),
        ("from kindlm import *" + TWO.replace("test_it", "test_a", 1) + TWO, "TestIt::test_a", 3),
        (
            ONE.partition("@")[0] + "try:\n  @scenario('x')\n  async def test_it(t): ...\nexcept:"
            " pass\n@scenario('y')\nasync def test_it(t): ...\n",
            "test_it",
            4,
        ),
    ],
)
def test_two_tests_of_one_name_are_an_error(
    project: Project,
    capsys: pytest.CaptureFixture[str],
    text: str,
    name: str,
    line: int,
) -> None:
    project.write("tests/test_it.py", text)
    assert project.test() == 1
    assert project.agent.said == []
    shown = " ".join(capsys.readouterr().err.split())
    assert f"The scenario {name} is lost: " in shown
    assert f"test_it.py:{line}" in shown
    assert project.rows("SELECT line FROM suites") == [(line,)]


def test_two_sides_of_a_condition_may_have_one_name(project: Project) -> None:
    test = ONE.partition("\n")[2].replace("\n", "\n  ")
    assert project.test(tests=f"\nif True:\n  {test}pass\nelse:\n  {test}pass\n") == 0


def test_two_tests_of_one_name_are_an_error_under_pytest_too(project: Project) -> None:
    project.write("tests/test_it.py", ONE.replace("test_other", "test_refund"))
    done = run_inside(project.root, "--kindlm")
    assert done.returncode == 1
    assert "The scenario test_refund is lost: " in done.stdout
    assert project.agent.said == []


def test_a_test_that_takes_a_trial_and_is_no_scenario_is_reported(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/test_it.py", ONE + "\nasync def test_x(t: Trial) -> None: ...\n")
    code, told = told_by_test(capsys)
    assert code == 0
    assert "test_x takes a trial and is not run" in told
    assert "@scenario(" in told


HIDING = """
def quiet(function):
    async def call(*arguments):
        return None

    return call

class TestOther:
    def test_x(self) -> None: ...

@quiet
@scenario("x")
async def test_x(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("never")
"""


def test_a_scenario_that_a_decorator_hides_is_an_error(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/test_it.py", ONE + HIDING)
    code, told = told_by_test(capsys)
    assert code == 1
    assert "The scenario test_x is lost: a decorator above @scenario hides it" in told
    assert "TestOther" not in told


@pytest.mark.parametrize(
    "text",
    ["def bare(f):\n    return lambda: None\n\n@bare\n{}", "{}\n\ndef test_x(): ...\n"],
)
@pytest.mark.parametrize("beside", ["", ONE])
def test_a_scenario_that_is_a_plain_function_now_fails_under_pytest(
    project: Project, text: str, beside: str
) -> None:
    scenario = "@scenario('x')\nasync def test_x(t: Trial): ..."
    project.write("tests/test_it.py", "from kindlm import *\n" + text.format(scenario))
    if beside:
        project.write("tests/test_one.py", beside)
    done = run_inside(project.root, "--kindlm")
    assert done.returncode == 1, done.stdout
    assert "The scenario test_x is lost: " in done.stdout
    assert ("2 passed" in done.stdout) is bool(beside)


@pytest.mark.parametrize("arguments", ["", "order, customer"])
def test_a_scenario_that_takes_no_trial_is_an_error(
    project: Project, capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    project.write("tests/test_one.py", ONE)
    text = f'from kindlm import *\n\n@scenario("x")\nasync def test_x({arguments}): ...\n'
    project.write("tests/test_it.py", text)
    code, told = told_by_test(capsys)
    assert code == 1
    assert len(project.agent.said) == 2
    assert "test_x takes no trial" in told
    assert "test_it.py:3" in told


@pytest.mark.parametrize(
    "text", ["", "import pytest\npytest.skip('no wish', allow_module_level=True)\n"]
)
def test_files_without_tests_are_reported_as_such(
    project: Project, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    project.write("tests/test_it.py", f"from kindlm import *\n{text}")
    code, told = told_by_test(capsys)
    assert code == 1
    assert "there are no tests in tests/test_it.py" in told


@pytest.mark.parametrize(
    "values", ["[(1,)]", "[(1, 2)], ids=lambda value: 1 / 0", "[(1, 2)], ids=[object()]"]
)
def test_parameters_that_are_wrong_are_reported_at_their_test(
    project: Project, capsys: pytest.CaptureFixture[str], values: str
) -> None:
    project.write("tests/test_one.py", ONE)
    project.write(
        "tests/test_it.py",
        f"""from kindlm import *
import pytest

@pytest.mark.parametrize("a,b", {values})
@scenario("x")
async def test_x(t: Trial, a, b) -> None: ...
""",
    )
    code, told = told_by_test(capsys)
    assert code == 1
    assert len(project.agent.said) == 2
    assert "test_it.py:4" in told
    assert "marks of test_x" in told


def test_a_missing_agent_is_reported_with_the_way_out(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("kindlm.toml", "")
    project.write("tests/test_one.py", ONE)
    assert project.test() == 1
    shown = capsys.readouterr()
    assert "[agent]" in shown.out + shown.err


def test_an_agent_that_is_described_wrongly_is_reported_at_the_scenario(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert project.test(tests='\n@scenario("x", agent={"url": "x"})\nasync def test_it(t): ...\n')
    shown = capsys.readouterr()
    assert "test_it.py:2" in shown.out + shown.err
    assert "agent of @scenario" in shown.out + shown.err


def test_a_run_without_a_test_that_loads_belongs_to_the_project(project: Project) -> None:
    assert project.test(tests="\nraise SystemExit(3)\n") == 1
    assert project.rows("SELECT project FROM runs") == [("shop",)]
