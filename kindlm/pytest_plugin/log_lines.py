"""kindlm's own log lines under pytest: pytest captures them only for those who ask."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import pytest

_LEVELS = ("log_level", "log_cli_level", "log_file_level")
"""The options and settings of pytest that ask for log lines of a level."""


def hide_log_lines(config: pytest.Config, environ: Mapping[str, str]) -> Callable[[], None]:
    """Let kindlm log nothing unless somebody asks for it, and return what undoes that.

    `KINDLM_LOG` asks for lines of its level. A level of pytest asks for those that it lets through,
    and so does a level of the logger `kindlm`, such as one that a test sets.
    """
    logger = logging.getLogger("kindlm")
    before = logger.level
    level = logging.getLevelNamesMapping().get(environ.get("KINDLM_LOG", "").upper())
    if level is not None:
        logger.setLevel(level)
    elif before == logging.NOTSET and not _has_level(config):
        logger.setLevel(logging.CRITICAL + 1)
    return lambda: logger.setLevel(before)


def _has_level(config: pytest.Config) -> bool:
    """Return whether an option or a setting names a level for pytest's log lines."""
    if not config.pluginmanager.hasplugin("logging"):
        return False
    return any(config.getoption(name) or config.getini(name) for name in _LEVELS)
