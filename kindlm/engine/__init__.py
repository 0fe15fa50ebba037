"""Runs a plan: conversations, retries and checks, each recorded as it happens.

`FieldLog` writes its log lines: constant messages with fields, never text from people or models. A
handler of the logger `kindlm` shows them. `debug` is for a step, `info` for the end of something,
`warning` for a failure that a retry may fix, `error` for a final failure. The last two name the
`code` of the error.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

_EXECUTION: ContextVar[dict[str, str] | None] = ContextVar("execution", default=None)

logging.getLogger("kindlm").addHandler(logging.NullHandler())


def name_execution(execution: str, test: str, target: str) -> None:
    """Add the number of an execution to all further log lines of this task and its subtasks."""
    _EXECUTION.set({"execution": execution, "test": test, "target": target})


class FieldLog(logging.LoggerAdapter[logging.Logger]):
    """The log of one module; keyword arguments are the fields of a line."""

    def __init__(self, module: str) -> None:
        super().__init__(logging.getLogger(module))

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Put the fields into the place where handlers look for them."""
        return msg, {"extra": {"fields": (_EXECUTION.get() or {}) | dict(kwargs)}}
