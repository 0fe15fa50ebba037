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

from benchmarks.figures import FULL, SMALL, Benchmark, Figure, Sizes
from benchmarks.machine import load, versions
from benchmarks.registry import BENCHMARKS
from benchmarks.table import Report, insert, render

_PAGE = Path(__file__).parents[1] / "docs" / "contributing" / "performance.md"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen benchmarks; print progress on standard error, and the table."""
    options = _parser().parse_args(arguments)
    if options.write_docs and options.names:
        sys.exit("--write-docs writes the whole table: leave the names out")
    chosen = [b for b in BENCHMARKS if not options.names or b.name in options.names]
    before = load()
    figures = _measured(chosen, SMALL if options.small else FULL)
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
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(names)}")
    parser.add_argument("--small", action="store_true", help="small sizes, few runs")
    parser.add_argument("--write-docs", action="store_true", help="put the table into the docs")
    parser.add_argument("--page", type=Path, default=_PAGE, help=argparse.SUPPRESS)
    return parser


def _measured(chosen: Iterable[Benchmark], sizes: Sizes) -> list[tuple[str, Figure]]:
    figures = []
    for benchmark in chosen:
        for figure in benchmark.measure(sizes):
            print(f"{benchmark.name}: {figure.name}: {figure.shown}", file=sys.stderr, flush=True)
            figures.append((benchmark.name, figure))
    return figures


if __name__ == "__main__":
    main()
