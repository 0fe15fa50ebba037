"""Writes errors, warnings and notes to standard error, and lays out tables.

Standard output is for reports alone. All commands hide secrets of the environment, and respect
`NO_COLOR`, `FORCE_COLOR`, `CI`, `TERM=dumb` and streams that are not terminals.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO, TypeVar

import typer

from kindlm.cli.ending import USAGE
from kindlm.dataclass import replace
from kindlm.errors import (
    DOCS,
    Err,
    ErrorCode,
    KindlmError,
    Result,
    SourceLocation,
    broken,
    error_text,
    misuse,
)
from kindlm.wording import shown_path

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from kindlm.config.diagnostics import Diagnostic

_T = TypeVar("_T")

REFERENCE = f"{DOCS}/reference/errors/"
"""The page that explains each code; `kindlm explain CODE` prints its section offline."""

_SOURCE_WIDTH = 160
"""Characters of a source line that are shown."""

_DETAIL_WIDTH = 2_000

_STATUS_COLORS = {"passed": 32, "failed": 31, "errored": 35, "running": 36}
_OTHER_COLOR = 33

_VERBOSE: ContextVar[bool] = ContextVar("verbose", default=False)

_DATABASE: ContextVar[str | None] = ContextVar("database", default=None)

_SUGGESTED = re.compile(
    r"(?<=: )kindlm (?!demo|explain|import-suite|init|login|schema|validate)"
    r"(?:'[^'\n]*'|[^.;,)\n]|[.;,)](?=\S))+"
)
"""A command that takes `--db` in a hint: it follows a colon, up to the end of its clause.

A name in quotes, such as that of a group, may contain what ends a clause.
"""

_redrawn: Console | None = None
"""The console that redraws its last line now. Messages of all threads must go through it.

A message through another console would be written into that line.
"""


def set_verbose(verbose: bool) -> None:
    """Set whether `--verbose` was given."""
    _VERBOSE.set(verbose)


def set_database(named: str | None) -> None:
    """Set the value of `--db`, which suggested commands get too."""
    _DATABASE.set(named)


def typed(hint: str) -> str:
    """Return a hint whose commands have the `--db` of this command, so that they work as typed."""
    if (named := _DATABASE.get()) is None:
        return hint

    def whole(found: re.Match[str]) -> str:
        is_whole = " --db " in found[0] or found[0].endswith(" --help")
        return found[0] if is_whole else f"{found[0]} --db {shlex.quote(shown_path(Path(named)))}"

    return _SUGGESTED.sub(whole, hint)


def is_verbose() -> bool:
    """Return whether errors are shown with their codes, details and tracebacks.

    `--verbose`, `DEBUG=kindlm*` or `KINDLM_LOG=debug` requests that.
    """
    patterns = os.environ.get("DEBUG", "").replace(",", " ").split()
    named = any(fnmatchcase("kindlm", pattern) for pattern in patterns)
    return _VERBOSE.get() or named or os.environ.get("KINDLM_LOG", "").lower() == "debug"


def prepare_streams() -> None:
    """Make both output streams accept any text, in any locale, and write it whole."""
    # Replace closed streams before another file gets their descriptor.
    sys.stdout = sys.stdout or _open_null()
    sys.stderr = sys.stderr or _open_null()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A lone surrogate in an agent's reply must not end a report halfway.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
        # The parent may have made the pipe non-blocking, so that long writes fail.
        with contextlib.suppress(OSError, ValueError):
            os.set_blocking(stream.fileno(), True)


def _open_null() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def finish_errors() -> None:
    """Flush standard error, or drop the rest if its reader is gone.

    Otherwise Python would change the exit code.
    """
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Drop the unwritten output of a stream whose reader is gone."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def wants_color(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether to colour the output to a stream."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return environ["FORCE_COLOR"] not in ("0", "false")
    return environ.get("TERM") != "dumb" and stream.isatty()


def is_interactive(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a person watches a stream, so that lines may be redrawn."""
    in_ci = environ.get("CI", "") not in ("", "0", "false")
    return stream.isatty() and environ.get("TERM") != "dumb" and not in_ci


def can_ask() -> bool:
    """Return whether a person can answer questions."""
    return sys.stdin.isatty() and is_interactive(sys.stderr)


def ask(question: str, default: str, read: Callable[[str], str]) -> str:
    """Ask a question until `read` accepts the answer; it raises `typer.BadParameter` otherwise."""
    answer: str = typer.prompt(
        question, default=default, value_proc=read, err=True, show_default=bool(default)
    )
    return answer


def make_console() -> Console:
    """Return the console on standard error."""
    from rich.console import Console

    class Raising(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would end the process, and the run with it

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


def show_messages_on(console: Console | None) -> Console | None:
    """Show messages above the line that a console redraws, and return the previous console.

    None shows them on standard error again.
    """
    global _redrawn
    before, _redrawn = _redrawn, console
    return before


def fail(problems: Iterable[KindlmError | Diagnostic]) -> NoReturn:
    """Show errors and end the command."""
    found = list(problems)
    show(found)
    raise typer.Exit(_code_of(found))


def _code_of(problems: Iterable[KindlmError | Diagnostic]) -> int:
    """Return the exit code for errors: wrong usage, if the user can fix all of them."""
    errors = (each if isinstance(each, KindlmError) else each.error for each in problems)
    return USAGE if all(error.code is not ErrorCode.UNKNOWN_ERROR for error in errors) else 1


def refuse(
    message: str,
    hint: str,
    *,
    code: ErrorCode = ErrorCode.CONFIG_VALIDATION_ERROR,
    where: SourceLocation | None = None,
) -> NoReturn:
    """End the command with one error, by default a usage error."""
    fail([KindlmError(code, message, hint, where)])


def fail_if(problem: KindlmError | None) -> None:
    """End the command with an error, if there is one."""
    if problem is not None:
        fail([problem])


def or_fail(result: Result[_T]) -> _T:
    """Return the value of a result, or end the command with its error."""
    if isinstance(result, Err):
        fail([result.error])
    return result.value


def show(problems: Iterable[KindlmError | Diagnostic]) -> None:
    """Show errors and warnings, each with its hint and its place.

    The last error of each code links to the docs. Usage errors do not: the help of their command
    explains them.
    """
    from kindlm.recording.secrets import redactor

    out = _redrawn or make_console()
    redact = redactor()
    found = [
        (each, False, None)
        if isinstance(each, KindlmError)
        else (each.error, each.severity == "warning", each.source_line)
        for each in problems
    ]
    last = {error.code: error for error, is_warning, _ in found if not is_warning}
    for error, is_warning, line in found:
        is_usage = error.code is ErrorCode.CONFIG_VALIDATION_ERROR and not error.where
        out.print(
            render_problem(
                error,
                redact,
                is_warning=is_warning,
                source_line=line,
                refer=last.get(error.code) is error and not is_usage,
                verbose=is_verbose(),
            )
        )


def warn(message: str, hint: str | None = None) -> None:
    """Show a warning."""
    from kindlm.recording.secrets import redactor

    shown = render_problem(misuse(message, hint), redactor(), is_warning=True)
    (_redrawn or make_console()).print(shown)


def note(message: str) -> None:
    """Show a line that is neither an error nor a warning."""
    from kindlm.recording.secrets import redactor
    from kindlm.reports.untrusted import visible

    line = visible(redactor()(typed(message)))
    if _redrawn is not None:
        _redrawn.print(line)
    else:  # rich is not loaded for this: that takes longer than many commands
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table for standard output, with a coloured column STATUS."""
    from rich.cells import cell_len

    lines = [header, *rows]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    padded = [
        [cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True)]
        for line in lines
    ]
    if "STATUS" in header and wants_color(sys.stdout):
        at = header.index("STATUS")
        for cells in padded[1:]:
            color = _STATUS_COLORS.get(cells[at].rstrip(), _OTHER_COLOR)
            cells[at] = f"\x1b[{color}m{cells[at]}\x1b[0m"
    return "".join("  ".join(cells).rstrip() + "\n" for cells in padded)


def render_problem(
    error: KindlmError,
    redact: Callable[[str], str] = str,
    *,
    is_warning: bool = False,
    source_line: str | None = None,
    refer: bool = False,
    verbose: bool = False,
) -> Text:
    """Return the lines that show an error or a warning; control characters are escaped.

    A source line with a secret is left out. With `refer`, the last line links to the docs.
    """
    from rich.text import Text

    from kindlm.reports.untrusted import visible

    def safe(text: str) -> str:
        return visible(redact(text))

    sign, style = ("! ", "bold yellow") if is_warning else ("✗ ", "bold red")
    pieces = [(sign + safe(error.message), style)]
    if error.hint:
        pieces.append((f"\n  {safe(typed(error.hint))}", ""))
    if error.where is not None:
        pieces.append((f"\n  {safe(str(error.where))}", "cyan"))
        if source_line is not None and redact(source_line) == source_line:
            pieces += _excerpt(error.where, source_line)
    below = []
    if verbose:
        below.append(f"code: {error.code.name} ({error.code.value})")
        for name, value in error.details.items():
            below.append(f"{name}: {safe(str(value))[:_DETAIL_WIDTH]}")
        below += map(visible, redact(error.trace or "").rstrip().splitlines())
    if refer:
        below.append(f"See: {REFERENCE}#{error.code.name.lower()}")
    return Text.assemble(*pieces, *((f"\n  {line}", "dim") for line in below))


def _excerpt(where: SourceLocation, source_line: str) -> Iterator[tuple[str, str]]:
    """Yield the source line of an error, with a caret at its column."""
    from rich.cells import cell_len

    from kindlm.reports.untrusted import visible

    if where.line is None:
        return
    margin = f"  {where.line} │ "
    yield f"\n{margin}{visible(source_line[:_SOURCE_WIDTH])}", "dim"
    before = source_line[: (where.column or 1) - 1]
    if where.column is None or len(before) >= _SOURCE_WIDTH:
        return
    # A tab stays a tab, so that the caret is in the same column for any width of tabs.
    indent = "".join("\t" if char == "\t" else " " * cell_len(visible(char)) for char in before)
    yield f"\n{' ' * (len(margin) - 2)}│ {indent}", ""
    yield "^", "bold red"


def report_crash(error: Exception) -> int:
    """Report the unexpected error that ended a command; return the exit code."""
    from kindlm.cli.history_errors import history_problem

    problem = history_problem(error)
    is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    if is_full:
        discard(sys.stdout)
    if problem is None and isinstance(error, OSError) and (error.filename or is_full):
        place = f": {str(error.filename)[:_SOURCE_WIDTH]!r}" if error.filename else ""
        hint = "Check the path, its permissions, and the free space on its disk."
        problem = broken(f"{error.strerror}{place}.", hint, crash=error)
        if isinstance(error, FileNotFoundError):
            problem = replace(problem, code=ErrorCode.CONFIG_NOT_FOUND)
        elif isinstance(error, IsADirectoryError):
            problem = replace(problem, code=ErrorCode.CONFIG_NOT_FOUND, hint="Name a file.")
    if problem is None and (package := _unreadable_package()) is not None:
        problem = broken(
            f"Python cannot read the entry points of the package {package}: {error_text(error)}",
            f"Reinstall {package}, or uninstall it.",
            crash=error,
        )
    if problem is None:
        again = "" if is_verbose() else "Run it again with --verbose to see where. "
        problem = broken(
            f"kindlm itself failed: {error_text(error)}",
            f"{again}If another program changed the history, find changed events: kindlm history"
            " verify. Compute its tables again: kindlm history rebuild",
            crash=error,
        )
    show([problem])
    return _code_of([problem])


def _unreadable_package() -> str | None:
    """Return an installed package whose entry points nothing can read, also not pydantic."""
    from importlib.metadata import distributions

    for package in distributions():
        try:
            list(package.entry_points)
        except (TypeError, ValueError):  # of a line without `=`, or bytes that are not UTF-8
            return package.name
    return None


def report_ended(message: str, run: str) -> None:
    """Report that user code ended the process of kindlm, and how to resume its run."""
    from kindlm.cli.server_environ import server_environ

    hint: str | None = (
        "Look for os._exit, sys.exit, signals, and crashes of extension modules in test files and "
        "packs."
    )
    if server_environ().get("KINDLM_LEASE"):
        hint = None  # the coordinator of this worker reports how to resume the group
    elif run:
        hint = (
            "Finished executions are kept. Correct that code, then: "
            f"kindlm test --resume {run} --force-resume"
        )
    show([broken(message, hint)])
