"""Updates one comment on a GitHub pull request, or adds it.

A hidden first line marks the comment with a key, so that each job of a workflow keeps one. Only
comments by the owner of the token count: kindlm does not change other people's comments with the
same first line, nor a comment that already has the same text.

The action runs this file as a program, with the Python that the job has and whatever version of
kindlm is installed. So it imports nothing but the standard library. It takes the file with the
comment as its argument, and these variables:

- `GITHUB_TOKEN`, `GITHUB_REPOSITORY` and `GITHUB_API_URL`, which is that of github.com by default;
- `PULL_REQUEST`: the number of the pull request, by default that of the event of the workflow
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

LONGEST = 65_000
"""Characters; GitHub takes 65,536."""

_MOST_PAGES = 100
_TIMEOUT_S = 30


class CommentError(Exception):
    """Why a comment could not be written."""


class NoPullRequestError(CommentError):
    """The workflow was not started by a pull request."""


class PullRequest:
    """A pull request and the token that writes its comments, as a step of a workflow has them."""

    def __init__(self, environ: Mapping[str, str], folder: Path) -> None:
        """Read the environment.

        Raises:
            NoPullRequestError: There is no pull request.
            CommentError: What else is needed is missing.
        """
        for name in ("GITHUB_TOKEN", "GITHUB_REPOSITORY"):
            if not environ.get(name):
                raise CommentError(f"{name} is not set")
        self._api = environ.get("GITHUB_API_URL") or "https://api.github.com"
        self._token = environ["GITHUB_TOKEN"]
        self._repository = f"/repos/{environ['GITHUB_REPOSITORY']}"
        self._number = environ.get("PULL_REQUEST") or _number_of_event(environ)
        self._first = f"<!-- kindlm {urllib.parse.quote(_key(environ, folder))} -->\n"

    def keep(self, text: str) -> bool:
        """Let the comment say a text; return False if it does already.

        Raises:
            CommentError: GitHub could not be asked, refused, or answered in another form.
        """
        body = self._first + text
        if len(body) > LONGEST:
            # Code that is cut off inside of a line would not be code any more.
            whole_lines = body[:LONGEST].rpartition("\n")[0]
            body = f"{whole_lines}\n\n… and more, which a comment has no room for.\n"
        comments = f"{self._repository}/issues/{self._number}/comments"
        try:
            mine = self._find(comments)
            if mine is None:
                self._call("POST", comments, {"body": body})
            elif _as_sent(mine["body"]).rstrip() == body.rstrip():
                return False
            else:
                comment = f"{self._repository}/issues/comments/{int(mine['id'])}"
                self._call("PATCH", comment, {"body": body})
        except (OSError, HTTPException, ValueError, TypeError, LookupError) as error:
            # URLError and TimeoutError are OSErrors. An HTTPException is an answer that breaks off,
            # the others are answers of another form.
            raise CommentError(f"{type(error).__name__}: {error}".replace("\n", " ")) from error
        return True

    def _find(self, comments: str) -> Any:
        """Return the comment that has the first line and is the token's owner's; None without."""
        try:
            owner = self._call("GET", "/user")["login"]
        except urllib.error.HTTPError as error:
            if error.code != 403:
                raise
            owner = "github-actions[bot]"  # the token of a workflow may not ask who it is
        for page in range(1, _MOST_PAGES + 1):
            found = self._call("GET", f"{comments}?per_page=100&page={page}")
            for comment in found:
                body = _as_sent(comment["body"])
                if (comment["user"] or {}).get("login") == owner and body.startswith(self._first):
                    return comment
            if not found:
                break
        return None

    def _call(self, method: str, path: str, content: object = None) -> Any:
        """Return the JSON that GitHub's API answers."""
        request = urllib.request.Request(  # noqa: S310 - the address is that of the workflow's API
            self._api + path,
            method=method,
            data=None if content is None else json.dumps(content).encode(),
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
                "User-Agent": "kindlm",
                "X-GitHub-Api-Version": "2022-11-28",
            },
        )
        with _OPENER.open(request, timeout=_TIMEOUT_S) as response:
            return json.load(response)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token is sent to one address alone: an answer that names another one is an error."""

    def redirect_request(self, *_args: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _as_sent(body: str | None) -> str:
    return (body or "").replace("\r\n", "\n")


def _number_of_event(environ: Mapping[str, str]) -> str:
    """Return the number of the pull request that started the workflow."""
    try:
        event = json.loads(Path(environ["GITHUB_EVENT_PATH"]).read_text("utf-8"))
        return str(int(event["pull_request"]["number"]))
    except (OSError, ValueError, TypeError, LookupError):
        raise NoPullRequestError("no pull request started this workflow") from None


def _key(environ: Mapping[str, str], folder: Path) -> str:
    if "COMMENT_KEY" in environ:
        return environ["COMMENT_KEY"]
    workspace = environ.get("GITHUB_WORKSPACE")
    place = os.path.relpath(folder, workspace) if workspace else "."
    workflow, job = (environ.get(name, "") for name in ("GITHUB_WORKFLOW", "GITHUB_JOB"))
    return f"{workflow}/{job}/{place}"


def _main(file: str) -> None:
    """Write the comment of the action, or a warning that says why it could not be written."""
    try:
        text = Path(file).read_text("utf-8")
    except FileNotFoundError:
        print("::notice title=kindlm::There is no report to comment with.")  # noqa: T201
        return
    try:
        PullRequest(os.environ, Path.cwd()).keep(text)
    except CommentError as error:
        print(f"::warning title=kindlm::The comment could not be written: {error}")  # noqa: T201


if __name__ == "__main__":
    _main(sys.argv[1])
