"""The table of all figures and of the machine, for docs/contributing/performance.md."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.figures import Figure

_BEGIN = "<!-- figures: written by python -m benchmarks --write-docs -->"
_END = "<!-- end of the figures -->"
_PACKAGES = ("kindlm", "openai", "anthropic", "pydantic-evals")
_HEADER = ("benchmark", "figure", "median", "range", "runs", "target")


@dataclass(frozen=True, slots=True)
class Report:
    """All figures, the versions, and the load of the machine."""

    figures: Sequence[tuple[str, Figure]]
    versions: Mapping[str, str]
    load_before: float
    load_after: float
    small: bool


def render(report: Report) -> str:
    """Return the figures as a table in Markdown, columns aligned."""
    rows = [_HEADER, *_rows(report.figures)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(map(str.ljust, row, widths)) + " |"
        for row in (rows[0], tuple("-" * width for width in widths), *rows[1:])
    ]
    return "\n".join([*_notes(report), "", *lines]) + "\n"


def insert(page: Path, table: str) -> None:
    """Replace the table in a page.

    Raises:
        ValueError: The page has no markers for the table.
    """
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        message = f"{page} has no place for the figures"
        raise ValueError(message)
    page.write_text(f"{before}{begin}\n\n{table}\n{end}{after}", encoding="utf-8")


def _rows(figures: Iterable[tuple[str, Figure]]) -> Iterable[tuple[str, ...]]:
    for name, figure in figures:
        runs = str(len(figure.values))
        yield (f"`{name}`", figure.name, figure.shown, figure.range, runs, figure.target)


def _notes(report: Report) -> Iterable[str]:
    yield ", ".join(f"{name} {version}" for name, version in report.versions.items()) + "."
    yield (
        f"Load average of the machine: {report.load_before:.1f} before, {report.load_after:.1f}"
        " after; the benchmarks themselves keep two processors busy."
    )
    if report.small:
        yield "**Small sizes, to see that everything works: these figures say nothing.**"


def versions() -> dict[str, str]:
    """Return the versions of what is installed, and the kind of the machine."""
    found = {"Python": platform.python_version(), "SQLite": sqlite3.sqlite_version}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found | {"system": f"{platform.system()} {platform.machine()}", "CPUs": str(_cpus())}


def load() -> float:
    """Return the load average over the last minute, 0 on an idle machine."""
    return os.getloadavg()[0]


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
