"""Reads the files that a configuration refers to: below its folder, of bounded size, each once.

The rows of `varsFrom` are CSV (RFC 4180, with a header line) or JSON Lines. Their columns are
variables of a test. In JSON Lines, a value that is not a string becomes its JSON text, and null
counts as absent. Every error in a row has its line.
"""

from __future__ import annotations

import csv
import hashlib
import inspect
import io
import json
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path as FilePath
from pathlib import PureWindowsPath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kindlm.config.diagnostics import Reporter
from kindlm.config.expect import sections_of
from kindlm.config.interpolation import DEFERRED_PREFIXES, MARK
from kindlm.config.json_schemas import parse_schema, report_inline_schema, warn_of_ignored
from kindlm.dataclass import dataclass
from kindlm.document import MAX_BYTES, Path, Raw, dotted, items, section
from kindlm.errors import DOCS, Err, ErrorCode, KindlmError, Ok, Result, misuse
from kindlm.guard import guard
from kindlm.json_schema import has_no_rule
from kindlm.strict_json import parse_json
from kindlm.suggestions import hint_for
from kindlm.wording import count

if TYPE_CHECKING:
    from kindlm.user_modules import SkippedFile

MAX_ROW_BYTES = 64 * 1024 * 1024


def safe_path(folder: FilePath, relative: str) -> Result[FilePath]:
    """Return the path that a reference leads to, after links; an error if it is outside `folder`.

    Absolute paths are errors, even inside the folder: a suite has to work on every machine.
    """
    windows = PureWindowsPath(relative)
    hint = f"Files must be under the folder of the configuration: {folder}"
    if "\0" in relative or FilePath(relative).is_absolute() or windows.root or windows.drive:
        return _error(f'"{relative}" is not a path relative to the configuration', hint)
    try:
        root = folder.resolve()
        target = (root / relative).resolve()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        return _error(f'"{relative}" cannot be resolved: {reason}', hint)
    if not target.is_relative_to(root):
        return _error(f'"{relative}" points outside the folder of the configuration', hint)
    return Ok(target)


class ReferencedFiles:
    """Reads the files of one configuration, each once."""

    def __init__(self, folder: FilePath) -> None:
        self._folder = folder
        self._digests: dict[str, str] = {}
        self._asked: dict[FilePath, None] = {}
        self._read = cache(partial(self._load, limit=MAX_BYTES))
        self._module = cache(self._imported)
        self.schema = cache(self._schema)
        """Returns a valid JSON Schema by the name of its file."""
        self.rows = cache(self._rows)
        """Returns the rows of a CSV or JSON Lines file, with their errors."""

    @property
    def asked(self) -> tuple[FilePath, ...]:
        """All files below the folder that were asked for, also missing ones."""
        return tuple(self._asked)

    @property
    def digests(self) -> Mapping[str, str]:
        """SHA-256 of every file that was read, by its path as written."""
        return dict(sorted(self._digests.items()))

    def text(self, name: str) -> Result[str]:
        """Return a text file's content."""
        data = self._read(name)
        return data if isinstance(data, Err) else _decode(name, data.value)

    def _schema(self, name: str) -> Result[Any]:
        data = self._read(name)
        return data if isinstance(data, Err) else parse_schema(name, data.value)

    def function(self, written: str) -> Result[Callable[..., Any]]:
        """Return a function of the user by `file.py:name`; imports the file."""
        file, _, name = written.rpartition(":")
        code = ErrorCode.CONFIG_VALIDATION_ERROR
        if not file.endswith(".py") or not name.isidentifier():
            return _error(f'"{written}" names no function', "Write it as file.py:function", code)
        data = self._read(file)
        if isinstance(data, Err):
            return data
        imported = self._module(file)
        if isinstance(imported, Err):
            where, error = imported.error.where, imported.error
            line = "" if where is None or where.line is None else f", line {where.line}"
            return _error(f"{file}{line}: {error.message}", error.hint or "", error.code)
        module = imported.value
        if not isinstance(module, ModuleType):
            return _error(f'"{file}" skips itself: {module.reason}', "Move its functions", code)
        found = vars(module).get(name)
        if not inspect.isfunction(found):
            known = [each for each, value in vars(module).items() if inspect.isfunction(value)]
            hint = hint_for(name, known, "Functions there")
            return _error(f'"{file}" has no function "{name}"', hint, code)
        return Ok(found)

    def _imported(self, file: str) -> Result[ModuleType | SkippedFile]:
        from kindlm.user_modules import import_file  # few suites have functions

        guard.enter()  # code of the user must not end the run
        return import_file(self._folder / file)

    def _rows(self, name: str) -> Result[RowFile]:
        # The bytes are not kept: they may be many.
        data = self._load(name, MAX_ROW_BYTES)
        text = data if isinstance(data, Err) else _decode(name, data.value)
        return text if isinstance(text, Err) else read_rows(name, text.value)

    def _load(self, name: str, limit: int) -> Result[bytes]:
        path = safe_path(self._folder, name)
        if isinstance(path, Ok):
            self._asked[self._folder / name] = None
        data = path if isinstance(path, Err) else _read(name, path.value, limit)
        if isinstance(data, Ok):
            self._digests[name] = hashlib.sha256(data.value).hexdigest()
        return data


def _decode(name: str, data: bytes) -> Result[str]:
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        message = f'"{name}" is not UTF-8: byte {error.start} is not valid'
        return _error(message, "Save the file with the encoding UTF-8")
    if MARK in text:
        return _error(f'"{name}" contains the noncharacter U+FDD0', "Remove it")
    return Ok(text)


def _read(name: str, path: FilePath, limit: int) -> Result[bytes]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return _error(f'"{name}" is not a file', f"kindlm looked for it at {path}")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return _error(f'The file "{name}" does not exist', f"kindlm looked for it at {path}")
    except OSError as error:
        return _error(f'"{name}" cannot be read: {error.strerror or error}', f"Check it: {path}")
    if len(data) > limit:
        message = f'"{name}" is larger than {limit // 1024**2} MiB'
        return _error(message, "Use a smaller file", ErrorCode.CONFIG_VALIDATION_ERROR)
    return Ok(data)


def _error(message: str, hint: str, code: ErrorCode = ErrorCode.CONFIG_FILE_REF_ERROR) -> Err:
    return Err(KindlmError(code, message, hint))


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


FILE_KEYS = ("systemFile", "system_prompt_file", "userFile")
"""Keys of a prompt whose values are files."""


def check_files(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report missing files, files outside the folder, and files that are no valid JSON Schema."""
    for name, prompt in section(raw, "prompts").items():
        for key in FILE_KEYS:
            file = prompt.get(key) if isinstance(prompt, dict) else None
            if isinstance(file, str) and file:
                where: Path = ("prompts", name, key)
                found = files.text(file)
                report_file(where, file, found, reporter)
                if key == "userFile" and isinstance(found, Ok) and not found.value.strip():
                    message = f'"{file}" holds no message'
                    reporter.error(where, message, "Write what the user says", reason="file")
    for path, test in items(raw, "tests"):
        for place, part, written in sections_of(test, path):
            for at, kind, value in part.references(written):
                where = (*place, *at)
                if isinstance(value, dict):
                    report_inline_schema(where, value, dotted(where), reporter)
                elif isinstance(value, str) and value and kind == "schema":
                    report_schema(where, value, files, reporter)
                elif isinstance(value, str) and value:
                    report_file(where, value, files.function(value), reporter)


def report_file(path: Path, file: str, result: Result[Any], reporter: Reporter) -> None:
    """Report the error of a file, if it has one."""
    if isinstance(result, Err):
        error = result.error
        reporter.error(path, error.message, error.hint, reason="file", code=error.code, value=file)


def report_schema(path: Path, file: str, files: ReferencedFiles, reporter: Reporter) -> Result[Any]:
    """Report an invalid JSON Schema, or one with misspelt keywords or none; return it."""
    schema = files.schema(file)
    report_file(path, file, schema, reporter)
    if isinstance(schema, Ok):
        warn_of_ignored(path, schema.value, f'"{file}"', reporter)
        if isinstance(schema.value, dict) and has_no_rule(schema.value):
            message = f'"{file}" has no keyword of JSON Schema: any JSON matches it'
            reporter.warning(path, message, "Add one, such as `type`", reason="never_fails")
    return schema


def check_template(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report a template of the compliance report that is missing, invalid or unused."""
    compliance, place = section(raw, "compliance"), ("compliance", "template")
    file = compliance.get("template")
    if not isinstance(file, str) or not file:
        return
    if compliance.get("framework") != "custom":
        message = "Only the framework `custom` uses a template"
        reporter.warning(place, message, reason="unused_template")
        return
    text = files.text(file)
    report_file(place, file, text, reporter)
    if isinstance(text, Err):
        return
    from jinja2 import Environment, TemplateSyntaxError  # few suites have a template

    try:
        Environment(autoescape=True).parse(text.value)
    except TemplateSyntaxError as error:
        problem = f"{file}, line {error.lineno}: {error.message}"
    except RecursionError:
        problem = f"{file}: it nests too deeply"
    else:
        return
    hint = f"What a template may hold: {DOCS}/how-to/compliance/"
    reporter.error(place, problem, hint, reason="template")
