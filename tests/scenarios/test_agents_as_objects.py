"""Agents that scenarios hand over as objects: they run in the process of the test."""

from __future__ import annotations

import sys

import pytest
from pytest_project import as_it_was, run_inside
from scenario_project import Project

from kindlm.cli.app import run

SHOP = """
import threading
from kindlm import *

SHOUTS = []

def answer(text):
    return "".join([text.upper(), *SHOUTS])

async def of_messages(messages):
    return " ".join(each["content"] for each in messages)

async def pieces(text):
    yield text
    yield "!"

def generated(text: str):
    yield from [text, "?"]

class Counting:
    def __init__(self):
        self.said = 0

    def send(self, text):
        self.said += 1
        return {"text": f"number {self.said}", "tool_calls": []}
"""

TESTS = """
import pytest
from kindlm import *
import shop

@scenario("function", agent=shop.answer)
async def test_function(t: Trial):
    shop.SHOUTS[:] = ["!"]
    t.check(await t.agent.send("hi")).contains("HI!")

@scenario("sync", agent=shop.answer)
def test_sync(t: SyncTrial):
    t.check(t.agent.send("hi")).contains("HI")

@scenario("messages", agent=shop.of_messages)
async def test_messages(t: Trial):
    await t.agent.send("a")
    t.check(await t.agent.send("b")).contains("a a b")

@scenario("async pieces", agent=shop.pieces)
async def test_pieces(t: Trial):
    t.check(await t.agent.send("hi")).contains("hi!")

@scenario("pieces", agent=shop.generated)
async def test_generated(t: Trial):
    t.check(await t.agent.send("hi")).contains("hi?")

@scenario("one for each conversation", agent=shop.Counting, repeats=2)
async def test_made(t: Trial):
    await t.agent.send("a")
    reply = await t.agent.send("b")
    t.check(reply).contains("number 2").tool_not_called("refund")
"""


@pytest.fixture
def shop(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.delitem(sys.modules, "shop", raising=False)  # of another test
    (project.root / "kindlm.toml").unlink()
    project.write("tests/shop.py", SHOP)
    project.write("tests/test_it.py", TESTS)
    return project


def test_an_object_runs_in_the_process_of_the_test(shop: Project) -> None:
    assert shop.test() == 0
    assert set(shop.statuses().values()) == {"passed"}
    under_pytest = run_inside(shop.root, "--kindlm", "tests")
    assert "6 passed" in under_pytest.stdout, under_pytest.stdout


KEYED = """
import os
from kindlm import *

KEY = os.environ["SHOP_API_KEY"]

@scenario("x", agent=lambda text: f"{text} with {KEY}")
async def test_it(t: Trial):
    t.check(await t.agent.send("hi")).contains(KEY)
"""


@pytest.mark.parametrize("beside", ["", "tests/"])
def test_an_object_finds_what_env_files_say(project: Project, beside: str) -> None:
    project.write(f"{beside}.env", "SHOP_API_KEY=sk-shop-7c1f09d2\n")
    project.write("tests/test_it.py", KEYED)
    with as_it_was(project.root):
        assert project.test() == 0
    under_pytest = run_inside(project.root, "--kindlm", "tests")
    assert "1 passed" in under_pytest.stdout, under_pytest.stdout
    assert b"sk-shop" not in (project.root / ".kindlm" / "kindlm.db").read_bytes()


def test_an_opaque_function_leaves_checks_of_tools_undecided(
    shop: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.write(
        "tests/test_it.py",
        "from kindlm import *\nimport shop\n\n"
        '@scenario("opaque", agent=shop.answer)\n'
        "async def test_it(t: Trial):\n"
        '    t.check(await t.agent.send("hi")).tool_not_called("refund")\n',
    )
    assert shop.test() == 1
    assert shop.statuses() == {"test_it": "errored"}
    assert "List them in its answer under `tool_calls`" in " ".join(capsys.readouterr().out.split())


def test_what_an_agent_raises_shows_its_line(
    shop: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.write("tests/shop.py", "def answer(text):\n    return {}['state']\n")
    shop.write(
        "tests/test_it.py",
        "from kindlm import *\nimport shop\n\n"
        '@scenario("broken", agent=shop.answer)\n'
        "async def test_it(t: Trial):\n"
        '    await t.agent.send("hi")\n',
    )
    assert shop.test() == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "raised KeyError: 'state' (tests/shop.py:2)" in told
    assert "fix To see the traceback, show this execution with --verbose" in told


FIXTURE = """
import pytest

@pytest.fixture
def agent():
    left = []
    yield lambda text: text.upper() + str(len(left))
    left.append(1)
"""

USES = """
from kindlm import *

@scenario("by the fixture", repeats=2)
async def test_it(t: Trial):
    t.check(await t.agent.send("hi")).contains("HI0")

class TestAll:
    @scenario("its own comes first", agent=lambda text: "own")
    async def test_own(self, t: Trial):
        t.check(await t.agent.send("hi")).contains("own")
"""


def test_the_fixture_agent_is_the_agent_under_pytest_and_without_it(shop: Project) -> None:
    shop.write("tests/conftest.py", FIXTURE)
    shop.write("tests/test_it.py", USES)
    assert shop.test() == 0
    assert set(shop.statuses().values()) == {"passed"}
    under_pytest = run_inside(shop.root, "--kindlm", "tests")
    assert "2 passed" in under_pytest.stdout, under_pytest.stdout


MAKES = """
import pytest

class Agent:
    def __init__(self): self.said = 0
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def send(self, text):
        self.said += 1
        return f"HI0 is message {self.said}"

@pytest.fixture
def agent():
    yield HOW
"""


@pytest.mark.parametrize("how", ["Agent", "lambda: Agent()"])
def test_the_fixture_may_give_what_makes_an_agent_for_each_conversation(
    shop: Project, how: str
) -> None:
    shop.write("tests/conftest.py", MAKES.replace("HOW", how))
    shop.write("tests/test_it.py", USES.partition("class")[0].replace("HI0", "message 1"))
    assert shop.test() == 0
    under_pytest = run_inside(shop.root, "--kindlm", "tests")
    assert "1 passed" in under_pytest.stdout, under_pytest.stdout


@pytest.mark.parametrize("failing", ["assert left", "pytest.fail('left')"])
def test_an_assert_at_the_end_of_the_fixture_counts_without_pytest_too(
    shop: Project, failing: str
) -> None:
    shop.write("tests/conftest.py", FIXTURE.replace("left.append(1)", failing))
    shop.write("tests/test_it.py", USES.partition("class")[0])
    assert shop.test() == 1
    assert shop.statuses() == {"test_it": "errored"}
    under_pytest = run_inside(shop.root, "--kindlm", "tests")
    assert under_pytest.returncode == 1, under_pytest.stdout
    shop.write("tests/conftest.py", FIXTURE.replace("left.append(1)", "left.remove(1)"))
    assert shop.test() == 0


@pytest.mark.parametrize(
    "conftest",
    [
        "from fixtures import agent\n",
        FIXTURE.replace("pytest.fixture", "pytest.fixture(name='agent')").replace("agent()", "a()"),
    ],
)
def test_a_conftest_may_import_the_fixture_or_give_it_its_name(
    shop: Project, conftest: str
) -> None:
    shop.write("tests/conftest.py", conftest)
    shop.write("tests/fixtures.py", FIXTURE)
    shop.write("tests/here/conftest.py", "from own import answer as agent\n")
    shop.write("tests/here/own.py", "def answer(text): ...\n")
    shop.write("tests/here/test_here.py", USES)
    assert shop.test() == 0
    under_pytest = run_inside(shop.root, "--kindlm", "tests/here")
    assert "2 passed" in under_pytest.stdout, under_pytest.stdout


def test_what_only_pytest_can_build_is_skipped_without_it(
    shop: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.write("tests/conftest.py", FIXTURE.replace("agent()", "agent(monkeypatch)"))
    shop.write("tests/test_it.py", USES.partition("class")[0])
    run(["validate", "tests"])
    shown = " ".join("".join(capsys.readouterr()).split())
    assert "the fixture agent needs the fixture monkeypatch: run pytest --kindlm" in shown
    under_pytest = run_inside(shop.root, "--kindlm", "tests")
    assert "1 passed" in under_pytest.stdout, under_pytest.stdout


def test_an_agent_may_be_a_parameter_under_pytest_and_without_it(shop: Project) -> None:
    shop.write("tests/conftest.py", FIXTURE)
    source = """
import pytest
from kindlm import *

@pytest.mark.parametrize("agent", [str.upper, str.lower], ids=["loud", "quiet"])
@scenario("each of them")
async def test_it(t: Trial, agent):
    t.check(await t.agent.send("Hi")).equals(agent("Hi"))
"""
    shop.write("tests/test_it.py", source)
    assert shop.test() == 0
    assert list(shop.statuses()) == ["test_it[loud]", "test_it[quiet]"]
    under_pytest = run_inside(shop.root, "--kindlm", "tests")
    assert "2 passed" in under_pytest.stdout, under_pytest.stdout


def test_a_fixture_with_parameters_makes_a_test_for_each_agent(shop: Project) -> None:
    source = """
import pytest

@pytest.fixture(params=["loud", "quiet"])
def agent(request):
    return str.upper if request.param == "loud" else str.lower
"""
    shop.write("tests/conftest.py", source)
    source = USES.partition("class")[0].replace("HI0", "HI").replace("Trial)", "Trial, agent)")
    shop.write(
        "tests/test_it.py", source + '    t.check(await t.agent.send("hi")).contains(agent("hi"))'
    )
    under_pytest = run_inside(shop.root, "--kindlm", "-v", "tests")
    assert "test_it[loud] PASSED" in under_pytest.stdout
    assert "test_it[quiet] PASSED" in under_pytest.stdout


def test_a_fixture_may_start_a_server_and_return_its_url(shop: Project) -> None:
    source = f"import pytest\n\n@pytest.fixture\ndef agent():\n    return {shop.agent.url!r}\n"
    shop.write("tests/conftest.py", source)
    shop.write("tests/test_it.py", USES.partition("class")[0].replace("HI0", "You said: hi"))
    under_pytest = run_inside(shop.root, "--kindlm", "tests")
    assert "1 passed" in under_pytest.stdout, under_pytest.stdout
    shop.write("tests/conftest.py", source.replace(repr(shop.agent.url), "{}"))
    under_pytest = run_inside(shop.root, "--kindlm", "tests")
    assert "The fixture agent returned a mapping" in under_pytest.stdout
