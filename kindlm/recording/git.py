"""Which commit a run tests, and which CI service runs it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kindlm.events.run import GitState


_SCHEME_AND_HOST = re.compile(r"[\w+.-]+://[^/]*")

_CI = {
    "GITHUB_ACTIONS": "github",
    "GITLAB_CI": "gitlab",
    "BUILDKITE": "buildkite",
    "CIRCLECI": "circleci",
    "JENKINS_URL": "jenkins",
    "TF_BUILD": "azure",
    "CI": "unknown",
}


def git_state(folder: Path) -> GitState | None:
    """Return the commit that a folder is at, None outside of git or before the first commit.

    Of a copy without git, as in a container, `KINDLM_COMMIT` names the commit (with `-dirty` at its
    end if files have changed since) and `KINDLM_BRANCH` the branch.
    """
    # Commands that only read load no events.
    from kindlm.events.run import GitState

    if named := os.environ.get("KINDLM_COMMIT"):
        return GitState(
            commit=named.removesuffix("-dirty"),
            branch=os.environ.get("KINDLM_BRANCH") or None,
            dirty=named.endswith("-dirty"),
        )
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    return GitState(
        commit=commit,
        branch=branch_of(folder, os.environ),
        dirty=bool(_git(folder, "status", "--porcelain", "--untracked-files=no")),
    )


def branch_of(folder: Path, environ: Mapping[str, str]) -> str | None:
    """Return the branch that a folder is on; None outside of git and on no branch.

    GitLab checks out a commit, and says in a variable which branch it tests. It sets none for merge
    requests, whose branch may have any name in a fork.
    """
    checked_out = _git(folder, "symbolic-ref", "--short", "-q", "HEAD")
    return checked_out or (environ.get("CI_COMMIT_BRANCH") if environ.get("GITLAB_CI") else None)


def ci_service(environ: Mapping[str, str]) -> str | None:
    """Return the CI service that set this environment, None at a desk."""
    return next((name for variable, name in _CI.items() if environ.get(variable)), None)


def commit_of(folder: Path, revision: str) -> str | None:
    """Return the commit that a revision names in a folder's repository; None if there is none."""
    wanted = f"{revision}^{{commit}}"
    return _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", wanted) or None


def remote_name(folder: Path) -> str | None:
    """Return the name of the repository that a folder's one was cloned from, None if of none.

    It is the end of the path alone: the rest of a URL may hold credentials.
    """
    url = _git(folder, "config", "--get", "remote.origin.url") or ""
    path = re.split(r"[?#]", _SCHEME_AND_HOST.sub("", url))[0] if "://" in url else url
    return re.split(r"[/:]", path.rstrip("/"))[-1].removesuffix(".git") or None


def folder_in_repository(folder: Path) -> str:
    """Return a folder's path inside its repository, with slashes; empty at its top or outside."""
    top = _top_of(folder)
    path = "." if top is None else folder.resolve().relative_to(top).as_posix()
    return "" if path == "." else path


def _top_of(folder: Path) -> Path | None:
    """Return the top of the work tree that a folder is in; None outside of git."""
    folder = folder.resolve()
    # In a linked work tree or a submodule it is a file.
    return next((top for top in (folder, *folder.parents) if (top / ".git").exists()), None)


def _git(folder: Path, *arguments: str) -> str | None:
    # To start git takes longer than to look.
    if "GIT_DIR" not in os.environ and _top_of(folder) is None:
        return None
    try:
        done = subprocess.run(
            ("git", "-C", str(folder), *arguments),
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
