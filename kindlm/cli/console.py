"""What a user sees beside the reports: errors, warnings and notes, all on standard error.

Reports are the only thing on standard output. No secret of the environment is shown. `NO_COLOR`,
`FORCE_COLOR`, `CI`, `TERM=dumb` and streams that are no terminal are respected here, once for all
commands.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TextIO

import typer

from kindlm.errors import KindlmError

if TYPE_CHECKING:
    from rich.console import Console

    from kindlm.config import Diagnostic


_VERBOSE: ContextVar[bool] = ContextVar("verbose", default=False)


def set_verbose(verbose: bool) -> None:
    """Say whether errors are shown with their codes, details and traces."""
    _VERBOSE.set(verbose)


def is_verbose(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether errors are shown with their codes, details and traces.

    `--verbose` asks for it, and so do `DEBUG=kindlm*` and `KINDLM_LOG=debug`.
    """
    patterns = environ.get("DEBUG", "").replace(",", " ").split()
    named = any(fnmatchcase("kindlm", pattern) for pattern in patterns)
    return _VERBOSE.get() or named or environ.get("KINDLM_LOG", "").lower() == "debug"


def prepare_streams() -> None:
    """Make both streams take any text, whatever the locale, and never in parts."""
    # Streams that were closed at the start: opened on nothing, before a file takes their number.
    sys.stdout = sys.stdout or _nothing()
    sys.stderr = sys.stderr or _nothing()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A lone surrogate in an agent's reply must not end a report halfway.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        # A parent may have made its end of a pipe non-blocking, and so ours.
        with contextlib.suppress(OSError, ValueError):
            os.set_blocking(stream.fileno(), True)


def _nothing() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def discard_output() -> None:
    """Let what is still to be written to standard output vanish: nobody reads it any more."""
    _discard(sys.stdout)


def finish_errors() -> None:
    """Write out what is left for standard error, or let it vanish if nobody reads it any more.

    Python would end with an exit code of its own otherwise.
    """
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


def wants_color(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether what is written to a stream is to be coloured."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return environ["FORCE_COLOR"] not in ("0", "false")
    return environ.get("TERM") != "dumb" and stream.isatty()


def is_interactive(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether somebody watches a stream, so that lines may be drawn over."""
    in_ci = environ.get("CI", "") not in ("", "0", "false")
    return stream.isatty() and environ.get("TERM") != "dumb" and not in_ci


def make_console() -> Console:
    """Return the console on standard error."""
    from rich.console import Console

    class Raising(Console):
        """Rich would end the process, and a run with it, when nobody reads what is shown."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    color = wants_color(sys.stderr)
    return Raising(
        file=sys.stderr,
        force_terminal=is_interactive(sys.stderr),
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )


def fail(problems: Iterable[KindlmError | Diagnostic], console: Console | None = None) -> NoReturn:
    """Show errors and end the command with exit code 1."""
    show(problems, console)
    raise typer.Exit(1)


def show(problems: Iterable[KindlmError | Diagnostic], console: Console | None = None) -> None:
    """Show errors and warnings: what happened, how to fix it, where it is, where to read more.

    Of several errors with the same code, the last one says where to read more.
    """
    from kindlm.cli.problems import render_problem
    from kindlm.recording.secrets import redactor

    out = console or make_console()
    redact = redactor(os.environ)
    found = [_redacted(_parts(problem), redact) for problem in problems]
    last = {part.error.code: part for part in found if not part.warning}
    for part in found:
        refer = last.get(part.error.code) is part
        shown = render_problem(
            part.error,
            warning=part.warning,
            source_line=part.source_line,
            refer=refer,
            verbose=is_verbose(),
        )
        out.print(shown)


def warn(message: str, hint: str | None = None, console: Console | None = None) -> None:
    """Show a warning."""
    from kindlm.cli.problems import render_warning
    from kindlm.recording.secrets import redactor

    redact = redactor(os.environ)
    shown = render_warning(redact(message), redact(hint) if hint else None)
    (console or make_console()).print(shown)


def note(message: str, console: Console | None = None) -> None:
    """Show a line that is neither an error nor a warning."""
    from kindlm.recording.secrets import redactor
    from kindlm.reports.untrusted import visible

    (console or make_console()).print(visible(redactor(os.environ)(message)))


class _Parts(NamedTuple):
    """What is shown of a problem."""

    error: KindlmError
    warning: bool
    source_line: str | None


def _parts(problem: KindlmError | Diagnostic) -> _Parts:
    if isinstance(problem, KindlmError):
        return _Parts(problem, False, None)
    return _Parts(problem.error, problem.severity == "warning", problem.source_line)


def _redacted(parts: _Parts, redact: Callable[[str], str]) -> _Parts:
    """Return what is shown, without secrets; a line of a file that holds one is not quoted."""
    error = parts.error
    line = parts.source_line
    where = error.where
    clean = replace(
        error,
        message=redact(error.message),
        hint=redact(error.hint) if error.hint else error.hint,
        where=replace(where, file=redact(where.file)) if where else None,
        details={name: redact(str(value)) for name, value in error.details.items()},
        trace=redact(error.trace) if error.trace else error.trace,
    )
    return _Parts(clean, parts.warning, line if line is None or redact(line) == line else None)
