"""The benchmarks still run, and the page about them knows all of them."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import sys
import time
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from subprocess import DEVNULL
from types import ModuleType
from typing import Any

import loaded_kindlm
import pytest
from forked_workers import fork_workers
from inside import run_inside

from kindlm.recording import session
from kindlm_store import EventLog

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "contributing" / "performance.md"

COMPARED_WITH = {"comparison"}
"""Measured only where another program is installed."""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)


def module(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.{name}")


def names() -> list[str]:
    return list(module("__main__").BENCHMARKS)


def run(*arguments: str) -> None:
    module("__main__").main(arguments)


def test_the_page_says_what_each_benchmark_measures() -> None:
    meaning, _, table = PAGE.read_text("utf-8").partition("<!-- figures:")
    assert "overhead" in names()
    for name in names():
        assert f"`{name}`" in meaning
        assert f"| `{name}` " in table or name in COMPARED_WITH


def test_part_of_the_figures_is_no_table_for_the_docs() -> None:
    with pytest.raises(SystemExit, match="leave the names out"):
        run("overhead", "--write-docs")


def test_a_process_is_measured(tmp_path: Path) -> None:
    processes = module("processes")
    measured = processes.measure([sys.executable, "-c", "print('so')"], folder=tmp_path)
    assert measured.output == "so\n"
    assert measured.wall_s > 0
    assert measured.peak_bytes > 0
    with pytest.raises(RuntimeError, match="ended with 3"):
        processes.measure([sys.executable, "-c", "raise SystemExit(3)"], folder=tmp_path)


def test_a_function_is_called_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert module("processes").in_process("store.bare_rate", tasks=2) > 0


@pytest.fixture
def _few_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no Python for what is measured: what a start costs is not looked at here."""
    processes = module("processes")
    measure = processes.measure

    def inside(command: Sequence[str], *, folder: Path, **environment: str) -> Any:
        if list(command[1:3]) != ["-m", "kindlm"]:
            return measure(command, folder=folder, **environment)
        began = time.perf_counter()
        done = run_inside(command[3:], cwd=folder, env={"CI": "true", **environment})
        assert done.returncode == 0, done.stderr
        wall_s = time.perf_counter() - began
        return processes.Measured(wall_s, wall_s, 1, 1, done.stdout)

    def called(function: str, /, **arguments: Any) -> Any:
        name, _, wanted = function.rpartition(".")
        # What a benchmark of recording puts in their place, for good in its process.
        kept = [
            (EventLog, "submit", EventLog.submit),
            (session, "run_plan", vars(session)["run_plan"]),
        ]
        try:
            with chdir(ROOT):
                return getattr(module(name), wanted)(**arguments)
        finally:
            for owner, attribute, value in kept:
                setattr(owner, attribute, value)

    def started(command: Sequence[str], folder: Path, stdout: int = DEVNULL, **more: str) -> Any:
        environ = {**os.environ, **more}
        return loaded_kindlm.start(command, cwd=folder, env=environ, stdout=stdout, stderr=DEVNULL)

    fork_workers(monkeypatch)
    # For what is still called in a process of its own.
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OPENAI_API_KEY", "not-needed-here")
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(processes, "measure", inside)
    monkeypatch.setattr(module("fleet"), "_start", started)
    for found in pkgutil.iter_modules([str(ROOT / "benchmarks")]):
        if found.name != "comparison" and hasattr(module(found.name), "in_process"):
            monkeypatch.setattr(module(found.name), "in_process", called)


@pytest.mark.slow
@pytest.mark.usefixtures("_few_starts")
def test_all_benchmarks_run_and_write_their_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text("utf-8"), encoding="utf-8")
    run("--small", "--write-docs", "--page", str(page))
    before, after = (file.read_text("utf-8").partition("<!-- figures:") for file in (PAGE, page))
    assert after[0] == before[0]
    assert "these figures say nothing" in after[2]
    rows = set(re.findall(r"^\| `(\w+)`", after[2], re.MULTILINE))
    assert rows == set(names()) - COMPARED_WITH or rows == set(names())
