"""Which files hold scenarios, how they are imported and called, and what is told of errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_project import run_inside
from scenario_project import Project

from kindlm.cli.app import run

ONE = """from kindlm import Trial, scenario

@scenario("Refund flow", tags={"money"})
async def test_refund(t: Trial) -> None:
    t.check(await t.agent.send("refund")).contains("refund")

@scenario("Something else")
async def test_other(t: Trial) -> None:
    t.check(await t.agent.send("other")).contains("other")
"""

PARAMETRIZED = """
import pytest

@pytest.mark.parametrize("word", ["one", pytest.param("two", id="second"), 3])
@pytest.mark.parametrize(("a", "b"), [(1, None), (True, [1])], ids=["x", None])
@scenario("words")
async def test_words(t: Trial, word, a, b) -> None:
    t.check(await t.agent.send(f"{word} {a} {b}")).contains(str(word))
"""


def told_by_test(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """Run `kindlm test tests`, and return its exit code and all that it tells."""
    code = run(["test", "tests", *options])
    shown = capsys.readouterr()
    return code, " ".join((shown.out + shown.err).split())


def test_files_are_found_as_by_pytest(project: Project) -> None:
    for name in ("test_one.py", "sub/two_test.py", "three.py", "conftest.py", "spec_four.py"):
        project.write(f"tests/{name}", ONE)
    project.write("tests/test_unrelated.py", "raise ValueError('not ours to import')\n")
    assert project.test() == 0
    found = {test for (test,) in project.rows("SELECT test FROM executions")}
    assert found == {
        f"tests/{file}::{name}"
        for file in ("test_one.py", "sub/two_test.py")
        for name in ("test_refund", "test_other")
    }
    suites = {name for (name,) in project.rows("SELECT name FROM suites")}
    assert suites == {"tests/test_one.py", "tests/sub/two_test.py"}


@pytest.mark.parametrize("part", ["refund FLOW", "test_refund", "one.py::test_r"])
def test_a_test_is_selected_by_its_name_or_its_file(project: Project, part: str) -> None:
    project.write("tests/test_one.py", ONE)
    assert project.test("-t", part) == 0
    assert project.agent.said == ["refund"]


def test_a_folder_above_the_project_selects_nothing(project: Project) -> None:
    project.write("tests/test_one.py", ONE)
    assert project.test("-t", project.root.parent.name) == 1
    assert project.agent.said == []


def test_a_test_is_selected_by_its_tags(project: Project) -> None:
    project.write("tests/test_one.py", ONE)
    assert project.test("--tags", "money") == 0
    assert project.agent.said == ["refund"]


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("from kindlm import scenario\n\ndef test_x(:\n", 3, "SyntaxError"),
        ("from kindlm import scenario\n\nimport no_such_module\n", 3, "no_such_module"),
        ("from kindlm import scenario\nraise SystemExit(3)\n", 2, "SystemExit"),
        ('from kindlm import scenario\n@scenario("  ")\ndef test_x(t): ...\n', 2, "name"),
        ("from kindlm import scenario\n@scenario\ndef test_x(t): ...\n", 2, "@scenario("),
        ('from kindlm import scenario\n@scenario("x")\ndef other(t): ...\n', 2, "test_other"),
        ('from kindlm import scenario\n@scenario("x")\nclass TestIt: ...\n', 2, "function"),
        (
            'from kindlm import scenario\n@scenario("x")\n@scenario("y")\ndef test_x(t): ...\n',
            2,
            "two @scenario above test_x",
        ),
        ('from kindlm import scenario\n@scenario("x", repeats=0)\ndef test_x(t): ...\n', 2, "1"),
    ],
)
def test_a_file_that_does_not_import_is_told_and_the_others_run(
    project: Project, capsys: pytest.CaptureFixture[str], text: str, line: int, told: str
) -> None:
    project.write("tests/test_bad.py", text)
    project.write("tests/test_one.py", ONE)
    assert project.test() == 1
    assert sorted(project.agent.said) == ["other", "refund"]
    shown = capsys.readouterr()
    assert told in shown.out + shown.err
    assert f"test_bad.py:{line}" in shown.out + shown.err


def test_parametrized_tests_have_the_names_that_pytest_gives(
    project: Project,
) -> None:
    assert project.test("-j", "1", tests=PARAMETRIZED) == 0
    names = [test for (test,) in project.rows("SELECT test FROM executions ORDER BY number")]
    assert [name.partition("::")[2] for name in names] == [
        "test_words[x-one]",
        "test_words[x-second]",
        "test_words[x-3]",
        "test_words[True-b1-one]",
        "test_words[True-b1-second]",
        "test_words[True-b1-3]",
    ]
    assert project.agent.said[0] == "one 1 None"


COLLECTED = """
import enum, re, pytest
from shared import Base, TestShared, test_shared

class Color(enum.Enum):
    RED = 1

VALUES = [b"x", b"\\xff", "\\x7f\\n", Color.RED, re.compile("a+"), int, "d", "d"]
VALUES += ["a1", "a1", "a1_0", "l" * 100]

@pytest.fixture
def order(request):
    return getattr(request, "param", 1)

@pytest.mark.parametrize("v", VALUES)
@scenario("x")
async def test_values(t: Trial, v): ...

@pytest.mark.parametrize("v", [])
@scenario("x")
async def test_no_values(t: Trial, v): ...

@pytest.mark.parametrize("v,", [(1,), (2,)], ids=lambda v: "one" if v == 1 else None)
@scenario("x")
async def test_rows(t: Trial, v): ...

@pytest.mark.parametrize("v", [1, pytest.param(2, id=pytest.HIDDEN_PARAM)])
@scenario("x")
async def test_hidden(t: Trial, v): ...

@pytest.mark.parametrize("v", [1, 2], ids=(name for name in ("x", "y")))
@scenario("x")
async def test_generated_names(t: Trial, v): ...

@pytest.mark.parametrize("order", [1, 2], indirect=True)
@scenario("x")
async def test_indirect(t: Trial, order): ...

@pytest.mark.parametrize("v", [1, 2])
@scenario("x")
async def test_fixture(t: Trial, order, v): ...

@pytest.mark.parametrize("n", [1, 2])
class TestOrders(Base):
    @pytest.mark.parametrize("m", "ab")
    @scenario("x")
    async def test_own(self, t, m, n): ...

    @staticmethod
    @scenario("x")
    async def test_static(t: Trial, n): ...

    class TestLate:
        @scenario("x")
        async def test_inside(self, trial, n): ...

class TestLeftOut:
    __test__ = False

    @scenario("x")
    async def test_it(self, t): ...
"""

SHARED = """
@scenario("x")
async def test_shared(t: Trial): ...

class Base:
    @scenario("x")
    async def test_inherited(self, t: Trial, n): ...

class TestShared:
    @scenario("x")
    async def test_imported(self, t: Trial): ...
"""


@pytest.mark.parametrize("text", [PARAMETRIZED, COLLECTED])
def test_the_same_names_as_under_pytest(project: Project, text: str) -> None:
    project.write("tests/shared.py", "from kindlm import *" + SHARED)
    project.test(tests=text)
    words = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    listed = subprocess.run(
        [sys.executable, *words], cwd=project.root, capture_output=True, text=True, check=True
    )
    theirs = {line.partition("::")[2] for line in listed.stdout.splitlines() if "::" in line}
    assert set(project.statuses()) == theirs
    # Each runs but what needs a fixture, or has no values: nothing is checked in them.
    skipped = {name for name, status in project.statuses().items() if status == "skipped"}
    wanted = "test_no_values", "test_indirect", "test_fixture"
    assert skipped == {name for name in theirs if name.startswith(wanted)}


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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("@pytest.mark.usefixtures('ready')\n{test}", "the fixture ready"),
        ("@pytest.mark.skipif('sys.platform')\n{test}", "'sys.platform'"),
        ("pytestmark = pytest.mark.usefixtures('ready')\n{test}", "the fixture ready"),
        ("@pytest.fixture(autouse=True)\ndef ready(): ...\n{test}", "ready, which is automatic"),
        ("from ready import *\n{test}", "ready, which is automatic"),
        ("def setup_module(): ...\n{test}", "setup_module"),
        ("def setup_function(): ...\n{test}", "setup_function"),
        ("class TestIt:\n def setup_method(self): ...\n {method}", "setup_method"),
        ("class TestIt:\n def __init__(self, a): ...\n {method}", "__init__"),
        (
            "class TestIt:\n @pytest.fixture(autouse=True)\n def ready(self): ...\n {method}",
            "ready, which is automatic",
        ),
    ],
)
def test_a_test_that_counts_on_pytest_is_skipped_with_a_hint(
    project: Project, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    project.write(
        "tests/ready.py", "import pytest\n@pytest.fixture(autouse=True)\ndef ready(): ...\n"
    )
    test = "@scenario('x')\ndef test_it(t: Trial): ..."
    method = "@scenario('x')\n def test_it(self, t: Trial): ..."
    text = "from kindlm import *\nimport pytest\n" + text.format(test=test, method=method)
    project.write("tests/test_it.py", text + "\n")
    code, found = told_by_test(capsys)
    assert code == 1  # nothing was tested
    assert list(project.statuses().values()) == ["skipped"]
    assert told in found


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


@pytest.mark.parametrize("ending", ["skip('in tests only')", "fail('it can not be')"])
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
    ("text", "name", "lines"),
    [
        (ONE.replace("test_other", "test_refund"), "test_refund", (4, 8)),
        ("from kindlm import *" + TWO, "TestIt::test_it", (4, 7)),
        ("from kindlm import *" + TWO.replace("test_it", "test_a", 1) + TWO, "TestIt", (2, 9)),
    ],
)
def test_two_tests_of_one_name_are_an_error(
    project: Project,
    capsys: pytest.CaptureFixture[str],
    text: str,
    name: str,
    lines: tuple[int, int],
) -> None:
    project.write("tests/test_it.py", text)
    assert project.test() == 1
    assert project.agent.said == []
    shown = " ".join(capsys.readouterr().out.split())
    assert f"two {name}, in line {lines[0]} and in line {lines[1]}" in shown


def test_two_sides_of_a_condition_may_have_one_name(project: Project) -> None:
    test = ONE.partition("\n")[2].replace("\n", "\n  ")
    assert project.test(tests=f"\nif True:\n  {test}pass\nelse:\n  {test}pass\n") == 0


def test_a_test_that_takes_a_trial_and_is_no_scenario_is_told(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/test_it.py", ONE + "\nasync def test_x(t: Trial) -> None: ...\n")
    code, told = told_by_test(capsys)
    assert code == 0
    assert "test_x takes a trial and is not run" in told
    assert "@scenario(" in told


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
def test_files_without_tests_are_told_as_such(
    project: Project, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    project.write("tests/test_it.py", f"from kindlm import *\n{text}")
    code, told = told_by_test(capsys)
    assert code == 1
    assert "there are no tests in tests/test_it.py" in told


@pytest.mark.parametrize("values", ["[(1,)]", "[(1, 2)], ids=lambda value: 1 / 0"])
def test_parameters_that_are_wrong_are_told_at_their_test(
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


def test_methods_of_classes_have_an_object_of_their_own(project: Project) -> None:
    code = project.test(
        tests="""
class TestOrders:
    seen = 0

    @scenario("x", repeats=3)
    async def test_it(self, t: Trial) -> None:
        self.seen += 1
        t.check(await t.agent.send("hi")).contains("hi")
        assert self.seen == 1
"""
    )
    assert code == 0
    assert project.rows("SELECT DISTINCT test FROM executions") == [
        ("tests/test_it.py::TestOrders::test_it",)
    ]


def test_files_of_one_name_have_their_own_neighbours(project: Project) -> None:
    text = """from kindlm import *
from neighbour import WORD

@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send(WORD)).contains(WORD)
"""
    for folder in ("a", "b"):
        project.write(f"tests/{folder}/test_it.py", text)
        project.write(f"tests/{folder}/neighbour.py", f'WORD = "{folder}"\n')
    assert project.test("-j", "1") == 0
    assert sorted(project.agent.said) == ["a", "b"]


def test_a_file_in_a_package_imports_what_is_beside_it(project: Project) -> None:
    project.write("tests/shop/__init__.py", "")
    project.write("tests/shop/words.py", 'WORD = "w"\n')
    project.write(
        "tests/shop/test_it.py",
        """from kindlm import *
from .words import WORD

@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send(WORD)).contains("w")
""",
    )
    assert project.test() == 0
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def test_a_missing_agent_is_told_with_the_way_out(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("kindlm.toml", "")
    project.write("tests/test_one.py", ONE)
    assert project.test() == 1
    shown = capsys.readouterr()
    assert "[agent]" in shown.out + shown.err


def test_a_scenario_may_have_an_agent_of_its_own(project: Project) -> None:
    project.write("kindlm.toml", "")
    url = json.dumps(project.agent.url)
    code = project.test(
        tests=f"""
@scenario("x", agent={url})
async def test_url(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")

@scenario("x", agent={{"type": "http", "url": {url}, "name": "shop", "body": {{"message": "no"}}}})
async def test_table(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("no")
"""
    )
    assert code == 0
    assert project.rows("SELECT target FROM executions ORDER BY number") == [("agent",), ("shop",)]


def test_an_agent_that_is_described_wrongly_is_told_at_the_scenario(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert project.test(tests='\n@scenario("x", agent={"url": "x"})\nasync def test_it(t): ...\n')
    shown = capsys.readouterr()
    assert "test_it.py:2" in shown.out + shown.err
    assert "agent of @scenario" in shown.out + shown.err


def test_importing_kindlm_loads_no_scenarios(tmp_path: Path) -> None:
    code = "import sys, kindlm; print([n for n in sys.modules if n.startswith('kindlm.')])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_what_stands_beside_a_file_is_read_anew_with_it(project: Project) -> None:
    project.write(
        "tests/test_it.py",
        """from kindlm import *
from beside_it import WORD

@scenario("x")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send(WORD)).contains(WORD)
""",
    )
    for word in ("first", "other"):
        project.write("tests/beside_it.py", f"WORD = {word!r}\nprint('noise')\n")
        assert project.test() == 0
    assert project.agent.said == ["first", "other"]


def test_what_a_file_prints_is_not_taken_for_the_report(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/test_it.py", ONE + "\nprint('noise')\n")
    assert run(["test", "tests", "-q", "--reporter", "json"]) == 0
    json.loads(capsys.readouterr().out)


def test_a_test_that_is_named_as_for_pytest_is_told_how_to_select_it(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/test_it.py", ONE)
    assert run(["test", "tests/test_it.py::test_other"]) == 1
    assert "tests/test_it.py -t test_other" in capsys.readouterr().err
    assert run(["test", "tests/test_it.py", "-t", "test_other", "-q"]) == 0
    assert project.agent.said == ["other"]


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
    assert "too late (line 7 of test_it.py)" in told
    done = run_inside(project.root, "--kindlm")
    assert done.returncode == 1
    assert project.statuses() == {"test_x": "errored"}
    assert "too late (line 7 of test_it.py)" in done.stdout


def test_a_run_under_pytest_has_the_same_tests(project: Project) -> None:
    project.write("tests/shared.py", "from kindlm import *" + SHARED)
    # What can be read only once, pytest has read.
    project.test(tests=COLLECTED.replace('(name for name in ("x", "y"))', '["x", "y"]'))
    whole = project.statuses()
    # What pytest is asked for decides what is run, and not which tests there are.
    for chosen in ("tests", "tests/test_it.py::test_fixture[2]"):
        run_inside(project.root, "--kindlm", chosen)
        planned = project.rows(
            "SELECT p.test, p.selected FROM planned_tests p JOIN suites s ON s.id = p.suite"
            " WHERE s.run = (SELECT id FROM runs ORDER BY started_at DESC)"
        )
        assert {name.partition("::")[2] for name, _ in planned} == set(whole)
        assert sum(selected for _, selected in planned) == (1 if "::" in chosen else len(whole))


def test_two_tests_of_one_name_are_an_error_under_pytest_too(project: Project) -> None:
    project.write("tests/test_it.py", ONE.replace("test_other", "test_refund"))
    done = run_inside(project.root, "--kindlm")
    assert done.returncode == 1
    assert "two test_refund, in line 4 and in line 8" in done.stdout
    assert project.agent.said == []
