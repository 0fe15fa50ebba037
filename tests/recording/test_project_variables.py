"""Variables that name the commit, branch and project where there is no repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from kindlm.events.run import GitState
from kindlm.recording.project import git_state, project_name


def test_a_copy_without_git_has_the_commit_of_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINDLM_COMMIT", "a" * 40 + "-dirty")
    monkeypatch.setenv("KINDLM_BRANCH", "main")

    assert git_state(tmp_path) == GitState(commit="a" * 40, branch="main", dirty=True)


def test_the_configuration_names_the_project_before_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINDLM_PROJECT", "shop")
    named = project_name(tmp_path)
    (tmp_path / "kindlm.toml").write_text('project = "desk"\n')

    assert (named, project_name(tmp_path)) == ("shop", "desk")
