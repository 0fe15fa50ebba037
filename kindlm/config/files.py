"""Reads the files that a configuration refers to: below its folder, of bounded size, each once."""

from __future__ import annotations

import hashlib
import inspect
import stat
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path as FilePath
from pathlib import PureWindowsPath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kindlm.config.diagnostics import Reporter
from kindlm.config.interpolation import MARK
from kindlm.config.json_schemas import parse_schema, warn_of_ignored
from kindlm.config.rows import RowFile, read_rows
from kindlm.document import MAX_BYTES, Path
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.guard import guard
from kindlm.json_schema import has_no_rule
from kindlm.suggestions import hint_for

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


FILE_KEYS = ("systemFile", "system_prompt_file", "userFile")
"""Keys of a prompt whose values are files."""


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
