"""The vectors of tests that are written, and of projects that are begun."""

from __future__ import annotations

import ast
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from planned_shop import DESCRIPTION, RECORDED, good_agent, serving_shop
from scenario_departures import GENERATED
from scenario_project import LoopbackAgent, Project, new_project, serving_agent
from vector_cases import unknown

from kindlm.cli.app import run
from kindlm.generate.test_plan import CATEGORIES, ReadPlan

Vector = dict[str, Any]


@pytest.fixture
def agent() -> Iterator[LoopbackAgent]:
    with serving_shop() as agent:
        yield agent


@pytest.fixture
def project(tmp_path: Path, agent: LoopbackAgent, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    return new_project(tmp_path, agent)


def scenario(category: str, title: str, says: str = "Hello") -> Vector:
    turn = {"says": says, "right": ["It greets."], "wrong": [], "tone": "", "tools": []}
    user = {"role": "user", "tone": "", "backstory": ""}
    return {"category": category, "title": title, "why": "", "user": user, "turns": [turn]}


def planning(plan: Vector) -> Any:
    return lambda data: RECORDED["profile"] if "systemPrompt" in data else plan


@pytest.mark.vectors("scenario.jsonl", "gen.plan", departures=GENERATED)
def test_plan(vector: Vector) -> None:
    ((category, titles),) = vector["expected"].items()
    if vector["input"]["reply"] != "```json fenced plan```":
        unknown(vector["input"]["reply"])
    plan = json.dumps({"scenarios": [scenario(category, title) for title in titles]})
    read = ReadPlan()
    read.read(f"```json\n{plan}\n```", CATEGORIES, ())
    assert {category: [each.title for each in read.scenarios]} == vector["expected"]


@pytest.mark.vectors("scenario.jsonl", "gen.write", departures=GENERATED)
def test_write(vector: Vector, project: Project) -> None:
    code = vector["input"]["model_code"]
    project.agent.judge = planning({"scenarios": [scenario("tone", "s1", says=code)]})
    assert run(["gen", "--description", DESCRIPTION, "--categories", "tone"]) == 0
    (file,) = (project.root / "tests" / "generated").glob("*s1*")
    texts, statements = _parts(file.read_text("utf-8"))
    assert code in texts
    of_the_model = [line for line in code.splitlines() if line in statements]
    assert {"file": file.name, "code": "\n".join(of_the_model)} == vector["expected"]


def _parts(source: str) -> tuple[set[str], set[str]]:
    """Return the texts in a file of Python, and the lines of its code without them."""
    tree = ast.parse(source)
    texts = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
            node.value = ""
    return texts, {line.strip() for line in ast.unparse(tree).splitlines()}


def test_no_source_trees_are_read(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """Why the cases of ranking files have no counterpart."""
    assert run(["gen", "--dir", str(project.root)]) == 1
    assert "No such option: --dir" in capsys.readouterr().err
    assert project.agent.questions == []


@pytest.mark.vectors(
    "scenario.jsonl", "discover.extract", departures=GENERATED, beside=("finding_confidence",)
)
def test_extract(vector: Vector, project: Project) -> None:
    given, expected = vector["input"], vector["expected"]
    project.agent.judge = lambda _: given["llm_reply"]
    if expected["tools"] is not None:
        unknown("a reply of the model that can be read")
    project.write("prompt.txt", "x" * given["file_chars"])
    code = run(["gen", "--system-prompt", "prompt.txt"])
    asked = project.agent.questions
    known = code == 0
    found = {
        "chars_sent": len(asked[0]["systemPrompt"]),
        "tools": asked[1]["agent"]["tools"] if known else None,
        "constraints": asked[1]["agent"]["constraints"] if known else None,
    }
    assert found == {name: expected[name] for name in found}
    assert not (project.root / "tests" / "generated").exists()


@pytest.mark.vectors("scenario.jsonl", "cli.gen", departures=GENERATED, ignores=("source_flags",))
def test_gen(vector: Vector, project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    given, expected = vector["input"], vector["expected"]
    if "source_flags" in given:
        assert _precedence(project) == expected["precedence"]
    elif "profile_age_days" in given:
        assert _reused(project, given["profile_age_days"], capsys) == expected
    else:
        if given["argv"] != ["gen", "--system-prompt", "p.txt"]:
            unknown(" ".join(given["argv"]))
        project.write("p.txt", "You sell shoes.")
        assert run(given["argv"]) == 0
        was_read = project.agent.questions[0]["systemPrompt"] == "You sell shoes."
        assert {"file_read": was_read} == expected


@pytest.mark.vectors("scenario.jsonl", "cli.init", departures=GENERATED)
def test_init(vector: Vector, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = []
    for number, lockfile in enumerate(vector["input"]["lockfiles"]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / lockfile).touch()
        assert run(["init", "--template", "scenario", str(folder)]) == 0
        told = capsys.readouterr().err
        named += [name for name in ("pnpm", "yarn", "npm") if name in told][:1]
    assert named == vector["expected"]["package_manager"]


def _precedence(project: Project) -> list[str]:
    """Where the agent is taken from, in order: by which of two was asked."""
    with serving_agent() as other:
        other.answer = good_agent()
        options = ["gen", "--description", DESCRIPTION, "--count", "1"]
        assert run([*options, "--agent", other.url]) == 0
        assert (bool(other.requests), project.agent.requests) == (True, [])
        assert run(options) == 0
        assert project.agent.requests
    return ["--agent", "config.agent.url"]


def _reused(project: Project, days: float, capsys: pytest.CaptureFixture[str]) -> Vector:
    options = ["gen", "--description", DESCRIPTION, "--count", "1"]
    assert run(options) == 0
    old = time.time() - days * 86_400
    os.utime(project.root / "tests" / "generated" / "agent-profile.yaml", (old, old))
    project.agent.questions.clear()
    capsys.readouterr()
    assert run(options) == 0
    asked = any("systemPrompt" in question for question in project.agent.questions)
    return {"warning": "⚠" in capsys.readouterr().err, "reuses_cached_profile": not asked}
