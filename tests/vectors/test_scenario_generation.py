"""The vectors of tests that are written, and of projects that are begun."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from planned_shop import DESCRIPTION, RECORDED, good_agent, model
from scenario_project import LoopbackAgent, Project, new_project, serving_agent

from kindlm.cli.app import run
from kindlm.generate.categories import CATEGORIES
from kindlm.generate.reading import read_plan

Vector = dict[str, Any]

NO_CODE: Final = "the model writes no code: files are made of a template, with its texts as data"
NO_TREES: Final = "no source trees are read: what an agent is for is told, or asked"

DEPARTURES: Final = {
    "fab-gen-009": NO_CODE,
    "fab-gen-012": NO_CODE,
    "fab-gen-014": NO_CODE,
    "fab-disc-001": NO_TREES,
    "fab-disc-004": "what can not be read is an error, and no empty profile",
    "fab-cli-020": f"{NO_TREES}: --agent comes before the agent of the configuration",
    "fab-cli-021": "a profile is made anew each time; the file is for people",
    "fab-cli-022": "the system prompt is read",
    "fab-init-002": "nothing is installed, so that no package manager has to be known",
}


@pytest.fixture
def agent() -> Iterator[LoopbackAgent]:
    with serving_agent() as agent:
        agent.answer = good_agent()
        agent.judge = model
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


@pytest.mark.vectors("scenario.jsonl", "gen.plan", departures=DEPARTURES)
def test_plan(vector: Vector) -> None:
    ((category, titles),) = vector["expected"].items()
    assert vector["input"]["reply"].startswith("```json")
    plan = json.dumps({"scenarios": [scenario(category, title) for title in titles]})
    read = read_plan(f"```json\n{plan}\n```", CATEGORIES, ())
    assert {category: [each.title for each in read.scenarios]} == vector["expected"]


@pytest.mark.vectors("scenario.jsonl", "gen.write", departures=DEPARTURES)
def test_write(vector: Vector, project: Project) -> None:
    code = vector["input"]["model_code"]
    project.agent.judge = planning({"scenarios": [scenario("tone", "s1", says=code)]})
    assert run(["gen", "--description", DESCRIPTION, "--categories", "tone"]) == 0
    (file,) = (project.root / "tests" / "generated").glob("*s1*")
    found = {"file": file.name, "code": file.read_text("utf-8")}
    assert found == vector["expected"]


@pytest.mark.vectors("scenario.jsonl", "discover.rank", departures=DEPARTURES)
def test_rank(vector: Vector, project: Project) -> None:
    for path in vector["input"].get("tree", ()):
        project.write(path.lstrip("/"), "")
    refused = run(["gen", "--dir", str(project.root / "w")]) != 0
    ranked = [] if refused else project.agent.questions
    assert ranked == vector["expected"]


@pytest.mark.vectors("scenario.jsonl", "discover.extract", departures=DEPARTURES)
def test_extract(vector: Vector, project: Project) -> None:
    given, expected = vector["input"], vector["expected"]
    project.agent.judge = lambda _: given["llm_reply"]
    project.write("prompt.txt", "x" * given["file_chars"])
    code = run(["gen", "--system-prompt", "prompt.txt"])
    assert len(project.agent.questions[0]["systemPrompt"]) == expected["chars_sent"]
    assert code == 0
    assert project.agent.questions[1]["agent"]["tools"] == expected["tools"]


@pytest.mark.vectors("scenario.jsonl", "cli.gen", departures=DEPARTURES)
def test_gen(vector: Vector, project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    given, expected = vector["input"], vector["expected"]
    if "source_flags" in given:
        assert _precedence(project) == expected["precedence"]
    elif "profile_age_days" in given:
        assert _reused(project, given["profile_age_days"], capsys) == expected
    else:
        project.write("p.txt", "You sell shoes.")
        assert run(given["argv"]) == 0
        was_read = project.agent.questions[0]["systemPrompt"] == "You sell shoes."
        assert {"file_read": was_read} == expected


@pytest.mark.vectors("scenario.jsonl", "cli.init", departures=DEPARTURES)
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
