"""Where in a test file something was asked for, and what went wrong there."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import TypeAlias

from kindlm.errors import SourceLocation

Place: TypeAlias = Callable[[], SourceLocation]
"""Tells where the test is that asks for something."""


def asked_at(file: Path) -> SourceLocation:
    """Return the line of `file` that is being run, of the innermost function that is from there."""
    # `inspect.stack` would read all the files.
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        if frame.f_code.co_filename == str(file):
            return SourceLocation(str(file), frame.f_lineno)
        frame = frame.f_back
    return SourceLocation(str(file))


def failed_at(error: BaseException, file: Path) -> tuple[SourceLocation, str]:
    """Return the last line of `file` that an error came through, and its text."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    if not frames:
        return SourceLocation(str(file)), ""
    return SourceLocation(str(file), frames[-1].lineno), frames[-1].line or ""


def shown_at(where: SourceLocation) -> str:
    """Return a place as `file:line`, seen from the working directory."""
    file, here = Path(where.file), Path.cwd()
    return str(SourceLocation(str(file.relative_to(here) if file.is_relative_to(here) else file),
                              where.line))  # fmt: skip


def user_trace(error: BaseException, file: Path) -> str:
    """Return the traceback of an error from the first line of `file` on; whole if none is there."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(file):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
    return "".join(lines)
