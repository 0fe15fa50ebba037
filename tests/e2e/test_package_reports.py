"""A report of a package that crashes costs itself, not the verdict and not a file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from workspace import Workspace, as_yaml

ENTRY_POINTS = """
[kindlm.reports]
csv = acme:Csv
json = acme:Csv
pretty = acme:Csv
odd = acme:Odd
pdf = acme:Pdf
"""

ACME = """
from kindlm.plugins import Report

class Csv(Report):
    def render(self, run):
        raise ValueError("no column")

class Odd(Report):
    def render(self, run):
        return 7

class Pdf(Report):
    def render(self, run):
        return b"%PDF"
"""


@pytest.fixture
def failing(workspace: Workspace) -> Workspace:
    """Return a project whose one test fails, with the package."""
    workspace.package(ENTRY_POINTS, ACME)
    config = {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "orders"},
        "providers": {"fake": {"type": "scripted", "replies": [{"text": "Lost."}]}},
        "models": [{"id": "m", "provider": "fake", "model": "x"}],
        "prompts": {"ask": {"user": "Where is A1?"}},
        "tests": [
            {"name": "found", "prompt": "ask", "expect": {"output": {"contains": "delivered"}}}
        ],
    }
    (workspace.root / "kindlm.yaml").write_text(as_yaml(config))
    return workspace


@pytest.mark.parametrize("report", ["csv", "odd"])
@pytest.mark.parametrize("file", [None, "kept.csv"])
def test_the_verdict_is_shown(failing: Workspace, report: str, file: str | None) -> None:
    kept = failing.root / "kept.csv"
    kept.write_text("of an earlier run\n")
    done = failing.run("test", "--reporter", report if file is None else f"{report}={file}")
    [(run,)] = failing.query("SELECT id FROM runs")
    assert done.returncode == 1
    assert done.stdout == ""
    verdict, _, error = done.stderr.partition(f"run {run}")
    assert "FAILED: 1 test failed" in verdict
    assert f'The report "{report}" of the package acme' in error
    again = f"kindlm report {run} --format {report}" + ("" if file is None else f" -o {file}")
    assert again in " ".join(error.split())
    assert kept.read_text() == "of an earlier run\n"
    assert sorted(Path(failing.root).glob(".*.part")) == []


def test_bytes_need_a_file(failing: Workspace) -> None:
    failing.run("test")
    [(run,)] = failing.query("SELECT id FROM runs")
    reading, terminal = os.openpty()
    done = subprocess.run(
        failing.command("report", "--format", "pdf"),
        cwd=failing.root,
        env=failing.env,
        stdout=terminal,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    for descriptor in (reading, terminal):
        os.close(descriptor)
    assert done.returncode == 1
    assert "is not text, and cannot be printed" in done.stderr
    again = f"kindlm report {run} --format pdf -o FILE"
    assert f"Name a file. Then: {again}" in " ".join(done.stderr.split())
    assert "--reporter" not in done.stderr


def test_the_verdict_is_shown_once(failing: Workspace) -> None:
    done = failing.run("test", "--reporter", "terminal", "--reporter", "csv=run.csv")
    assert (done.stdout + done.stderr).count("FAILED: 1 test failed") == 1
    assert not (failing.root / "run.csv").exists()


def test_the_other_reports_are_written(failing: Workspace) -> None:
    done = failing.run("test", "--reporter", "csv=run.csv", "--reporter", "junit")
    assert done.stdout.startswith("<?xml")
    assert "FAILED: 1 test failed" in done.stderr


def test_a_recorded_run_can_be_reported_again(failing: Workspace) -> None:
    failing.run("test")
    kept = failing.root / "kept.csv"
    kept.write_text("of an earlier run\n")
    done = failing.run("report", "--format", "csv", "-o", "kept.csv")
    assert done.returncode == 1
    assert "crashed: ValueError: no column" in done.stderr
    assert kept.read_text() == "of an earlier run\n"


def test_the_schema_warns_of_reports_that_cannot_be_used(failing: Workspace) -> None:
    done = failing.run("schema")
    assert done.returncode == 0
    said = " ".join(done.stderr.split())
    for name in ("json", "pretty"):
        reserved = f'The report "{name}" of the package acme has a name that kindlm reserves'
        assert reserved in said
    assert said.count("!") == 2
