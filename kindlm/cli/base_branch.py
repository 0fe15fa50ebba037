"""`kindlm diff --base`: the newest run of a branch, and the comment on the pull request."""

from __future__ import annotations

import io
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kindlm.cli.console import fail, note, or_fail, show, warn
from kindlm.cli.ending import NOTHING_RUN
from kindlm.cli.history import commit_named
from kindlm.cli.pull_request import CommentError, NoPullRequestError, PullRequest
from kindlm.errors import Err, ErrorCode, KindlmError
from kindlm.reports.untrusted import plain

if TYPE_CHECKING:
    from kindlm.history.diff.run_diff import RunDiff
    from kindlm.history.run_names import Side
    from kindlm.history.runs import Run
    from kindlm.recording.project import Project
    from kindlm.reports.report_registry import ReportOptions

_PATIENCE_S = 20.0
"""How long a server that is away is waited for: the history here may do."""


@dataclass(frozen=True, slots=True)
class Base:
    """The branch to compare with, and how it was asked for.

    `url` is the history server that was named, which is sent the token over plain HTTP if
    `insecure`. `comment` says whether the comment on the pull request is written.
    """

    branch: str
    url: str | None
    insecure: bool
    comment: bool


def sides_with_branch(
    db: sqlite3.Connection, project: Project, base: Base, wanted: str | None
) -> tuple[Side, Side]:
    """Return the newest run of a branch, and the run to compare with it, which has to be here.

    A history server is asked first, if there is one. Without a run of the branch the command ends:
    with an error, or with 0 if the comment on the pull request says so. The first pull request of a
    project has nothing to compare with.
    """
    from kindlm.history.run_names import find_changed, newest_of_branch
    from kindlm.history.run_view import RunView
    from kindlm.recording.git import branch_of

    here = branch_of(Path.cwd(), os.environ)
    branch = base.branch
    after = or_fail(find_changed(db, wanted, branch, here, commit_named))
    view = RunView(db, after)
    problem = _pull(db, project, base, view.info)
    found = newest_of_branch(db, branch, after)
    if problem is not None:
        if found is None:
            fail([problem])
        warn(problem.message, "The newest run in the history here is compared.")
    if found is not None:
        return or_fail(found), after
    suites = view.info.suites
    listed = ", ".join(map(repr, suites[:3])) + (", …" if len(suites) > 3 else "")
    message = f"No run of branch {branch!r} with a suite of {view.id} ({listed}) has finished yet."
    hint = f"Run kindlm test on {branch}. The recorded runs: kindlm runs"
    if not base.comment:
        show([KindlmError(ErrorCode.CONFIG_NOT_FOUND, message, hint)])
        raise typer.Exit(NOTHING_RUN)
    note(message)
    _keep_comment(f"### ⚠️ kindlm: nothing to compare with\n\n{plain(message)}\n")
    raise typer.Exit


def _pull(db: sqlite3.Connection, project: Project, base: Base, after: Run) -> KindlmError | None:
    """Pull the newest run of the branch from the history server, if there is one.

    Returns why that is not possible.
    """
    from kindlm.cli.history_server import configured_upload, find_server
    from kindlm.team.client import HistoryClient
    from kindlm.team.newest_runs import pull_newest

    upload = configured_upload(project.root)
    configured = None if upload is None else upload.url
    login = find_server(base.url, configured, project.root, insecure=base.insecure)
    if isinstance(login, Err):
        return login.error
    if login.value is None:
        return None
    address, token = login.value
    with closing(HistoryClient(address.base, token, patience_s=_PATIENCE_S)) as client:
        pulled = pull_newest(client, db, project.database, base.branch, after)
    if isinstance(pulled, Err):
        return pulled.error
    if pulled.value:
        note(f"Pulled from {address.base}: {', '.join(pulled.value)}")
    return None


def comment_on(diff: RunDiff, options: ReportOptions) -> None:
    """Let the comment on the pull request show a comparison."""
    from kindlm.reports.diff.markdown import write_diff

    text = io.StringIO()
    write_diff(diff, text, options)
    _keep_comment(text.getvalue())


def _keep_comment(text: str) -> None:
    """Let the comment on the pull request say a text; a warning says why that is not possible."""
    try:
        PullRequest(os.environ, Path.cwd()).keep(text)
    except NoPullRequestError:
        note("There is no comment to write: no pull request started this workflow.")
    except CommentError as error:
        warn(f"The comment on the pull request could not be written: {error}.")
