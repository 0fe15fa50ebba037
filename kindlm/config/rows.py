"""Reads the rows of `varsFrom`: CSV (RFC 4180, with a header line) or JSON Lines.

Their columns are variables of a test. In JSON Lines, a value that is not a string becomes its JSON
text, and null counts as absent. Every error in a row has its line.
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
from kindlm.dataclass import dataclass
from kindlm.errors import Err, Ok, Result, misuse
from kindlm.strict_json import parse_json
from kindlm.wording import count

MAX_ROWS = 100_000
ID = "id"
"""The column that gives rows their names."""

_NAME = re.compile(r"[\w.]+")
_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_NO_CHARACTER = re.compile("[\ud800-\udfff\ufdd0]")


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its line in the file, its name, and its variables."""

    line: int
    id: str
    values: Mapping[str, str]


class RowError(Exception):
    """An error in a row or the header, with a hint; `source` is the text of its line."""

    def __init__(self, line: int, message: str, hint: str) -> None:
        super().__init__(message)
        self.line, self.hint, self.source = line, hint, ""


@dataclass(frozen=True, slots=True)
class RowFile:
    """The rows of a file, as far as they can be read; usable if there are no errors."""

    rows: tuple[Row, ...]
    errors: tuple[RowError, ...] = ()


def read_rows(name: str, text: str) -> Result[RowFile]:
    """Read the rows of a file; the suffix of its name says the format."""
    suffix = name.rpartition(".")[2].lower()
    reader = {"csv": _csv_rows, "jsonl": _json_rows, "ndjson": _json_rows}.get(suffix)
    if reader is None:
        return Err(misuse(f'"{name}" is neither CSV nor JSON Lines', "Name it .csv or .jsonl"))
    rows: dict[str, Row] = {}
    errors: list[RowError] = []
    try:
        for line, values in reader(text, errors):
            if len(rows) == MAX_ROWS:
                message = f"The file holds more than {MAX_ROWS:,} rows"
                errors.append(RowError(line, message, "Split the suite"))
                break
            row_id = values.get(ID, str(len(rows) + 1))
            if not row_id.strip():
                hint = f"Give it one, or remove the column {ID}"
                errors.append(RowError(line, f"The {ID} of the row is empty", hint))
            elif row_id in rows:
                message = f'The row "{row_id}" occurs twice: first on line {rows[row_id].line}'
                errors.append(RowError(line, message, f"Give each row an {ID} of its own"))
            else:
                rows[row_id] = Row(line, row_id, values)
    except RowError as error:  # nothing can be read after it
        errors.append(error)
    if not rows and not errors:
        errors.append(RowError(1, "The file holds no rows", "Add one, or remove `varsFrom`"))
    lines = text.split("\n") if errors else []
    for wrong in errors:
        wrong.source = "".join(lines[wrong.line - 1 : wrong.line]).rstrip("\r")
    return Ok(RowFile(tuple(rows.values()), tuple(errors)))


def _csv_rows(text: str, errors: list[RowError]) -> Iterator[tuple[int, dict[str, str]]]:
    # The size of the file is bounded already.
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: list[str] = []
    line = 1
    try:
        for cells in reader:
            # An empty line, or one of spaces, is no row.
            if not columns and cells:
                columns = [name.strip() for name in cells]
                _check_header(columns)
            elif len(cells) == len(columns):
                yield line, dict(zip(columns, cells, strict=True))
            elif "".join(cells).strip():
                values, names = count(len(cells), "value"), count(len(columns), "name")
                hint = "Quote values that contain commas, and write every comma"
                message = f"The row has {values}, the header has {names}"
                errors.append(RowError(line, message, hint))
            line = reader.line_num + 1
    except csv.Error as fault:
        hint = "Quote values that contain quotes or line breaks, and double the inner quotes"
        raise RowError(line, f"This is not CSV: {fault}", hint) from None


def _check_header(columns: Sequence[str]) -> None:
    for separator, called in _OTHER_SEPARATORS.items():
        if len(columns) == 1 and separator in columns[0]:
            message = f"The columns are separated by {called}"
            raise RowError(1, message, "Save the file with commas between them")
    for name in columns:
        _check_name(name, 1)
    if (twice := _first_repeated(columns)) is not None:
        raise RowError(1, f'The column "{twice}" occurs twice', "Rename one of them")


def _check_name(name: str, line: int) -> None:
    if not _NAME.fullmatch(name):
        hint = "Names have letters, digits, _ and dots; the first line names the columns"
        raise RowError(line, f'"{name}" cannot be the name of a variable', hint)
    if name.startswith(DEFERRED_PREFIXES):
        message = f'A variable cannot be called "{name}": that prefix is reserved'
        raise RowError(line, message, "Give it another name")


def _json_rows(text: str, errors: list[RowError]) -> Iterator[tuple[int, dict[str, str]]]:
    # Not splitlines(): strings may hold other line separators of Unicode.
    for line, written in enumerate(text.split("\n"), start=1):
        if written.strip():
            try:
                yield line, _json_row(line, written)
            except RowError as error:
                errors.append(error)


def _json_row(line: int, written: str) -> dict[str, str]:
    hint = 'Each line is one object, such as {"id": "a", "message": "Hi"}'
    try:
        row = parse_json(written, _pairs)
    except ValueError as error:
        raise RowError(line, f"The row is not JSON: {error}", hint) from None
    if not isinstance(row, dict):
        raise RowError(line, "The row is not an object", hint)
    values: dict[str, str] = {}
    for name, item in row.items():
        _check_name(name, line)
        if item is not None:
            value = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
            if _NO_CHARACTER.search(value):
                raise RowError(line, f'"{name}" contains an invalid character', "Remove it")
            values[name] = value
    return values


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if (twice := _first_repeated([name for name, _ in pairs])) is not None:
        raise ValueError(f'the key "{twice}" occurs twice')
    return dict(pairs)


def _first_repeated(names: Sequence[str]) -> str | None:
    counts = Counter(names)
    return next((name for name in names if counts[name] > 1), None)


def part_name(test: str, part: str) -> str:
    """Return the name of the case for a row of a test, or for one of several prompts."""
    return f"{test} [{part}]"
