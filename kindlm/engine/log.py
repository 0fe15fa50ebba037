"""Log lines of the engine: constant messages with fields, never a text that somebody wrote.

Who wants to see the lines attaches a handler to the logger `kindlm`; without one nothing is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["FieldLog", "about_execution"]

Field = str | int | float | None

_EXECUTION: ContextVar[dict[str, Field] | None] = ContextVar("execution", default=None)

logging.getLogger("kindlm").addHandler(logging.NullHandler())


@contextmanager
def about_execution(execution: str, test: str, target: str) -> Iterator[None]:
    """Let all lines that are logged while the context lasts name the execution."""
    token = _EXECUTION.set({"execution": execution, "test": test, "target": target})
    try:
        yield
    finally:
        _EXECUTION.reset(token)


class FieldLog:
    """The log of one module."""

    def __init__(self, module: str) -> None:
        self._logger = logging.getLogger(module)

    def debug(self, message: str, **fields: Field) -> None:
        """Log a step on the way."""
        self._log(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Field) -> None:
        """Log that something ended as it may."""
        self._log(logging.INFO, message, fields)

    def warning(self, message: str, **fields: Field) -> None:
        """Log a failure that something may still come of."""
        self._log(logging.WARNING, message, fields)

    def error(self, message: str, **fields: Field) -> None:
        """Log a failure for good; `code` is that of the error."""
        self._log(logging.ERROR, message, fields)

    def _log(self, level: int, message: str, fields: dict[str, Field]) -> None:
        if self._logger.isEnabledFor(level):
            known = _EXECUTION.get() or {}
            self._logger.log(level, message, extra={"fields": known | fields})
