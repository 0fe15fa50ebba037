"""Scenarios that come with an installed package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scenario_project import Project

from kindlm import packages
from kindlm.cli.app import run

TEST = """
@scenario("greeting")
async def test_it(t: Trial) -> None:
    t.check(await t.agent.send("hi")).contains("hi")
"""


@pytest.fixture(autouse=True)
def _packages_of_this_test() -> Iterator[None]:
    """Forget which packages are installed: a process looks once."""
    packages.installed.cache_clear()
    yield
    packages.installed.cache_clear()


@pytest.fixture
def installed(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Install a package with the pack `shop`, and one whose module is missing, as `pip` does."""
    project.write("site/shop_pack/__init__.py", "")
    project.write("site/shop_pack/test_hello.py", "from kindlm import *" + TEST)
    project.write("site/shop_pack/more/bye.yaml", "name: bye\nturns: [{says: bye}]\n")
    project.write("site/shop-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: shop\nVersion: 1")
    project.write(
        "site/shop-1.dist-info/entry_points.txt",
        "[kindlm.packs]\nshop = shop_pack\nlost = no_such_module\nempty = shop_pack.empty\n"
        "one = shop_pack.one\nbroken = shop_pack.broken\nother = shop_pack.other\n",
    )
    project.write("site/shop_pack/empty/__init__.py", "")
    project.write("site/shop_pack/one.py", "from kindlm import *" + TEST)
    project.write("site/shop_pack/broken.py", "from kindlm import *\n1 / 0\n")
    project.write("site/shop_pack/other.py", "1 / 0\n")
    monkeypatch.syspath_prepend(str(project.root / "site"))
    return project


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def test_a_pack_is_run_by_its_name_with_the_agent_of_the_project(installed: Project) -> None:
    assert run(["test", "pack:shop", "--quiet", "-t", "greeting"]) == 0
    assert installed.agent.said == ["hi"]
    assert installed.rows("SELECT name, path FROM suites ORDER BY name") == [
        ("pack:shop/more/bye.yaml", "pack:shop/more/bye.yaml"),
        ("pack:shop/test_hello.py", "pack:shop/test_hello.py"),
    ]
    assert installed.tests() == {"pack:shop/test_hello.py::test_it": "passed"}


def test_a_pack_may_share_scenarios_between_its_files(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = "lib/site-packages"
    project.write(f"{site}/bank/__init__.py", "")
    project.write(f"{site}/bank/shared.py", "from kindlm import *" + TEST)
    project.write(f"{site}/bank/test_it.py", "from .shared import test_it\n")
    about = f"{site}/bank-1.dist-info"
    project.write(f"{about}/METADATA", "Metadata-Version: 2.1\nName: bank\nVersion: 1")
    project.write(f"{about}/entry_points.txt", "[kindlm.packs]\nbank = bank\n")
    monkeypatch.syspath_prepend(str(project.root / site))
    assert run(["test", "pack:bank", "--quiet"]) == 0
    assert project.tests() == {"pack:bank/test_it.py::test_it": "passed"}


def test_a_file_of_a_pack_can_be_named(installed: Project) -> None:
    assert run(["test", "pack:shop/test_hello.py", "--quiet"]) == 0
    assert len(installed.tests()) == 1


@pytest.mark.parametrize("command", [["rescore"], ["replay"], ["test", "--failed"]])
def test_a_run_of_a_pack_can_be_looked_at_again(installed: Project, command: list[str]) -> None:
    code = 1 if "--failed" in command else 0
    installed.agent.answer = lambda _: {"message": "bad" if code else "hi"}
    assert run(["test", "pack:shop/test_hello.py", "--quiet"]) == code
    named = [] if command == ["rescore"] else ["pack:shop/test_hello.py"]
    assert run([*command, *named]) == code
    assert list(installed.tests()) == ["pack:shop/test_hello.py::test_it"]


def test_a_pack_that_is_not_there_lists_those_that_are(
    installed: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["test", "pack:shpo"]) == 1
    text = told(capsys)
    assert 'no pack "shpo"' in text
    assert "broken, customer-support, empty, lost, one, other, owasp-agentic, shop" in text
    assert 'Did you mean "shop"?' in text


@pytest.mark.parametrize(
    ("command", "pack", "why"),
    [
        ("test", "lost", "no_such_module"),
        ("validate", "empty", 'no scenarios in "pack:empty"'),
        ("test", "other", 'no scenarios in "pack:other"'),
        ("validate", "shop/test_x.py", 'no scenarios in "pack:shop/test_x.py"'),
        ("test", "broken", "ZeroDivisionError"),
    ],
)
def test_a_pack_without_scenarios_says_so(
    installed: Project, capsys: pytest.CaptureFixture[str], command: str, pack: str, why: str
) -> None:
    assert run([command, f"pack:{pack}"]) == 1
    assert why in told(capsys)


def test_a_pack_can_be_one_module(installed: Project) -> None:
    assert run(["test", "pack:one", "--quiet"]) == 0
    assert installed.tests() == {"pack:one/one.py::test_it": "passed"}


def test_a_pack_is_validated_by_its_name(
    installed: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["validate", "pack:shop"]) == 0
    assert "2 files, 2 tests: no problems" in capsys.readouterr().out
    assert installed.agent.said == []


def test_a_pack_of_two_packages_is_an_error(
    installed: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    installed.write(
        "site/mine-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: mine\nVersion: 1"
    )
    installed.write(
        "site/mine-1.dist-info/entry_points.txt", "[kindlm.packs]\ncustomer-support = shop_pack\n"
    )
    assert run(["test", "pack:customer-support"]) == 1
    assert 'Several packages have a pack "customer-support": kindlm, mine.' in told(capsys)
    assert installed.agent.said == []


def support(request: dict[str, Any]) -> dict[str, Any]:
    return {"message": f"I am sorry. I look into this: {request['message']}"}


def judge(data: dict[str, Any], *, good: bool) -> dict[str, Any]:
    if "criteria" in data:
        return {"score": 5 if good else 0, "reasoning": ""}
    name = "conveyed" if "tone" in data else "kept"
    return {name: good, "quote": "", "reasoning": ""}


@pytest.mark.parametrize("good", [True, False])
def test_the_pack_that_comes_along_judges_agents(project: Project, good: bool) -> None:
    project.agent.answer = support
    project.agent.judge = lambda data: judge(data, good=good)
    assert run(["test", "pack:customer-support", "--quiet"]) == (0 if good else 1)
    assert set(project.tests().values()) == {"passed" if good else "failed"}
    files = {name.partition("::")[0] for name in project.tests()}
    assert files == {
        f"pack:customer-support/test_{name}.py"
        for name in ("angry_customer", "billing_dispute", "product_inquiry")
    }


def test_a_pack_may_hold_suites_in_the_form_of_kindlm_yaml(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = "lib/site-packages"
    project.write(f"{site}/forms/__init__.py", "")
    project.write(
        f"{site}/forms/kindlm.yaml",
        "kindlm: 1\nsuite: of-the-project\n"
        "prompts: {p: {user: 'hi, {{who}}'}, s: {system: '{{system}}'}}\n"
        "tests:\n  - {name: a, prompt: p, vars: {who: Ann}, expect: {output: {contains: Ann}}}\n"
        "  - {name: b, prompt: s, input: hi, expect: {output: {contains: hi}}}\n",
    )
    project.write(
        f"{site}/forms/own.yaml",
        "kindlm: 1\nproviders: {fixed: {type: scripted, replies: yes}}\nmodel: fixed/m\n"
        "tests: [{name: c, input: hi, expect: {output: {contains: yes}}}]\n",
    )
    about = f"{site}/forms-1.dist-info"
    project.write(f"{about}/METADATA", "Metadata-Version: 2.1\nName: forms\nVersion: 1")
    project.write(f"{about}/entry_points.txt", "[kindlm.packs]\nforms = forms\n")
    monkeypatch.syspath_prepend(str(project.root / site))
    assert run(["test", "pack:forms", "--quiet"]) == 0
    assert project.tests() == {"a": "passed", "b": "passed", "c": "passed"}
    assert project.rows("SELECT path FROM suites ORDER BY path") == [
        ("pack:forms/kindlm.yaml",),
        ("pack:forms/own.yaml",),
    ]
