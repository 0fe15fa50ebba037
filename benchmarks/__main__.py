"""Measures kindlm and prints a table.

python -m benchmarks                      all of them: about half an hour
python -m benchmarks overhead storage     only these
python -m benchmarks --small              all of them with small sizes: do they still work?
python -m benchmarks --write-docs         all of them, and the table of the docs' performance.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.comparison import comparison
from benchmarks.diff import diff
from benchmarks.figures import FULL, SMALL, Figure, Sizes
from benchmarks.fleet import fleet
from benchmarks.gateway import gateway
from benchmarks.history import history
from benchmarks.recorder import recorder
from benchmarks.scenarios import scenarios
from benchmarks.server import server
from benchmarks.startup import startup
from benchmarks.store import store
from benchmarks.suites import efficiency, overhead, scale, storage
from benchmarks.table import Report, insert, load, render, versions

_PAGE = Path(__file__).parents[1] / "docs" / "contributing" / "performance.md"

BENCHMARKS = {
    measure.__name__: measure
    for measure in (
        overhead, efficiency, scale, scenarios, startup, storage, recorder, store, history, diff,
        server, gateway, fleet, comparison,
    )
}  # fmt: skip
"""In the order of the table; docs/contributing/performance.md explains them."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen benchmarks; print progress on standard error, and the table."""
    options = _parser().parse_args(arguments)
    if options.write_docs and options.names:
        sys.exit("--write-docs writes the whole table: leave the names out")
    before = load()
    figures = _measured(options.names or BENCHMARKS, SMALL if options.small else FULL)
    report = Report(figures, versions(), before, load(), options.small)
    table = render(report)
    print(table)
    if options.write_docs:
        insert(options.page, table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = f"one of: {', '.join(BENCHMARKS)}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=names)
    parser.add_argument("--small", action="store_true", help="small sizes, few runs")
    parser.add_argument("--write-docs", action="store_true", help="put the table into the docs")
    parser.add_argument("--page", type=Path, default=_PAGE, help=argparse.SUPPRESS)
    return parser


def _measured(names: Iterable[str], sizes: Sizes) -> list[tuple[str, Figure]]:
    figures = []
    for name in names:
        for figure in BENCHMARKS[name](sizes):
            print(f"{name}: {figure.name}: {figure.shown}", file=sys.stderr, flush=True)
            figures.append((name, figure))
    return figures


if __name__ == "__main__":
    main()
