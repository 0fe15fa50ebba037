"""The benchmarks still run, and the page about them knows all of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"

COMPARED_WITH = {"comparison"}
"""Measured only where another program is installed."""


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def names() -> list[str]:
    usage = re.search(r"one of: ([\w, \n]+)", benchmarks("--help").stdout)
    assert usage
    return [name.strip() for name in usage[1].split("\n\n")[0].split(",")]


def test_the_page_says_what_each_benchmark_measures() -> None:
    meaning, _, table = PAGE.read_text("utf-8").partition("<!-- figures:")
    assert "overhead" in names()
    for name in names():
        assert f"`{name}`" in meaning
        assert f"| `{name}` " in table or name in COMPARED_WITH


def test_part_of_the_figures_is_no_table_for_the_docs() -> None:
    done = benchmarks("overhead", "--write-docs")
    assert done.returncode == 1
    assert "leave the names out" in done.stderr


@pytest.mark.slow
def test_all_benchmarks_run_and_write_their_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text("utf-8"), encoding="utf-8")
    done = benchmarks("--small", "--write-docs", "--page", str(page))
    assert done.returncode == 0, done.stderr
    before, after = (file.read_text("utf-8").partition("<!-- figures:") for file in (PAGE, page))
    assert after[0] == before[0]
    assert "these figures say nothing" in after[2]
    rows = set(re.findall(r"^\| `(\w+)`", after[2], re.MULTILINE))
    assert rows == set(names()) - COMPARED_WITH or rows == set(names())
