"""Keep one comment of a pull request up to date: change the one that is there, or add one.

A hidden first line marks the comment, so that a matrix of jobs keeps one each. Only comments by the
owner of the token count: somebody else's comment with the same first line is left alone. The owner
is a user, or GitHub Actions for the token of a workflow.

Reads `GITHUB_API_URL`, `GITHUB_REPOSITORY`, `GITHUB_TOKEN`, `PULL_REQUEST`, `COMMENT` (a file) and
`COMMENT_KEY`. A comment that cannot be written is a warning: a pull request from a fork may not
comment, and its tests count all the same.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

LONGEST = 65_000
"""GitHub takes 65,536 characters."""

MOST_PAGES = 100


def main() -> None:
    """Write the comment, or a warning that says why it could not be written."""
    given = os.environ
    try:
        text = Path(given["COMMENT"]).read_text("utf-8")
    except FileNotFoundError:
        print("::notice title=kindlm::There is no report to comment with.")
        return
    first = f"<!-- kindlm {urllib.parse.quote(given['COMMENT_KEY'])} -->\n"
    body = first + text
    if len(body) > LONGEST:
        body = body[:LONGEST] + "\n\n… The whole report is among the artifacts of the job."
    comments = f"/repos/{given['GITHUB_REPOSITORY']}/issues/{given['PULL_REQUEST']}/comments"
    try:
        mine = find_comment(comments, first)
        if mine is None:
            call("POST", comments, {"body": body})
        else:
            comment = f"/repos/{given['GITHUB_REPOSITORY']}/issues/comments/{mine}"
            call("PATCH", comment, {"body": body})
    except (OSError, ValueError, TypeError, LookupError) as error:
        # URLError and TimeoutError are OSErrors; the others are answers of another form.
        reason = f"{type(error).__name__}: {error}".replace("\n", " ")
        print(f"::warning title=kindlm::The comment could not be written: {reason}")


def find_comment(comments: str, first: str) -> int | None:
    """Return the id of the comment that begins with the line and belongs to the token's owner."""
    try:
        owner = call("GET", "/user")["login"]
    except urllib.error.HTTPError:
        owner = "github-actions[bot]"  # the token of a workflow may not ask who it is
    for page in range(1, MOST_PAGES + 1):
        found = call("GET", f"{comments}?per_page=100&page={page}")
        for comment in found:
            body = (comment["body"] or "").replace("\r\n", "\n")
            if (comment["user"] or {}).get("login") == owner and body.startswith(first):
                return int(comment["id"])
        if not found:
            break
    return None


def call(method: str, path: str, body: object = None) -> Any:
    """Return the JSON that GitHub's API answers."""
    request = urllib.request.Request(
        os.environ["GITHUB_API_URL"] + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {os.environ['GITHUB_TOKEN']}",
            "Content-Type": "application/json",
            "X-GitHub-Api-Version": "2022-11-28",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


if __name__ == "__main__":
    sys.exit(main())
