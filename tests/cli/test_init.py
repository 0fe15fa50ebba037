"""`kindlm init`: what it writes, what it leaves alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

TEMPLATES = ["basic", "agent", "compliance", "evalview", "scenario"]
CARD = b"4111 1111 1111 1111"
"""What the agent of one template is told: it is not recorded."""


def test_the_next_command_is_reported(kindlm: Any) -> None:
    assert kindlm("init").err.endswith("Next: kindlm test\n")
    assert kindlm("init", "my shop").err.endswith("Next: cd 'my shop' && kindlm test\n")


def test_editors_find_the_schema_that_was_written(kindlm: Any, here: Path) -> None:
    kindlm("init")
    first = (here / "kindlm.yaml").read_text("utf-8").splitlines()[0]
    _, _, named = first.partition("# yaml-language-server: $schema=")
    schema = json.loads((here / named).read_text("utf-8"))
    assert "tests" in schema["properties"]


@pytest.mark.parametrize("name", ['q"uote: #1', "no", "日本"])
def test_the_project_has_the_name_of_its_folder(kindlm: Any, here: Path, name: str) -> None:
    kindlm("init", here / name)
    written = yaml.safe_load((here / name / "kindlm.yaml").read_text("utf-8"))
    assert written["project"] == name


NOT_UTF8 = pytest.param(
    b"caf\xe9", marks=pytest.mark.skipif(sys.platform == "darwin", reason="macOS refuses it")
)


@pytest.mark.parametrize("name", [NOT_UTF8, b"caf\x7f", "caf\x85".encode(), "caf\ufdd0".encode()])
def test_a_character_of_a_folder_that_yaml_refuses_is_replaced(
    kindlm: Any, here: Path, monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    folder = here / os.fsdecode(name)
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert kindlm("init").code == 0
    assert yaml.safe_load(Path("kindlm.yaml").read_text("utf-8"))["project"] == "caf?"
    assert kindlm("validate").code == 0


def test_nothing_is_overwritten(kindlm: Any, here: Path) -> None:
    (here / "agent.yaml").write_text("mine", "utf-8")
    outcome = kindlm("init", "--template", "agent")
    assert outcome.code == 1
    assert "agent.yaml is there already" in outcome.err
    assert sorted(path.name for path in here.iterdir()) == ["agent.yaml"]
    assert (here / "agent.yaml").read_text("utf-8") == "mine"


def test_nothing_is_overwritten_in_folders_of_a_template(kindlm: Any, here: Path) -> None:
    (here / ".evalview").mkdir()
    (here / ".evalview" / "config.yaml").write_text("mine", "utf-8")
    outcome = kindlm("init", "--template", "evalview")
    assert outcome.code == 1
    assert ".evalview/config.yaml is there already" in outcome.err
    assert [path.name for path in here.iterdir()] == [".evalview"]
    assert kindlm("init", "--template", "evalview", "--force").code == 0
    assert (here / "tests" / "refund.yaml").is_file()


def test_the_schema_is_there_for_suites_alone(kindlm: Any, here: Path) -> None:
    kindlm("init", "--template", "evalview")
    assert not (here / ".kindlm").exists()


@pytest.mark.parametrize("before", ["", "*.pyc"])
def test_git_ignores_the_history_and_not_the_schema(kindlm: Any, here: Path, before: str) -> None:
    subprocess.run(["git", "init", "-q", here], check=True)
    if before:
        (here / ".gitignore").write_text(before, "utf-8")
    kindlm("init")
    kindlm("init", "--force")
    (here / ".kindlm" / "kindlm.db").touch()
    assert (here / ".gitignore").read_text("utf-8").startswith(before)
    assert (here / ".gitignore").read_text("utf-8").count(".kindlm/*") == 1
    listed = subprocess.run(
        ["git", "-C", here, "ls-files", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed.stdout.split() == [".gitignore", ".kindlm/kindlm.schema.json", "kindlm.yaml"]


def test_a_gitignore_that_knows_kindlm_stays_as_it_is(kindlm: Any, here: Path) -> None:
    (here / ".gitignore").write_text("/.kindlm/\n", "utf-8")
    kindlm("init")
    assert (here / ".gitignore").read_text("utf-8") == "/.kindlm/\n"


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_project_runs_without_key_or_network(kindlm: Any, here: Path, template: str) -> None:
    assert kindlm("init", "--template", template).code == 0
    validated = kindlm("validate", "--format", "json")
    assert (validated.code, json.loads(validated.out)["diagnostics"]) == (0, [])
    if template == "compliance":
        assert CARD in (here / "kindlm.yaml").read_bytes()
    outcome = kindlm("test", "--no-progress")
    assert outcome.code == 0, outcome.err + outcome.out
    assert kindlm("runs").out.count(" passed ") == 1
    recorded = [path for path in (here / ".kindlm").rglob("*") if path.is_file()]
    assert not [path for path in recorded if CARD in path.read_bytes()]
    if template == "compliance":
        (document,) = (here / "compliance-reports").iterdir()
        written = document.read_text("utf-8")
        assert written.startswith("# Test evidence for ACME support assistant\n")


def test_settings_are_added_to_those_there_are(kindlm: Any, here: Path) -> None:
    (here / ".env").write_text("MINE=1", "utf-8")
    kindlm("init", "--template", "agent")
    kindlm("init", "--template", "agent", "--force")
    lines = (here / ".env").read_text("utf-8").splitlines()
    assert lines[0] == "MINE=1"
    assert sum(line.startswith("LOCAL_AGENT_KEY=") for line in lines) == 1


def test_a_file_in_the_way_is_an_error_with_its_place(kindlm: Any, here: Path) -> None:
    (here / "shop").write_text("a file", "utf-8")
    outcome = kindlm("init", "shop")
    assert outcome.code == 1
    assert outcome.err.startswith("✗ The project cannot be written")
