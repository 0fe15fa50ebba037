"""Which files hold scenarios, how they are imported and called, and what is told of errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
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


def test_the_same_names_as_under_pytest(project: Project) -> None:
    project.test(tests=PARAMETRIZED)
    words = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    listed = subprocess.run(
        [sys.executable, *words], cwd=project.root, capture_output=True, text=True, check=True
    )
    theirs = {line.partition("::")[2] for line in listed.stdout.splitlines() if "::" in line}
    assert set(project.statuses()) == theirs


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
