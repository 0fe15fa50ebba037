"""`kindlm diff --base`: the newest run of a branch, and the comment on the pull request."""

from __future__ import annotations

import io
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kindlm.cli.console import note, or_fail, show, warn
from kindlm.cli.ending import NOTHING_RUN
from kindlm.cli.history import commit_named
from kindlm.cli.pull_request import CommentError, NoPullRequestError, PullRequest
from kindlm.errors import ErrorCode, KindlmError
from kindlm.reports.untrusted import plain

if TYPE_CHECKING:
    from kindlm.history.diff.run_diff import RunDiff
    from kindlm.history.run_names import Side
    from kindlm.reports.report_registry import ReportOptions


def sides_with_branch(
    db: sqlite3.Connection, branch: str, wanted: str | None, *, comment: bool
) -> tuple[Side, Side]:
    """Return the newest run of a branch, and the run to compare with it, which has to be here.

    Without a run of the branch the command ends: with an error, or with 0 if the comment on the
    pull request says so. The first pull request of a project has nothing to compare with.
    """
    from kindlm.history.run_names import find_changed, newest_of_branch
    from kindlm.history.run_view import RunView
    from kindlm.recording.git import branch_of

    here = branch_of(Path.cwd(), os.environ)
    after = or_fail(find_changed(db, wanted, branch, here, commit_named))
    found = newest_of_branch(db, branch, after)
    if found is not None:
        return or_fail(found), after
    view = RunView(db, after)
    suites = view.info.suites
    listed = ", ".join(map(repr, suites[:3])) + (", …" if len(suites) > 3 else "")
    message = f"No run of branch {branch!r} with a suite of {view.id} ({listed}) has finished yet."
    hint = f"Run kindlm test on {branch}. The recorded runs: kindlm runs"
    if not comment:
        show([KindlmError(ErrorCode.CONFIG_NOT_FOUND, message, hint)])
        raise typer.Exit(NOTHING_RUN)
    note(message)
    _keep_comment(f"### ⚠️ kindlm: nothing to compare with\n\n{plain(message)}\n")
    raise typer.Exit


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
