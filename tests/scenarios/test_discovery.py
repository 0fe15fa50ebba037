"""Which files hold scenarios, as pytest finds them; how they are named, imported and called."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_project import run_inside
from scenario_files import ONE
from scenario_project import Project

from kindlm.cli.app import run

PARAMETRIZED = """
import pytest

@pytest.mark.parametrize("word", ["one", pytest.param("two", id="second"), 3])
@pytest.mark.parametrize(("a", "b"), [(1, None), (True, [1])], ids=["x", None])
@scenario("words")
async def test_words(t: Trial, word, a, b) -> None:
    t.check(await t.agent.send(f"{word} {a} {b}")).contains(str(word))
"""


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


FROM_ELSEWHERE = {
    "test_a.py": "from helper import test_refund\n",
    "test_b.py": "from helper import *\n",
    "test_c.py": "import helper; test_refund = helper.test_refund\n",
    "test_d.py": "from through import test_refund\n",
    "test_e.py": "from above import test_refund\n",
    "inner/test_f.py": "from .beside import test_refund\n",
    "inner/test_g.py": "from inner import beside as b; test_refund = b.test_refund\n",
    "test_i.py": ONE.replace("from kindlm import", "import sys; from kindlm import"),
}


def test_files_whose_scenarios_come_from_other_modules_are_found(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(project.root))
    project.write("tests/helper.py", ONE)
    project.write("above.py", ONE)
    project.write("tests/through.py", "from helper import *\n")
    project.write("tests/inner/__init__.py", "")
    project.write("tests/inner/beside.py", ONE)
    for file, text in FROM_ELSEWHERE.items():
        project.write(f"tests/{file}", text)
    assert project.test() == 0
    found = {test for (test,) in project.rows("SELECT test FROM executions")}
    assert {f"tests/{file}::test_refund" for file in FROM_ELSEWHERE} <= found


def test_a_broken_file_that_would_import_scenarios_is_reported(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/test_one.py", ONE)
    project.write("tests/helper.py", ONE)
    project.write("tests/test_broken.py", "from helper import *\nx = (\n")
    assert project.test() == 1
    assert "tests/test_broken.py:2" in capsys.readouterr().err


def test_folders_that_pytest_leaves_out_are_left_out(project: Project) -> None:
    project.write("tests/test_one.py", ONE)
    for folder in ("build", "dist", "venv", "old.egg", "node_modules", ".hidden"):
        project.write(f"tests/{folder}/test_other.py", ONE)
    assert project.test() == 0
    suites = {name for (name,) in project.rows("SELECT name FROM suites")}
    assert suites == {"tests/test_one.py"}


@pytest.mark.parametrize("part", ["refund FLOW", "test_refund", "one.py::test_r"])
def test_a_test_is_selected_by_its_name_or_its_file(project: Project, part: str) -> None:
    project.write("tests/test_one.py", ONE)
    assert project.test("-t", part) == 0
    assert project.agent.said == ["refund"]


def test_files_without_a_selected_test_are_not_listed(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/test_one.py", ONE)
    project.write("tests/test_two.py", ONE.replace("Refund", "Return").replace("refund", "return"))
    assert run(["test", "tests", "-t", "Return"]) == 0
    shown = capsys.readouterr().out
    assert "tests/test_two.py" in shown
    assert "tests/test_one.py" not in shown


def test_a_folder_above_the_project_selects_nothing(project: Project) -> None:
    project.write("tests/test_one.py", ONE)
    assert project.test("-t", project.root.parent.name) == 1
    assert project.agent.said == []


def test_a_test_is_selected_by_its_tags(project: Project) -> None:
    project.write("tests/test_one.py", ONE)
    assert project.test("--tags", "money") == 0
    assert project.agent.said == ["refund"]


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

class Refunds:
    __test__ = True

    @scenario("x")
    async def test_marked(self, t: Trial, *rest, **named): ...

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
    listed = run_inside(project.root, "--collect-only", "-q", "tests")
    assert listed.returncode == 0, listed.stdout
    theirs = {line.partition("::")[2] for line in listed.stdout.splitlines() if "::" in line}
    assert set(project.statuses()) == theirs
    # Each runs but what needs a fixture, or has no values: nothing is checked in them.
    skipped = {name for name, status in project.statuses().items() if status == "skipped"}
    wanted = "test_no_values", "test_indirect", "test_fixture"
    assert skipped == {name for name in theirs if name.startswith(wanted)}


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


def test_importing_kindlm_loads_no_scenarios(tmp_path: Path) -> None:
    code = "import sys, kindlm; print([n for n in sys.modules if n.startswith('kindlm.')])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_what_a_file_prints_is_not_taken_for_the_report(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/test_it.py", ONE + "\nprint('noise')\n")
    assert run(["test", "tests", "-q", "--reporter", "json"]) == 0
    json.loads(capsys.readouterr().out)


def test_a_test_that_is_named_as_for_pytest_is_reported_how_to_select_it(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("tests/test_it.py", ONE)
    assert run(["test", "tests/test_it.py::test_other"]) == 1
    assert "tests/test_it.py -t test_other" in capsys.readouterr().err
    assert run(["test", "tests/test_it.py", "-t", "test_other", "-q"]) == 0
    assert project.agent.said == ["other"]


def test_a_run_under_pytest_has_the_same_tests(project: Project) -> None:
    project.write("tests/shared.py", "from kindlm import *" + SHARED)
    project.test(tests=COLLECTED)
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
