"""Log lines on standard error: `DEBUG=kindlm*`, `KINDLM_LOG=debug|info|…`.

Code that logs passes a constant message and `fields`. Only fields of known names are written, so
that no prompt or reply gets into a log by mistake; an agent with `verbose` logs its bodies. Secrets
are redacted.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from kindlm.cli.console import is_interactive, warn
from kindlm.recording.secrets import secret_values
from kindlm_store import Redactor

_LEVELS = ("debug", "info", "warning", "error")
_ROOT = "kindlm"
_FIELDS = (
    "execution", "test", "target", "purpose", "provider", "model", "agent", "call", "attempt",
    "http_status", "status", "latency_ms", "retry_in_ms", "service", "port", "suites",
    "executions", "body",
)  # fmt: skip
"""The fields that a line may have, in this order."""


@contextmanager
def log_as_asked(environ: Mapping[str, str]) -> Iterator[None]:
    """Write the log lines that the environment requests while the context lasts."""
    named = environ.get("KINDLM_LOG", "").lower()
    level = logging.getLevelNamesMapping().get(named.upper())
    if named and level is None:
        warn(f"KINDLM_LOG={named} is not a level.", f"Levels are: {', '.join(_LEVELS)}")
    # Patterns of `DEBUG` for kindlm: `kindlm*`, `kindlm:engine:*`, `*`.
    words = environ.get("DEBUG", "").replace(",", " ").split()
    patterns = [word for word in words if word == "*" or word.startswith(_ROOT)]
    handler = _Handler(level, patterns, secret_values(environ, ()))
    logger = logging.getLogger(_ROOT)
    before = (logger.level, logger.propagate)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


def name_run(run: str, secrets: set[str]) -> None:
    """Add the id of a run to all further lines, and redact its secrets in them."""
    for handler in logging.getLogger(_ROOT).handlers:
        if isinstance(handler, _Handler):
            handler.run_id = run
            handler.secrets |= secrets
            handler.redact = Redactor(handler.secrets)


class _Handler(logging.Handler):
    """Writes lines to the current `sys.stderr`, which a progress bar may have replaced."""

    def __init__(self, level: int | None, patterns: list[str], secrets: set[str]) -> None:
        super().__init__()
        self.run_id: str | None = None
        self.secrets = secrets
        self.redact = Redactor(secrets)
        self._level = level
        self._patterns = patterns

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the level or a pattern requests a line."""
        if self._level is not None and record.levelno >= self._level:
            return True
        name = record.name.replace(".", ":")
        return any(fnmatchcase(name, pattern) for pattern in self._patterns)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; ignore a stream that cannot be written."""
        try:
            form = _plain if is_interactive(sys.stderr) else json.dumps
            fields: Mapping[str, Any] = getattr(record, "fields", {})
            values = {
                "level": record.levelname.lower(),
                "code": fields.get("code"),
                "message": record.getMessage(),
                "run_id": self.run_id,
                "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
                "logger": record.name,
                **{name: fields[name] for name in _FIELDS if fields.get(name) is not None},
            }
            safe = {
                # Before JSON escapes line breaks, to find secrets of several lines.
                name: self.redact(value) if isinstance(value, str) else value
                for name, value in values.items()
            }
            sys.stderr.write(self.redact(form(safe)) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return


def _plain(values: Mapping[str, Any]) -> str:
    time = values["timestamp"][11:23]
    details = " ".join(
        f"{name}={json.dumps(value)}"
        for name, value in values.items()
        if value is not None and name not in ("level", "message", "timestamp", "logger", "run_id")
    )
    return f"{time} {values['level']:<7} {values['message']}  {details}".rstrip()
