"""Which files a run depends on: what a change of them is, and what is left alone."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kindlm.errors import Ok
from kindlm.recording.loading import load_paths
from kindlm.recording.watched_files import WatchedFiles, changed, watched_files

COMMAND = {"name": "t", "command": "true", "expect": {"output": {"contains": ["x"]}}}


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def suite(path: Path, **keys: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    config = {"kindlm": 1, "project": "shop", "suite": {"name": path.stem}, "tests": [COMMAND]}
    path.write_text(json.dumps({**config, **keys}), "utf-8")
    return path


def watched(root: Path, *paths: Path) -> WatchedFiles:
    loaded = load_paths(paths, root)
    assert isinstance(loaded, Ok)
    return watched_files(paths, loaded.value, root)


def mattering(root: Path, *paths: Path) -> set[str]:
    """Return the files that are there and matter, as they are written from the root."""
    files = watched(root, *paths)
    return {path.relative_to(root).as_posix() for path in files.stamps() if files.matters(path)}


def test_a_suite_matters_with_all_that_it_refers_to(tmp_path: Path) -> None:
    for name, text in {
        "system.md": "You serve.",
        "user.md": "{{order}}",
        "reply.json": "{}",
        "rows.csv": "order\nA1\n",
        "other.md": "",
        ".env": "A=1",
        "kindlm.toml": "",
    }.items():
        (tmp_path / name).write_text(text, "utf-8")
    schema = {"output": {"format": "json", "schemaFile": "reply.json"}}
    path = suite(
        tmp_path / "kindlm.yaml",
        providers={"fake": {"type": "scripted", "replies": [{"text": "{}"}]}},
        models=[{"id": "m", "provider": "fake", "model": "m"}],
        prompts={"ask": {"systemFile": "system.md", "userFile": "user.md"}},
        tests=[{"name": "t", "prompt": "ask", "varsFrom": "rows.csv", "expect": schema}],
    )
    assert mattering(tmp_path, path) == {
        *("kindlm.yaml", "system.md", "user.md", "reply.json", "rows.csv", ".env", "kindlm.toml")
    }


def test_files_that_are_not_there_yet_matter(tmp_path: Path) -> None:
    prompts = {"ask": {"systemFile": "system.md", "user": "?"}}
    path = suite(tmp_path / "kindlm.yaml", prompts=prompts)
    files = watched(tmp_path, path)
    before = files.stamps()
    write(tmp_path, "system.md", ".env")
    assert changed(before, files.stamps()) == {tmp_path / "system.md", tmp_path / ".env"}
    assert all(map(files.matters, changed(before, files.stamps())))


AGENT = ("agent/main.py", "agent/tools/lookup.js", "agent/notes.txt", "other/main.py", "conf.json")
ITS = {"agent/main.py", "agent/tools/lookup.js"}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python agent/main.py", ITS),
        (["sh", "-c", "exec python agent/main.py"], ITS),
        ("python agent/main.py --config=conf.json", {*ITS, "conf.json"}),
        ("python -m agent.main --config=conf.json", {*ITS, "conf.json", "other/main.py"}),
        ("npm start", {*ITS, "other/main.py"}),
    ],
)
@pytest.mark.parametrize("served", [True, False])
def test_the_code_matters_beside_what_a_command_names_or_where_it_runs(
    tmp_path: Path, command: str | list[str], expected: set[str], served: bool
) -> None:
    write(tmp_path, *AGENT)
    if served:
        test = {**COMMAND, "command": "python other/main.py"}
        serve = [{"name": "shop", "command": command}]
        path, expected = tmp_path / "kindlm.yaml", {*expected, "other/main.py"}
        suite(path, serve=serve, tests=[test])
    else:
        path = suite(tmp_path / "kindlm.yaml", tests=[{**COMMAND, "command": command}])
    assert mattering(tmp_path, path) == {"kindlm.yaml", *expected}


@pytest.mark.parametrize(
    ("endpoint", "path", "expected"),
    [
        ("main:reply", "agent", ITS),
        ("agent.main:reply", ".", {*ITS, "other/main.py"}),
        ("other.main:reply", "agent", {*ITS, "other/main.py"}),
    ],
)
def test_the_folder_matters_that_a_python_agent_is_imported_from(
    tmp_path: Path, endpoint: str, path: str, expected: set[str]
) -> None:
    write(tmp_path, *AGENT)
    agent = {"id": "a", "adapter": "python", "endpoint": endpoint, "path": path}
    test = {"name": "t", "prompt": "ask", "expect": COMMAND["expect"]}
    file = suite(
        tmp_path / "kindlm.yaml", agents=[agent], prompts={"ask": {"user": "?"}}, tests=[test]
    )
    assert mattering(tmp_path, file) == {"kindlm.yaml", *expected}


def test_so_does_that_of_the_agent_of_scenarios(tmp_path: Path) -> None:
    write(tmp_path, *AGENT)
    table = '[agent]\ntype = "python"\nurl = "main:reply"\npath = "agent"\n'
    (tmp_path / "kindlm.toml").write_text(table, "utf-8")
    file = tmp_path / "asks.yaml"
    file.write_text("name: asks\nturns: [says: Hi]\nassertions: [contains: Hi]\n", "utf-8")
    assert mattering(tmp_path, file) == {
        *("kindlm.toml", "asks.yaml"),
        *ITS,
    }


SCENARIO = """
from kindlm import scenario
from shop_of_watch import reply

@scenario("asks", agent=reply)
async def test_asks(t): ...
"""


@pytest.mark.parametrize("beside", [True, False])
def test_what_scenarios_in_python_import_from_the_project_matters(
    tmp_path: Path, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = "tests" if beside else "src"
    write(tmp_path, f"{folder}/later.py", f"{folder}/notes.txt", "other/main.py")
    (tmp_path / folder / "shop_of_watch.py").write_text("def reply(message): ...\n", "utf-8")
    file = tmp_path / "tests" / "test_asks.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(SCENARIO, "utf-8")
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path / folder)])
    try:
        assert mattering(tmp_path, file) == {
            *("tests/test_asks.py", f"{folder}/later.py", f"{folder}/shop_of_watch.py")
        }
    finally:
        sys.modules.pop("shop_of_watch", None)


def test_a_file_beside_scenarios_matters_though_it_cannot_be_imported(tmp_path: Path) -> None:
    file = tmp_path / "test_asks.py"
    file.write_text(SCENARIO, "utf-8")
    (tmp_path / "shop_of_watch.py").write_text("def", "utf-8")
    assert mattering(tmp_path, file) == {"test_asks.py", "shop_of_watch.py"}


def test_what_is_installed_hidden_or_outside_of_the_project_does_not_matter(
    tmp_path: Path,
) -> None:
    root = tmp_path / "project"
    write(root, "agent.js", "node_modules/lib/a.js", ".cache/b.js", "venv/pyvenv.cfg", "venv/c.js")
    write(tmp_path, "outside.js")
    words = ["agent.js", "node_modules/lib/a.js", ".cache/b.js", "venv/c.js", "../outside.js"]
    (root / "inside").mkdir()
    (root / "inside" / "link.js").symlink_to(tmp_path / "outside.js")
    command = {**COMMAND, "command": ["node", *words, "x\0y", "z" * 5_000]}
    path = suite(root / "kindlm.yaml", tests=[{**command, "command": ["node", *words, "z" * 5000]}])
    assert mattering(root, path) == {"kindlm.yaml", "agent.js", "inside/link.js"}


def test_what_may_become_a_suite_is_seen_and_matters_only_as_one(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    suite(tests / "a.yaml")
    (tests / "data.yaml").write_text("x: 1", "utf-8")
    files = watched(tmp_path, tests)
    before = files.stamps()
    assert tests / "data.yaml" in before
    assert not files.matters(tests / "data.yaml")
    suite(tests / "b.yml")
    assert changed(before, files.stamps()) == {tests / "b.yml"}
    assert mattering(tmp_path, tests) == {"tests/a.yaml", "tests/b.yml"}


def test_a_file_that_was_replaced_by_one_of_its_age_and_size_has_changed(tmp_path: Path) -> None:
    path = suite(tmp_path / "kindlm.yaml")
    files = watched(tmp_path, path)
    before = files.stamps()
    then = path.stat()
    copy = suite(tmp_path / "copy")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(then.st_mtime_ns, then.st_mtime_ns))
    copy.replace(path)
    assert changed(before, files.stamps()) == {path}


def test_folders_that_lead_into_each_other_are_walked_to_an_end(tmp_path: Path) -> None:
    write(tmp_path, "agent/main.py")
    (tmp_path / "agent" / "again").symlink_to(tmp_path / "agent")
    path = suite(tmp_path / "kindlm.yaml", tests=[{**COMMAND, "command": "python agent/main.py"}])
    assert mattering(tmp_path, path) == {"kindlm.yaml", "agent/main.py"}
