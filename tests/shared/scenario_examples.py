"""Examples with scenarios: copies of them to run, and what was found out about their agents."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kindlm.cli.app import run


def copied(example: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go into a copy of an example, with nothing set that changes how it behaves."""
    for name in ("KINDLM_DB", "CI", "GITHUB_ACTIONS", "AGENT", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache", ".kindlm")
    shutil.copytree(example, root, ignore=ignored)
    monkeypatch.chdir(root)
    return root


def rows(root: Path, sql: str, *values: str) -> list[tuple[Any, ...]]:
    """Ask the history of a project."""
    with closing(sqlite3.connect(root / ".kindlm" / "kindlm.db")) as db:
        return db.execute(sql, values).fetchall()


def held_against(root: Path, label: str) -> dict[str, list[tuple[str, int, str]]]:
    """What did not pass in the first repeat of each test: kinds of checks, lines, messages."""
    held: dict[str, list[tuple[str, int, str]]] = {}
    for test, *failed in rows(
        root,
        "SELECT e.test, a.kind, a.line, m.body FROM runs r"
        " JOIN executions e ON e.run = r.id JOIN assertions a ON a.execution = e.id"
        " JOIN contents m ON m.ref = a.message_ref"
        " WHERE r.label = ? AND e.repeat = 1 AND a.outcome <> 'passed' ORDER BY a.position",
        label,
    ):
        held.setdefault(test, []).append((failed[0], failed[1], failed[2]))
    return held


def good_and_rude(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    """What `kindlm diff` tells of each test of the runs `good` and `rude`, which it calls worse."""
    capsys.readouterr()
    assert run(["diff", "good", "rude", "--format", "json"]) == 1
    return {test["name"]: test for test in json.loads(capsys.readouterr().out)["tests"]}


def lost_checks(test: dict[str, Any]) -> list[str]:
    """Return the kinds of checks that pass less often than before."""
    return [
        check["kind"]
        for check in test["details"]["checks"]
        if check["after"]["passed"] < check["before"]["passed"]
    ]
