"""Log lines on standard error: `DEBUG=kindlm*`, `KINDLM_LOG=debug|info|…`.

A line says what happened, to which execution, and how long it took. Only for an agent that is
`verbose` does it say what was said. Code that logs passes a constant message and `fields`, and only
fields of known names are written, so that no prompt, reply or body gets into a log by mistake.
Secrets are redacted as well.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from kindlm.cli.console import is_interactive, warn
from kindlm.recording.secrets import secret_values

_LEVELS = ("debug", "info", "warn", "error")
_ROOT = "kindlm"
_FIELDS = (
    "execution", "test", "target", "purpose", "provider", "model", "agent", "call", "attempt",
    "http_status", "status", "latency_ms", "retry_in_ms", "service", "port", "suites",
    "executions", "body",
)  # fmt: skip
"""What a line may say besides its message, in this order."""


@contextmanager
def log_as_asked(environ: Mapping[str, str]) -> Iterator[None]:
    """Write log lines while the context lasts, as far as the environment asks for them."""
    named = environ.get("KINDLM_LOG", "").lower()
    level = logging.getLevelNamesMapping().get(named.upper())
    if named and level is None:
        warn(f"KINDLM_LOG={named} is not a level.", f"Levels are: {', '.join(_LEVELS)}")
    handler = _Handler(level, _patterns(environ), secret_values(environ, ()))
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
    """Let all lines from now on carry the id of a run, and hold none of its secrets."""
    for handler in logging.getLogger(_ROOT).handlers:
        if isinstance(handler, _Handler):
            handler.run_id = run
            handler.hide(secrets)


class _Handler(logging.Handler):
    """Writes lines to whatever standard error is at the time: a progress bar may guard it."""

    def __init__(self, level: int | None, patterns: list[str], secrets: set[str]) -> None:
        super().__init__()
        self.run_id: str | None = None
        self._level = level
        self._patterns = patterns
        self._secrets: set[str] = set()
        self._redact: Callable[[str], str] = str
        self.hide(secrets)

    def hide(self, secrets: set[str]) -> None:
        """Take these values out of every line, too."""
        from kindlm_store import Redactor

        self._secrets |= secrets
        self._redact = Redactor(self._secrets)

    def filter(self, record: logging.LogRecord) -> bool:
        """Let through what the level or a pattern asks for."""
        if self._level is not None and record.levelno >= self._level:
            return True
        name = record.name.replace(".", ":")
        return any(fnmatchcase(name, pattern) for pattern in self._patterns)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; a stream that takes none is no reason to fail."""
        try:
            form = _plain if is_interactive(sys.stderr) else json.dumps
            fields: Mapping[str, Any] = getattr(record, "fields", {})
            known = {name: fields[name] for name in _FIELDS if fields.get(name) is not None}
            values = {
                "level": record.levelname.lower(),
                "code": fields.get("code"),
                "message": record.getMessage(),
                "run_id": self.run_id,
                "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
                "logger": record.name,
                **known,
            }
            safe = {
                # Before it is escaped: a secret over several lines is found in them.
                name: self._redact(value) if isinstance(value, str) else value
                for name, value in values.items()
            }
            sys.stderr.write(self._redact(form(safe)) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return


def _patterns(environ: Mapping[str, str]) -> list[str]:
    """Return the patterns of `DEBUG` that are about kindlm: `kindlm*`, `kindlm:engine:*`, `*`."""
    named = environ.get("DEBUG", "").replace(",", " ").split()
    return [pattern for pattern in named if pattern == "*" or pattern.startswith(_ROOT)]


def _plain(values: Mapping[str, Any]) -> str:
    time = values["timestamp"][11:23]
    told = {
        name: value
        for name, value in values.items()
        if value is not None and name not in ("level", "message", "timestamp", "logger", "run_id")
    }
    details = " ".join(f"{name}={json.dumps(value)}" for name, value in told.items())
    return f"{time} {values['level']:<7} {values['message']}  {details}".rstrip()
