"""Reads the rows of `varsFrom`: CSV or JSON Lines. The columns of a row are variables of a test.

Every error has its line. CSV follows RFC 4180, with a header line. In JSON Lines, a value that is
not a string becomes its JSON text, and null counts as absent.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kindlm.config.interpolation import DEFERRED_PREFIXES
from kindlm.dataclass import dataclass, replace
from kindlm.strict_json import parse_json
from kindlm.wording import count

MAX_ROWS = 100_000
ID = "id"
"""The column that gives rows their names."""

_MAX_PROBLEMS = 20
_NAME = re.compile(r"[\w.]+")
_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_NO_CHARACTER = re.compile("[\ud800-\udfff\ufdd0]")


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its line in the file, its name, and its variables."""

    line: int
    id: str
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RowProblem:
    """An error in a file of rows; `source_line` is the text at `line`.

    A `fatal` one ends the reading, `limit` marks an exceeded limit.
    """

    message: str
    hint: str
    line: int = 1
    source_line: str | None = None
    limit: bool = False
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class RowFile:
    """The rows of a file, as far as they can be read; usable if there are no problems."""

    rows: tuple[Row, ...]
    problems: tuple[RowProblem, ...]


_Read = tuple[int, Mapping[str, str] | RowProblem]
"""The line of a row, and its values or an error."""


def read_rows(name: str, text: str) -> RowFile:
    """Read the rows of a file; the suffix of its name says the format."""
    suffix = name.rpartition(".")[2].lower()
    reader = {"csv": _csv_rows, "jsonl": _json_rows, "ndjson": _json_rows}.get(suffix)
    if reader is None:
        problem = RowProblem(f'"{name}" is neither CSV nor JSON Lines', "Name it .csv or .jsonl")
        return RowFile((), (problem,))
    rows: list[Row] = []
    problems: list[RowProblem] = []
    first_line: dict[str, int] = {}
    for line, found in reader(text):
        if len(rows) == MAX_ROWS:
            message = f"The file holds more than {MAX_ROWS:,} rows"
            problems.append(RowProblem(message, "Split the suite", line, limit=True))
            break
        row = found if isinstance(found, RowProblem) else _row(line, len(rows) + 1, found)
        if isinstance(row, Row) and row.id in first_line:
            message = f'The row "{row.id}" occurs twice: first on line {first_line[row.id]}'
            row = RowProblem(message, f"Add to each row an {ID}")
        if isinstance(row, RowProblem):
            lines = text.split("\n", line)
            source = lines[line - 1].rstrip("\r") if line <= len(lines) else None
            problems.append(replace(row, line=line, source_line=source))
            if row.fatal or len(problems) == _MAX_PROBLEMS:
                break
            continue
        first_line[row.id] = line
        rows.append(row)
    if not rows and not problems:
        problems.append(RowProblem("The file holds no rows", "Add one, or remove `varsFrom`"))
    return RowFile(tuple(rows), tuple(problems))


def _row(line: int, number: int, values: Mapping[str, str]) -> Row | RowProblem:
    for name, value in values.items():
        if _NO_CHARACTER.search(value):
            return RowProblem(f'"{name}" contains an invalid character', "Remove it")
    row_id = values.get(ID, str(number))
    if not row_id.strip():
        hint = f"Give it one, or remove the column {ID}"
        return RowProblem(f"The {ID} of the row is empty", hint)
    return Row(line, row_id, values)


def _csv_rows(text: str) -> Iterator[_Read]:
    # The size of the file is bounded already.
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: list[str] = []
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as fault:
            hint = "Quote values that contain quotes or line breaks, and double the inner quotes"
            yield line, RowProblem(f"This is not CSV: {fault}", hint, fatal=True)
            return
        if cells is None:
            return
        if not cells or (len(columns) > 1 and len(cells) == 1 and not cells[0].strip()):
            continue  # an empty line, or one of spaces
        if not columns:
            columns = [name.strip() for name in cells]
            if (wrong := _header_error(columns)) is not None:
                yield line, wrong
                return
            continue
        if len(cells) == len(columns):
            yield line, dict(zip(columns, cells, strict=True))
            continue
        values, names = count(len(cells), "value"), count(len(columns), "name")
        hint = "Quote values that contain commas"
        if len(cells) < len(columns):
            hint = "Write every comma, also between empty values"
        yield line, RowProblem(f"The row has {values}, the header has {names}", hint)


def _header_error(columns: list[str]) -> RowProblem | None:
    only = columns[0] if len(columns) == 1 else ""
    for separator, called in _OTHER_SEPARATORS.items():
        if separator in only:
            message = f"The columns are separated by {called}"
            return RowProblem(message, "Save the file with commas between them", fatal=True)
    twice = _first_repeated(columns)
    wrong = next(filter(None, map(_name_error, columns)), None)
    if wrong is not None or twice is None:
        return wrong
    return RowProblem(f'The column "{twice}" occurs twice', "Rename one of them", fatal=True)


def _name_error(name: str) -> RowProblem | None:
    if not _NAME.fullmatch(name):
        hint = "Names have letters, digits, _ and dots; the first line names the columns"
        return RowProblem(f'"{name}" cannot be the name of a variable', hint, fatal=True)
    if name.startswith(DEFERRED_PREFIXES):
        message = f'A variable cannot be called "{name}": that prefix is reserved'
        return RowProblem(message, "Give it another name", fatal=True)
    return None


def _json_rows(text: str) -> Iterator[_Read]:
    # Not splitlines(): strings may hold other line separators of Unicode.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, _json_row(line)


def _json_row(line: str) -> Mapping[str, str] | RowProblem:
    hint = 'Each line is one object, such as {"id": "a", "message": "Hi"}'
    try:
        value = parse_json(line, _pairs)
    except ValueError as error:
        return RowProblem(f"The row is not JSON: {error}", hint)
    if not isinstance(value, dict):
        return RowProblem("The row is not an object", hint)
    if (wrong := next(filter(None, map(_name_error, value)), None)) is not None:
        return wrong
    return {
        name: item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
        for name, item in value.items()
        if item is not None
    }


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = _first_repeated([name for name, _ in pairs])
        raise ValueError(f'the key "{twice}" occurs twice')
    return values


def _first_repeated(names: Sequence[str]) -> str | None:
    counts = Counter(names)
    return next((name for name in names if counts[name] > 1), None)
