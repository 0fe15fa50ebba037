"""Errors as values: the codes that users see, and the result of a function that can fail.

A function that can fail for a reason that concerns the user returns `Ok(value)` or `Err(error)`.
Exceptions are for bugs. Codes and numbers are those of the KindLM error specification.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import Any, Generic, TypeAlias, TypeVar

from kindlm.dataclass import dataclass

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

DOCS = "https://kindlm.com/docs"
"""The site of the docs, which hints lead to."""


class ErrorCode(IntEnum):
    """What went wrong. The hundreds group: 1 config, 2 provider, 3 assertion, 4 engine, ..."""

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
        """Return the code of a name in the record, which another version may have written."""
        return cls.__members__.get(name, cls.UNKNOWN_ERROR)


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A place in a file the user wrote; lines and columns count from 1."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        """Return `file:line:column`, the form that terminals and editors turn into a link."""
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part)


@dataclass(frozen=True, slots=True)
class KindlmError:
    """One error as a user meets it.

    Attributes:
        code: what went wrong; stable, part of reports.
        message: the first line: what happened, in the user's words. Never holds a secret.
        hint: the second line: what to do about it.
        where: the place in the user's file, if the error has one.
        details: machine-readable context, such as `status` or `retry_after` (seconds).
        trace: the traceback of a crash, shown with `--verbose` only.
    """

    code: ErrorCode
    message: str
    hint: str | None = None
    where: SourceLocation | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    trace: str | None = None


class Raised(Exception):  # noqa: N818 - it is not an error itself
    """Carries an `error` to where it can be returned."""

    def __init__(self, error: KindlmError) -> None:
        super().__init__(error.message)
        self.error = error


def not_there(message: str, hint: str | None, where: SourceLocation | None = None) -> KindlmError:
    """Return the error that what a user named is not there."""
    return KindlmError(ErrorCode.CONFIG_NOT_FOUND, message, hint, where)


def misuse(
    message: str,
    hint: str | None,
    where: SourceLocation | None = None,
    reason: str | None = None,
) -> KindlmError:
    """Return the error that a user asked for something impossible; `reason` is for machines."""
    details = {} if reason is None else {"reason": reason}
    return KindlmError(ErrorCode.CONFIG_VALIDATION_ERROR, message, hint, where, details)


def broken(
    message: str,
    hint: str | None = None,
    where: SourceLocation | None = None,
    crash: BaseException | None = None,
) -> KindlmError:
    """Return the error that something did not work, such as a disk, or code that raised `crash`."""
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
    """Return the error of a call that got no answer; see `ports.ModelClient` for the details."""
    known = {"status": None, "retry_after": None, "retryable": False, "body": None}
    return KindlmError(code, message, hint, details=known | details, trace=trace)


@dataclass(frozen=True, slots=True)
class Ok(Generic[T_co]):
    """The outcome of a call that worked."""

    value: T_co


@dataclass(frozen=True, slots=True)
class Err:
    """The outcome of a call that failed in a way the user can meet."""

    error: KindlmError


Result: TypeAlias = Ok[T_co] | Err


def checked(found: Result[T]) -> T:
    """Return the value of a call that cannot fail here: an error of it ended the command before."""
    assert isinstance(found, Ok), found
    return found.value
