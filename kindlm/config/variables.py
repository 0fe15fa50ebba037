"""The variables of a test: its own, and those of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kindlm.config.diagnostics import Reporter
from kindlm.config.file_references import report_file
from kindlm.config.files import ReferencedFiles
from kindlm.config.interpolation import DEFERRED_PREFIXES, is_deferred
from kindlm.config.places import Path
from kindlm.config.raw import Raw, items, section
from kindlm.config.rows import MAX_ROWS, Row, RowFile, RowProblem
from kindlm.errors import Err, Ok

MAX_SHOWN_ROWS = 10
"""Rows without a variable that are told one by one."""

MAX_SHOWN_NAMES = 20
"""Variables without a value that are told one by one."""


def row_name(test: str, row_id: str) -> str:
    """Return the name of the test that a row becomes."""
    return f"{test} [{row_id}]"


def check_rows(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report what is wrong with files of rows, and names that come out equal."""
    names = {str(test.get("name")) for _, test in items(raw, "tests")}
    total = 0
    for path, test, name in _files(raw):
        found = files.rows(name)
        report_file((*path, "varsFrom"), name, found, reporter)
        if isinstance(found, Err):
            continue
        for problem in found.value.problems:
            reporter.error_in_rows((*path, "varsFrom"), name, problem)
        rows = found.value.rows
        if total <= MAX_ROWS < total + len(rows):
            reporter.error(
                (*path, "varsFrom"),
                f"The tests of this file have more than {MAX_ROWS:,} rows together",
                "Split the suite",
                reason="limit",
            )
        total += len(rows)
        for row in rows:
            full = row_name(str(test.get("name")), row.id)
            if full in names:
                reporter.error(
                    (*path, "name"),
                    f'The row "{row.id}" makes a second test of the name "{full}"',
                    "Rename one of the two tests",
                    reason="duplicate_test",
                    value=full,
                )


def check_variables(
    path: Path, test: Raw, needed: list[str], reporter: Reporter, files: ReferencedFiles
) -> None:
    """Report what a test needs and neither its variables nor its rows have."""
    variables = section(test, "vars")
    for name in variables:
        if name.startswith(DEFERRED_PREFIXES):
            reporter.error(
                (*path, "vars", name),
                f'A variable cannot be called "{name}": the environment and ports have such names',
                "Give it another name",
                reason="reserved_name",
                at_key=True,
            )
    asked = [name for name in needed if name not in variables and not is_deferred(name)]
    file = test.get("varsFrom")
    found = files.rows(file) if asked and isinstance(file, str) and file else Ok(RowFile((), ()))
    if isinstance(found, Err) or (found.value.problems and not found.value.rows):
        # The file has been reported: what columns it would have is not known.
        return
    rows = found.value.rows
    nowhere = [name for name in asked if not any(name in row.values for row in rows)]
    if nowhere:
        _report_missing(path, test, nowhere, reporter)
    _report_gaps(path, test, [name for name in asked if name not in nowhere], rows, reporter)


def _report_missing(path: Path, test: Raw, missing: list[str], reporter: Reporter) -> None:
    prompt = test.get("prompt")
    is_of_prompt = prompt is not None and not test.keys() & {"conversation", "command"}
    reporter.error(
        (*path, "vars"),
        f'The test "{test.get("name")}" has no value for {_placeholders(missing)}'
        + (f' of the prompt "{prompt}"' if is_of_prompt else ""),
        "Add to its `vars:` "
        + _first(f"`{name}:`" for name in missing)
        + (", or to its rows as columns" if "varsFrom" in test else ""),
        reason="missing_variables",
        at_key=True,
        missing=missing,
    )


def _report_gaps(
    path: Path, test: Raw, asked: list[str], rows: Sequence[Row], reporter: Reporter
) -> None:
    """Report rows that lack a variable which other rows have."""
    gaps = [(row, absent) for row in rows if (absent := [n for n in asked if n not in row.values])]
    for row, absent in gaps[:MAX_SHOWN_ROWS]:
        problem = RowProblem(
            row.line,
            f'The row "{row.id}" of the test "{test.get("name")}" has no value for '
            + _placeholders(absent)
            + (f"; {len(gaps):,} rows have gaps" if len(gaps) > MAX_SHOWN_ROWS else ""),
            "Add it to the row, or to the `vars` of the test for all rows",
        )
        file = str(test.get("varsFrom"))
        reporter.error_in_rows((*path, "varsFrom"), file, problem, reason="missing_variables")


def _placeholders(names: list[str]) -> str:
    return _first(f"{{{{{name}}}}}" for name in names)


def _first(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - MAX_SHOWN_NAMES
    return ", ".join(every[:MAX_SHOWN_NAMES]) + (f", and {more:,} more" if more > 0 else "")


def _files(raw: Raw) -> Iterator[tuple[Path, Raw, str]]:
    for path, test in items(raw, "tests"):
        name = test.get("varsFrom")
        if isinstance(name, str) and name:
            yield path, test, name
