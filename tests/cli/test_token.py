"""`kindlm token`: a token is printed once, and never again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def test_a_token_alone_is_on_standard_output(kindlm: Any, here: Path) -> None:
    limits = ("--pushes-per-minute", "7", "--mb-per-day", "2", "--mb-total", "5")
    created = kindlm("token", "create", "--name", "ci", "--days", "90", *limits)
    assert created.code == 0
    assert re.fullmatch(r"kdl_[A-Za-z0-9_-]{43}\n", created.out)
    listed = kindlm("token", "list")
    (line,) = listed.out.splitlines()[1:]
    assert line.split()[:3] == ["ci", "valid", "push,pull"]
    (known,) = json.loads(kindlm("token", "list", "--format", "json").out)
    assert (known["used_at"], known["bytes"]) == (None, 0)
    assert (known["pushes_per_minute"], known["bytes_per_day"]) == (7, 2_000_000)
    assert known["bytes_in_all"] == 5_000_000
    assert created.out.strip() not in listed.out + json.dumps(known)
    # Beside the history, and out of version control like it.
    assert (here / ".kindlm" / ".gitignore").is_file()
    assert not (here / ".kindlm" / "kindlm.db").exists()


def test_a_revoked_token_is_listed_as_that(kindlm: Any, here: Path) -> None:
    kindlm("token", "create", "--name", "ci", "--db", "team.db")
    assert kindlm("token", "revoke", "ci", "--db", "team.db").code == 0
    again = kindlm("token", "revoke", "ci", "--db", "team.db")
    assert (again.code, "no valid token 'ci'" in again.err) == (1, True)
    assert "revoked" in kindlm("token", "list", "--db", "team.db").out


def test_listing_makes_no_file(kindlm: Any, here: Path) -> None:
    for command in (["list"], ["revoke", "ci"]):
        failed = kindlm("token", *command, "--db", "team.db")
        assert (failed.code, "There are no tokens for team.db" in failed.err) == (1, True)
    assert list(here.iterdir()) == []


def test_wrong_names_and_scopes_are_refused(kindlm: Any, here: Path) -> None:
    for wrong in (["--name", "a b"], ["--name", "ci", "--scopes", "all"]):
        failed = kindlm("token", "create", *wrong)
        assert (failed.code, failed.out) == (1, "")


def test_a_limit_is_a_number_that_can_be_kept(kindlm: Any) -> None:
    failed = kindlm("token", "create", "--name", "ci", "--mb-total", "9" * 20)
    assert (failed.code, "--mb-total" in failed.err) == (1, True)


def test_a_file_that_holds_something_else_is_no_store_of_tokens(kindlm: Any, here: Path) -> None:
    Path("team.db.tokens").write_bytes(b"x" * 5000)
    failed = kindlm("token", "list", "--db", "team.db")
    assert (failed.code, "cannot be used" in failed.err) == (1, True)
