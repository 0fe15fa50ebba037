"""Adds a comment to a GitHub pull request, or updates it.

The hidden first line of a comment has a key, so that each job of a workflow has its own comment.
kindlm only changes comments by the owner of its token, and only if their text differs.

The action runs this file as a program, with the Python of the job and any version of kindlm, so it
imports only the standard library. Its argument is the file with the comment. It reads these
variables:

- `GITHUB_TOKEN`, `GITHUB_REPOSITORY` and `GITHUB_API_URL`, by default that of github.com;
- `PULL_REQUEST`: the number of the pull request, by default that of the workflow's event
  (`GITHUB_EVENT_PATH`);
- `COMMENT_KEY`: by default the workflow, the job and the folder.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any

_MOST_PAGES = 100
_TIMEOUT_S = 30
_NO_REPORT = (
    "### ❌ kindlm: NO REPORT\n\nThe last run of this job wrote no report; its log says why.\n"
)


class CommentError(Exception):
    """Why a comment could not be written."""


class NoPullRequestError(CommentError):
    """The workflow was not started by a pull request."""


def keep_comment(
    environ: Mapping[str, str], folder: Path, text: str, *, create: bool = True
) -> bool:
    """Write a text into the comment on the pull request; return False if that changes nothing.

    Without `create`, it only replaces the text of a comment that is there already.

    Raises:
        NoPullRequestError: There is no pull request.
        CommentError: A variable is missing; or GitHub cannot be reached, refused, or sent an
            unexpected answer.
    """
    for name in ("GITHUB_TOKEN", "GITHUB_REPOSITORY"):
        if not environ.get(name):
            raise CommentError(f"{name} is not set")
    if not environ["GITHUB_TOKEN"].strip().isprintable():
        raise CommentError("GITHUB_TOKEN is no token")  # an error of Python would quote it
    issues = f"/repos/{environ['GITHUB_REPOSITORY']}/issues"
    number = environ.get("PULL_REQUEST") or _number_of_event(environ)
    comments = f"{issues}/{number}/comments"
    workspace = environ.get("GITHUB_WORKSPACE")
    place = os.path.relpath(folder, workspace) if workspace else "."
    workflow, job = (environ.get(name, "") for name in ("GITHUB_WORKFLOW", "GITHUB_JOB"))
    key = environ.get("COMMENT_KEY", f"{workflow}/{job}/{place}")
    first = f"<!-- kindlm {urllib.parse.quote(key)} -->\n"
    body = first + text
    try:
        mine = _find(environ, comments, first)
        if mine is None and not create:
            return False
        if mine is None:
            _call(environ, "POST", comments, {"body": body})
        elif _as_sent(mine["body"]).rstrip() == body.rstrip():
            return False
        else:
            _call(environ, "PATCH", f"{issues}/comments/{int(mine['id'])}", {"body": body})
    except (OSError, HTTPException, ValueError, TypeError, LookupError) as error:
        # An OSError is a failed request, also as URLError or TimeoutError. An HTTPException is a
        # truncated answer. The others are answers of unexpected form.
        raise CommentError(f"{type(error).__name__}: {error}".replace("\n", " ")) from error
    return True


def _find(environ: Mapping[str, str], comments: str, first: str) -> Any:
    """Return the comment with the first line, by the owner of the token; None without one."""
    try:
        owner = _call(environ, "GET", "/user")["login"]
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 403:
            raise
        # The token of a workflow, or of another app, cannot read its user.
        answer = _call(environ, "POST", "/graphql", {"query": "{ viewer { login } }"})
        owner = answer["data"]["viewer"]["login"]
    for page in range(1, _MOST_PAGES + 1):
        found = _call(environ, "GET", f"{comments}?per_page=100&page={page}")
        for comment in found:
            is_owned = (comment["user"] or {}).get("login") == owner
            if is_owned and _as_sent(comment["body"]).startswith(first):
                return comment
        if not found:
            break
    return None


def _call(environ: Mapping[str, str], method: str, path: str, content: object = None) -> Any:
    base = environ.get("GITHUB_API_URL") or "https://api.github.com"
    if path == "/graphql":
        base = base.removesuffix("/v3")  # of a GitHub Enterprise Server
    request = urllib.request.Request(  # noqa: S310 - the address is that of the workflow's API
        base + path,
        method=method,
        data=None if content is None else json.dumps(content).encode(),
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {environ['GITHUB_TOKEN'].strip()}",
            "Content-Type": "application/json",
            "User-Agent": "kindlm",
            "X-GitHub-Api-Version": "2022-11-28",
        },
    )
    with _OPENER.open(request, timeout=_TIMEOUT_S) as response:
        return json.load(response)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error, so that the token goes to one address only."""

    def redirect_request(self, *_args: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _as_sent(body: str | None) -> str:
    return (body or "").replace("\r\n", "\n")


def _number_of_event(environ: Mapping[str, str]) -> str:
    try:
        event = json.loads(Path(environ["GITHUB_EVENT_PATH"]).read_text("utf-8"))
        return str(int(event["pull_request"]["number"]))
    except (OSError, ValueError, TypeError, LookupError):
        raise NoPullRequestError("no pull request started this workflow") from None


def _main(file: str) -> None:
    """Write the comment of the action, or a warning that says why it could not be written.

    Without a report, an earlier comment says so: it must not pass for the result of this commit.
    """
    report = Path(file)
    has_report = report.exists()
    text = report.read_text("utf-8") if has_report else _NO_REPORT
    try:
        keep_comment(os.environ, Path.cwd(), text, create=has_report)
    except CommentError as error:
        print(f"::warning title=kindlm::The comment could not be written: {error}")  # noqa: T201


if __name__ == "__main__":
    _main(sys.argv[1])
