"""Errors as values: a function that can fail returns `Ok(value)` or `Err(error)`.

Exceptions are for bugs. Codes and numbers are those of the KindLM error specification.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import IntEnum
from typing import Any, Generic, TypeAlias, TypeVar

from kindlm.dataclass import dataclass

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

DOCS = "https://kindlm.com/docs"
"""The site of the docs, for hints."""


class ErrorCode(IntEnum):
    """The kinds of errors, in groups: 1xx config, 2xx provider, 3xx assertion, 4xx engine, etc."""

    CONFIG_NOT_FOUND = 100
    CONFIG_PARSE_ERROR = 101
    CONFIG_VALIDATION_ERROR = 102
    CONFIG_FILE_REF_ERROR = 103
    PROVIDER_NOT_FOUND = 200
    PROVIDER_AUTH_ERROR = 201
    PROVIDER_RATE_LIMIT = 202
    PROVIDER_TIMEOUT = 203
    PROVIDER_API_ERROR = 204
    PROVIDER_NETWORK_ERROR = 205
    ASSERTION_EVAL_ERROR = 300
    SCHEMA_FILE_ERROR = 301
    JUDGE_EVAL_ERROR = 302
    ENGINE_MAX_TURNS = 400
    ENGINE_EMPTY_RESPONSE = 401
    BASELINE_NOT_FOUND = 500
    BASELINE_CORRUPT = 501
    BASELINE_VERSION_MISMATCH = 502
    CLOUD_AUTH_ERROR = 600
    CLOUD_UPLOAD_ERROR = 601
    CLOUD_PLAN_LIMIT = 602
    CLOUD_RATE_LIMIT = 603
    HISTORY_VERSION_MISMATCH = 700
    UNKNOWN_ERROR = 999

    @classmethod
    def named(cls, name: str) -> ErrorCode:
        """Return the code with a recorded name, which may be from another version."""
        return cls.__members__.get(name, cls.UNKNOWN_ERROR)


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A place in the user's file; lines and columns count from 1."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        """Return `file:line:column`, which terminals and editors turn into a link."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part)


@dataclass(frozen=True, slots=True)
class KindlmError:
    """An error for the user.

    Attributes:
        code: The kind of the error, for reports.
        message: What happened, in one line without secrets.
        hint: What the user can do.
        where: The place in the user's file.
        details: Context for programs, such as `status` or `retry_after` (seconds).
        trace: The traceback of a crash, shown with `--verbose`.
    """

    code: ErrorCode
    message: str
    hint: str | None = None
    where: SourceLocation | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    trace: str | None = None


class Raised(Exception):  # noqa: N818 - it is not an error itself
    """Carries an `error` to a caller that returns it."""

    def __init__(self, error: KindlmError) -> None:
        super().__init__(error.message)
        self.error = error


def not_there(message: str, hint: str | None, where: SourceLocation | None = None) -> KindlmError:
    """Return the error that something the user named does not exist."""
    return KindlmError(ErrorCode.CONFIG_NOT_FOUND, message, hint, where)


def misuse(
    message: str, hint: str | None, where: SourceLocation | None = None, reason: str | None = None
) -> KindlmError:
    """Return the error of invalid input by the user; `reason` is for programs."""
    details = {} if reason is None else {"reason": reason}
    return KindlmError(ErrorCode.CONFIG_VALIDATION_ERROR, message, hint, where, details)


def broken(
    message: str,
    hint: str | None = None,
    where: SourceLocation | None = None,
    crash: BaseException | None = None,
) -> KindlmError:
    """Return the error that something failed, such as a disk, or code that raised `crash`."""
    trace = None if crash is None else "".join(traceback.format_exception(crash))
    return KindlmError(ErrorCode.UNKNOWN_ERROR, message, hint, where, trace=trace)


def unanswered(
    message: str,
    hint: str | None = None,
    *,
    code: ErrorCode = ErrorCode.PROVIDER_API_ERROR,
    trace: str | None = None,
    **details: Any,
) -> KindlmError:
    """Return the error of a call without an answer; for the details see `ports.ModelClient`."""
    known = {"status": None, "retry_after": None, "retryable": False, "body": None}
    return KindlmError(code, message, hint, details=known | details, trace=trace)


def error_text(error: BaseException, quote: Callable[[str], str] = str) -> str:
    """Return the class of an error and its message, `ValueError: no`, as a traceback shows them.

    `quote` makes the message fit to be shown.
    """
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - users' code
        message = "<exception str() failed>"
    return f"{type(error).__name__}: {quote(message)}" if message else type(error).__name__


@dataclass(frozen=True, slots=True)
class Ok(Generic[T_co]):
    """The result of a successful call."""

    value: T_co


@dataclass(frozen=True, slots=True)
class Err:
    """The result of a failed call."""

    error: KindlmError


Result: TypeAlias = Ok[T_co] | Err


def checked(found: Result[T]) -> T:
    """Return the value of a call that cannot fail here, since its error was handled before."""
    assert isinstance(found, Ok), found
    return found.value
