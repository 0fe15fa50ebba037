"""The command line as a whole: which commands there are, and how every one of them ends.

Modules of commands import nothing heavy: what a command needs, it imports when it runs, so that
`kindlm --help` answers at once.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Annotated, Any, cast

import typer

from kindlm.cli import console
from kindlm.cli.crash import report_crash
from kindlm.cli.inert_output import inert_output
from kindlm.cli.other_names import in_our_names
from kindlm.errors import ErrorCode, KindlmError
from kindlm.guard import guard

_COMMANDS = (
    "demo",
    "init",
    "validate",
    "gen",
    "test",
    "watch",
    "runs",
    "show",
    "diff",
    "settle",
    "report",
    "rescore",
    "replay",
    "label",
    "review",
    "browse",
    "tail",
    "export",
    "import",
    "merge",
    "backup",
    "verify",
    "rebuild",
    "purge",
    "schema",
    "baseline",
)
"""In the order of the help; each is in the module of its name."""

_MODULES = {"watch": "test", "import": "import_"}
"""Of commands whose module has another name."""

_HELP = {"watch": "Run tests like `kindlm test`, and again whenever a file changes that matters."}
"""Of commands that are not described by their function."""

_USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__base__)
"""What typer raises for wrong usage; not all of its versions export it by name."""


def _print_version(asked: bool) -> None:
    if asked:
        from kindlm import __version__

        typer.echo(f"kindlm {__version__}")
        raise typer.Exit


def _main(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    del version
    if context.invoked_subcommand is None:
        # A script that lost its command must not take the help for a success.
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(1)


def make_app(commands: Iterable[str] = _COMMANDS) -> typer.Typer:
    """Return the command line with these commands; only their modules are imported."""
    app = typer.Typer(
        help="Behavioural regression testing for AI agents, and the recorder of all they did.",
        epilog="Start with: kindlm init",
        invoke_without_command=True,
        add_completion=False,
        # Plain help: half the start-up time, and the same on a terminal and in a pipe.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_main)
    for name in commands:
        base = _MODULES.get(name, name)
        module = import_module(f"kindlm.cli.commands.{base}")
        if name == "baseline":
            app.add_typer(module.baseline_app, name=name)
        else:
            command = getattr(module, f"{base.rstrip('_')}_command")
            app.command(name, help=_HELP.get(name))(command)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run a command line; return 0 if it did what was asked and all is well, else 1."""
    console.prepare_streams()
    console.set_verbose("--verbose" in arguments)
    with inert_output():
        return _ended(arguments)


def _ended(arguments: Sequence[str]) -> int:
    try:
        with _logging():
            code = _invoke(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has seen enough.
        console.discard_output()
        return 1
    except KeyboardInterrupt:
        return 1
    except OSError as error:
        if error.errno == errno.ENOSPC:
            console.discard_output()
            console.show([_disk_full(error)])
        else:
            guard.crashed(error)
            report_crash(error, os.environ)
        return 1
    except Exception as error:  # noqa: BLE001 - the last boundary: what arrives here is a bug
        guard.crashed(error)
        report_crash(error, os.environ)
        return 1
    finally:
        console.finish_errors()
    return 0 if code == 0 else 1


def _logging() -> AbstractContextManager[None]:
    if not (os.environ.get("DEBUG") or os.environ.get("KINDLM_LOG")):
        return nullcontext()
    from kindlm.cli.logs import log_as_asked

    return log_as_asked(os.environ)


def _invoke(arguments: Sequence[str]) -> int:
    for argument in arguments:
        # Bytes that are no UTF-8 arrive as halves of surrogate pairs, which nothing can store.
        if any("\ud800" <= char <= "\udfff" for char in argument):
            console.show([_not_utf8(argument)])
            return 1
    named = in_our_names(arguments)
    # Help, and what to say of a command that there is not, need all of them.
    app = make_app(named[:1] if named and named[0] in _COMMANDS else _COMMANDS)
    command = typer.main.get_command(app)
    try:
        code = command.main(args=named, prog_name="kindlm", standalone_mode=False)
    except SystemExit as stop:
        code = stop.code
    except typer.Abort:
        code = 1
    except _USAGE_ERROR as error:
        code = 1
        console.show([_usage_error(error)])
    return code if isinstance(code, int) else int(code is not None)


def _usage_error(error: Any) -> KindlmError:
    command = error.ctx.command_path if error.ctx else "kindlm"
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        error.format_message(),
        f"How it is used: {command} --help",
    )


def _not_utf8(argument: str) -> KindlmError:
    written = os.fsencode(argument).decode("utf-8", "backslashreplace")
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        f"The argument '{written}' is no UTF-8.",
        "Write it in UTF-8, and rename a file whose name is not.",
    )


def _disk_full(error: OSError) -> KindlmError:
    place = f" to {error.filename}" if error.filename else ""
    return KindlmError(
        ErrorCode.UNKNOWN_ERROR,
        f"There is no space left on the disk to write{place}.",
        "Make room and run it again.",
    )
