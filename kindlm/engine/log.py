"""Log lines of the engine: constant messages with fields, never a text that somebody wrote.

Who wants to see the lines attaches a handler to the logger `kindlm`; without one nothing is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

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
    """The log of one module: `debug` for a step on the way, `info` for the end of something.

    `warning` is for a failure that something may still come of, `error` for one for good, with the
    `code` of the error.
    """

    def __init__(self, module: str) -> None:
        self._logger = logging.getLogger(module)
        self.debug = partial(self._log, logging.DEBUG)
        self.info = partial(self._log, logging.INFO)
        self.warning = partial(self._log, logging.WARNING)
        self.error = partial(self._log, logging.ERROR)

    def _log(self, level: int, message: str, **fields: Field) -> None:
        if self._logger.isEnabledFor(level):
            known = _EXECUTION.get() or {}
            self._logger.log(level, message, extra={"fields": known | fields})
