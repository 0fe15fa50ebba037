"""Errors and warnings about a configuration, with their places in the file."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, Literal

from pydantic_core import PydanticCustomError

from kindlm.dataclass import dataclass
from kindlm.document import Document, Path, Position, dotted
from kindlm.errors import ErrorCode, KindlmError, SourceLocation, misuse
from kindlm.secrecy import hide_in_urls, is_secret_option
from kindlm.spelling import KINDLM_YAML, Spelling

Severity = Literal["error", "warning"]

MAX_SHOWN = 200
"""Characters of a source line that are shown; a line can be as long as the file."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem of a configuration file; with an error, kindlm does not run its suite.

    The `details` of its `error` hold a stable `reason`. `path` is the key, such as
    `tests[2].expect.output.schemaFile`, and "" for the whole file. `source_line` is the offending
    line, unless it may hold a secret.
    """

    error: KindlmError
    severity: Severity = "error"
    path: str = ""
    source_line: str | None = None


class Reporter:
    """Collects the diagnostics of one file, in the order in which they are found.

    `spelling` is how the file spells keys. `meant` are keys that unknown ones probably mean.
    """

    def __init__(self, file: str, document: Document, spelling: Spelling = KINDLM_YAML) -> None:
        self._file = file
        self.spelling = spelling
        self._document = document
        self._credentials: tuple[str, ...] = ()
        self.meant: set[Path] = set()
        self._lent: tuple[str, Collection[str]] = ("", ())
        self.diagnostics: list[Diagnostic] = []
        self._sorted = 0

    def hide(self, credentials: Iterable[str]) -> None:
        """Replace these credentials in all messages and lines from now on."""
        # The longest first, since one may be part of another.
        self._credentials = tuple(sorted(credentials, key=len, reverse=True))

    def borrow(self, file: str, keys: Collection[str]) -> None:
        """Report problems below these keys as problems of another file, without a line."""
        self._lent = file, keys

    def error(
        self,
        path: Path,
        message: str,
        hint: str | None = None,
        *,
        reason: str = "schema",
        code: ErrorCode = ErrorCode.CONFIG_VALIDATION_ERROR,
        at_key: bool = False,
        secret: bool = False,
        trace: str | None = None,
        severity: Severity = "error",
        position: Position | None = None,
        **details: Any,
    ) -> None:
        """Report an error at a value, or at its key; `secret` hides the line.

        `position` is that of an error in the text. `reason` and `details` are for programs.
        """
        file, lent = self._lent
        if path and path[0] in lent:
            where, line = SourceLocation(file), None
        else:
            position = position or self._document.position(path, key=at_key)
            where = SourceLocation(self._file, position.line, position.column)
            line = self._document.line(position.line)
        if secret or any(is_secret_option(str(part)) for part in path[-1:]):
            line = None
        if hint is not None:
            hint = self._hidden(hint.replace(KINDLM_YAML.variable, self.spelling.variable))
        about = {"reason": reason, **details}
        error = KindlmError(code, self._hidden(message), hint, where, about, trace)
        shown = None if line is None else self._hidden(line)[:MAX_SHOWN]
        self.diagnostics.append(Diagnostic(error, severity, self.place(path), shown))

    def error_in_file(
        self,
        path: Path,
        file: str,
        line: int,
        message: str,
        hint: str,
        *,
        reason: str,
        source: str | None = None,
    ) -> None:
        """Report an error on a line of another file, to which the value at a path refers."""
        where = SourceLocation(os.path.normpath(PurePath(self._file).parent / file), line, 1)
        error = misuse(message, hint, where, reason)
        shown = None if source is None else source[:MAX_SHOWN]
        self.diagnostics.append(Diagnostic(error, "error", self.place(path), shown))

    @contextmanager
    def refused(self, path: Path, reason: str) -> Iterator[None]:
        """Report the error of a function that refuses the value at a path."""
        try:
            yield
        except PydanticCustomError as error:
            context = error.context or {}
            message = f"{self.place(path)} {context.get('message', error.message())}"
            is_secret = context.get("secret", False)
            self.error(path, message, context.get("hint"), reason=reason, secret=is_secret)

    def missing_key(self, path: Path, instead: str = "") -> None:
        """Report a missing key, unless an unknown key was reported as a slip of it.

        `instead` ends the hint with an alternative.
        """
        if path not in self.meant:
            place, key = self.place(path[:-1]), str(path[-1])
            message = f'The key "{key}" is missing' + (f" in {place}" if place else "")
            self.error(path, message, f"Add `{self.spelling.line(key)}`{instead}")

    def variable_not_set(self, path: Path, name: str) -> None:
        """Report that a value needs an environment variable that is not set."""
        message = f"The environment variable {name} is not set"
        hint, reason = f"Set {name} in your environment or .env file", "missing_environment"
        self.error(path, message, hint, reason=reason)

    def warning(
        self, path: Path, message: str, hint: str | None = None, *, reason: str, **details: Any
    ) -> None:
        """Report a warning at a key."""
        about = {"reason": reason, **details}
        self.error(path, message, hint, at_key=True, severity="warning", **about)

    def problems(self) -> None:
        """Report the syntax errors and exceeded limits of the text."""
        for problem in self._document.problems:
            reason, code = "limit", ErrorCode.CONFIG_VALIDATION_ERROR
            if not problem.limit:
                reason, code = "syntax", ErrorCode.CONFIG_PARSE_ERROR
            message, hint, position = problem.message, problem.hint, problem.position
            self.error(problem.path, message, hint, reason=reason, code=code, position=position)
        self._sorted = len(self.diagnostics)

    def place(self, path: Path) -> str:
        """Return a path as the file has it, for messages: `tests[2].expect.output`."""
        node = self._document.root
        written: Path = ()
        for part in path:
            node = None if node is None else node.children.get(part)
            written = (*written, part) if node is None or node.written is None else node.written
        return dotted(written)

    def where(self, path: Path) -> SourceLocation:
        """Return the line and column of a key or list item."""
        position = self._document.position(path, key=True)
        return SourceLocation(self._file, position.line, position.column)

    def sort_phase(self) -> None:
        """Sort the diagnostics since the last phase by line; those of other files follow."""
        self.diagnostics[self._sorted :] = sorted(self.diagnostics[self._sorted :], key=self._place)
        self._sorted = len(self.diagnostics)

    @property
    def has_errors(self) -> bool:
        """Whether an error was reported."""
        return any(item.severity == "error" for item in self.diagnostics)

    def _hidden(self, text: str) -> str:
        for credential in self._credentials:
            text = text.replace(credential, "…")
        return hide_in_urls(text)

    def _place(self, diagnostic: Diagnostic) -> tuple[bool, str, int, int]:
        if (where := diagnostic.error.where) is None:
            return False, "", 0, 0
        return where.file != self._file, where.file, where.line or 0, where.column or 0
