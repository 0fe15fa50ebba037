"""The project of a run: its configuration, and variables that stand for a repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from kindlm.errors import Err, Ok
from kindlm.events.run import GitState
from kindlm.recording.loading import load_paths
from kindlm.recording.project import (
    branch_of,
    commit_of,
    environment_problems,
    folder_in_repository,
    git_state,
    overruled_variables,
    project_name,
    remote_name,
    report_files,
    repository_problems,
    run_environment,
    unread_configurations,
)

GIT = ("git", "-c", "user.name=me", "-c", "user.email=me@example.com", "-C")
DEEP = "[" * 3_000 + "]" * 3_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kindlm.toml", f"x = {DEEP}"),
        ("pyproject.toml", f"[tool.kindlm]\nx = {DEEP}"),
    ],
)
def test_a_file_that_is_nested_too_deeply_is_an_error(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)

    found = report_files(tmp_path)

    assert isinstance(found, Err)
    assert found.error.message == f"{name} cannot be read: it is nested too deeply."


@pytest.mark.parametrize(
    ("remote", "name"),
    [
        ("https://example.com/acme/shop.git", "shop"),
        ("git@example.com:acme/shop.git", "shop"),
        ("../copies/shop/", "shop"),
        ("https://example.com/shop.git?private_token=glpat-SECRET12345#x", "shop"),
        ("https://ci:glpat-SECRET12345@example.com", None),
    ],
)
def test_the_name_of_a_repository_holds_no_credentials(
    tmp_path: Path, remote: str, name: str | None
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git" / "objects").mkdir()
    (tmp_path / ".git" / "refs").mkdir()
    (tmp_path / ".git" / "config").write_text(f'[remote "origin"]\n\turl = "{remote}"\n')
    assert remote_name(tmp_path) == name


def test_a_copy_without_git_has_the_commit_of_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINDLM_COMMIT", "a" * 40 + "-dirty")
    monkeypatch.setenv("KINDLM_BRANCH", "main")

    assert git_state(tmp_path) == GitState(commit="a" * 40, branch="main", dirty=True)


def test_a_copy_without_git_is_in_the_workspace_of_github(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suites = tmp_path / "services" / "help desk"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert folder_in_repository(suites) == "services/help desk"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "elsewhere"))
    assert folder_in_repository(suites) == ""


def test_the_configuration_names_the_project_before_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINDLM_PROJECT", "shop")
    named = project_name(tmp_path)
    (tmp_path / "kindlm.toml").write_text('project = "desk"\n')

    assert (named, project_name(tmp_path)) == ("shop", "desk")


@pytest.mark.parametrize("name", ["kindlm.toml", "pyproject.toml"])
def test_a_configuration_may_begin_with_a_byte_order_mark(tmp_path: Path, name: str) -> None:
    table = "[tool.kindlm]\n" if name == "pyproject.toml" else ""
    (tmp_path / name).write_text(f'{table}project = "desk"\n', "utf-8-sig")
    assert project_name(tmp_path) == "desk"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (b"# Schl\xfcssel\nKEY=abc\n", "abc"),
        (b"KEY=a\xfcc\n", os.fsdecode(b"a\xfcc")),
        (b"\xef\xbb\xbfKEY=abc\n", "abc"),
    ],
    ids=["comment", "value", "byte order mark"],
)
def test_variables_of_a_file_are_decoded_as_those_of_the_environment(
    tmp_path: Path, written: bytes, value: str
) -> None:
    (tmp_path / ".env").write_bytes(written)
    assert run_environment([tmp_path], {}) == {"KEY": value}


@pytest.mark.parametrize(
    ("event", "kind", "pushed", "branch"),
    [
        ("push", "branch", True, "main"),
        ("push", "tag", True, None),
        ("push", "branch", False, None),  # another commit was checked out than that of the push
        ("pull_request_target", "branch", True, None),
    ],
)
def test_github_names_the_branch_of_a_commit_that_was_pushed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    event: str,
    kind: str,
    pushed: bool,
    branch: str | None,
) -> None:
    monkeypatch.delenv("CI_COMMIT_BRANCH", raising=False)
    for command in ("init -q", "commit -q --allow-empty -m x", "checkout -q --detach"):
        subprocess.run([*GIT, tmp_path, *command.split()], check=True)
    head = commit_of(tmp_path, "HEAD") or ""
    monkeypatch.setenv("GITHUB_EVENT_NAME", event)
    monkeypatch.setenv("GITHUB_REF_TYPE", kind)
    monkeypatch.setenv("GITHUB_REF_NAME", "main")
    monkeypatch.setenv("GITHUB_SHA", head if pushed else "a" * 40)
    assert branch_of(tmp_path) == branch


def test_a_commit_whose_state_git_does_not_say_is_not_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*GIT, tmp_path, *words], check=True)
    clean = git_state(tmp_path)
    fails = tmp_path / "bin" / "git"
    fails.parent.mkdir()
    fails.write_text(f'#!/bin/sh\n[ "$3" != status ] && exec {shutil.which("git")} "$@"\n')
    fails.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fails.parent}:{os.environ['PATH']}")

    unknown = git_state(tmp_path)

    assert clean is not None
    assert not clean.dirty
    assert unknown == replace(clean, dirty=True)


def test_a_repository_of_another_user_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run([*GIT, tmp_path, "init", "-q"], check=True)
    subprocess.run([*GIT, tmp_path, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    own = list(repository_problems(tmp_path))
    # As git's own tests say that another user owns the files.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)

    [refused] = repository_problems(tmp_path)
    (tmp_path / "gitconfig").write_text(f"[safe]\n\tdirectory = {tmp_path}\n")

    assert own == []
    assert refused.hint == f"git config --global --add safe.directory {tmp_path}"
    assert list(repository_problems(tmp_path)) == []


def test_what_other_tools_replace_in_an_env_file_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIVE", "as a container sets it, from the same file")
    monkeypatch.setenv("SIX", "${HOST}")  # kindlm has set the variables of the file already
    lines = [
        "HOST=a",
        "ONE=http://${HOST}/v1",
        'TWO="${HOST:-b}"',
        "THREE = '${HOST}'",
        "FOUR=p$$w{",
        "FIVE=${HOST}",
        "SIX=${HOST}",
    ]
    (tmp_path / ".env").write_text("\n".join(lines))

    found = list(environment_problems([tmp_path]))

    assert [(error.message[-3:], error.where and error.where.line) for error in found] == [
        ("ONE", 2),
        ("TWO", 3),
        ("SIX", 7),
    ]


def test_other_values_beside_another_suite_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SET", "in the shell, for all of them")
    for name, text in {"a": "KEY=1\nSAME=x\nSET=1\n", "b": "KEY=2\nSAME=x\nSET=2\nOWN=3\n"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / ".env").write_text(text)
    folders = [tmp_path / "a", tmp_path / "b", tmp_path / "none"]

    (error,) = overruled_variables(folders)
    assert error.message == "KEY: the .env beside another suite counts in this run"
    assert error.where is not None
    assert error.where.file == str(tmp_path / "b" / ".env")
    assert not list(overruled_variables(folders[1:]))

    for name in "ab":
        (tmp_path / name / "kindlm.yaml").write_text(
            f"suite: {name}\nagent: http://127.0.0.1:1\ntests: {{name: a, input: a, expect: {{}}}}"
        )
    loaded = load_paths([tmp_path], tmp_path)
    assert isinstance(loaded, Ok)
    assert error.message in [each.error.message for each in loaded.value.diagnostics]


def test_a_configuration_that_does_not_apply_is_told(tmp_path: Path) -> None:
    for name in ("kindlm.toml", "a/kindlm.toml", "b/pyproject.toml", "../kindlm.toml"):
        file = tmp_path / "project" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('[tool.kindlm]\nproject = "x"\n' if "py" in name else 'project = "x"\n')
    root = tmp_path / "project"
    folders = [root, root / "a" / "tests", root / "a", root / "b", root / "c"]

    found = list(unread_configurations(folders, root))

    files = [error.where and error.where.file for error in found]
    assert files == [str(root / "a" / "kindlm.toml"), str(root / "b" / "pyproject.toml")]
    assert found[0].message.endswith(f"the project of this run is {root}")
    assert not list(unread_configurations([root / "a" / "tests"], root / "a"))


def test_variables_of_a_hook_do_not_stand_for_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = tmp_path / "own" / "sub", tmp_path / "other"
    for folder in folders:
        folder.mkdir(parents=True)
    for top, message in ((tmp_path / "own", "own"), (tmp_path / "other", "other")):
        subprocess.run([*GIT, top, "init", "-q"], check=True)
        (top / "file").write_text("")
        subprocess.run([*GIT, top, "add", "file"], check=True)
        subprocess.run([*GIT, top, "commit", "-q", "-m", message], check=True)
    expected = [git_state(folder) for folder in folders]

    monkeypatch.setenv("GIT_DIR", str(tmp_path / "own" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "own" / ".git" / "index"))

    assert [git_state(folder) for folder in folders] == expected
