"""The command line as a whole: which commands there are, and how each of them ends.

Only the module of the command that is given is imported. `kindlm --help` imports none.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from typing import Annotated, Any, cast

import typer

from kindlm.cli.console import (
    discard_output,
    finish_errors,
    prepare_streams,
    report_crash,
    set_verbose,
    show,
)
from kindlm.cli.ending import ending_at_once
from kindlm.cli.github import inert_output
from kindlm.errors import ErrorCode, KindlmError, misuse
from kindlm.garbage import put_off
from kindlm.guard import guard

_COMMANDS = {
    "demo": "Test an agent, change it, test it again, and see what changed.",
    "init": "Write a first suite: one that runs at once, without key or network, or one for your"
    " agent.",
    "validate": "Check suites without running them: nothing is called.",
    "gen": "Write tests for an agent: a model plans them, files are made of templates.",
    "test": "Run tests, record everything, judge the gates.",
    "watch": "Run tests like `kindlm test`, and again whenever a file changes that matters.",
    "runs": "List the recorded runs, newest first, or show how a test did over time.",
    "show": "Show a run or a group of shards, or an execution with its transcript.",
    "diff": "Compare two runs: which tests got worse, and what changed in behaviour.",
    "settle": "Repeat the suspected tests of AFTER, a few at a time, until each is confirmed or"
    " cleared.",
    "report": "Write a report of a recorded run, or of the shards of one.",
    "rescore": "Check recorded conversations by the suite as it is now: the tested model is not"
    " called.",
    "replay": "Run tests with the answers of a recorded run: no key, no network, no cost.",
    "label": "Give a run a name.",
    "review": "Say whether an execution passes, or report whether judges say what people say.",
    "browse": "Open the history in the web browser, until Ctrl-C.",
    "tail": "Follow a run while it goes on, from another terminal; ends when it ends, with its"
    " verdict.",
    "export": "Write a run, its texts and what is noted of it as JSON Lines, for kindlm import.",
    "import": "Bring in a run: exported, not written, or of another program.",
    "merge": "Merge other histories into this one, in any order.",
    "backup": "Copy the history to a new file, and check the copy.",
    "verify": "Check recorded events and texts against their hashes.",
    "rebuild": "Compute all tables anew from the recorded events.",
    "purge": "Erase recorded texts for good.",
    "schema": "Print the JSON Schema of kindlm.yaml.",
    "baseline": "Choose the recorded run that later ones are compared with.",
}
"""Each command with what `kindlm --help` says of it, in that order.

Each is in the module of its name, and the help of its function begins with the same sentence.
"""

_MODULES = {"watch": "test", "import": "import_"}
"""Of commands whose module has another name."""

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


def make_app(commands: Iterable[str] = _COMMANDS, *, loaded: bool = True) -> typer.Typer:
    """Return the command line with these commands; only their modules are imported.

    Without `loaded`, no module is imported, and the commands cannot be run: it is for their list.
    """
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
        if not loaded:
            app.command(name, help=_COMMANDS[name])(lambda: None)
            continue
        base = _MODULES.get(name, name)
        module = import_module(f"kindlm.cli.commands.{base}")
        if name == "baseline":
            app.add_typer(module.baseline_app, name=name)
        else:
            command = getattr(module, f"{base.rstrip('_')}_command")
            # `watch` is a name of another command.
            app.command(name, help=_COMMANDS[name] if name == "watch" else None)(command)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run a command line; return 0 if it did what was asked and all is well, else 1."""
    prepare_streams()
    set_verbose("--verbose" in arguments)
    with inert_output():
        return _ended(arguments)


def _ended(arguments: Sequence[str]) -> int:
    try:
        with _logging():
            code = _invoke(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has seen enough.
        discard_output()
        return 1
    except KeyboardInterrupt:
        return 1
    except OSError as error:
        if error.errno == errno.ENOSPC:
            discard_output()
            show([_disk_full(error)])
        else:
            guard.crashed(error)
            report_crash(error, os.environ)
        return 1
    except Exception as error:  # noqa: BLE001 - the last boundary: what arrives here is a bug
        guard.crashed(error)
        report_crash(error, os.environ)
        return 1
    finally:
        finish_errors()
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
            show([_not_utf8(argument)])
            return 1
    named = in_our_names(arguments)
    name = next((argument for argument in named if argument != "--"), None)
    # Help, and what to say of a command that there is not, need the names of all of them. An option
    # before the name of a command is one of those, or a mistake.
    command = _make_command(name if name in _COMMANDS else None)
    try:
        code = command.main(args=named, prog_name="kindlm", standalone_mode=False)
    except SystemExit as stop:
        code = stop.code
    except typer.Abort:
        code = 1
    except _USAGE_ERROR as error:
        code = 1
        show([_usage_error(error)])
    return code if isinstance(code, int) else int(code is not None)


@cache
def _make_command(name: str | None) -> Any:
    """Return the command line with one command loaded, or with the names of all of them."""
    if name is None:
        return typer.main.get_command(make_app(loaded=False))
    with ending_at_once(), put_off():
        app = make_app([name])
    return typer.main.get_command(app)


def _usage_error(error: Any) -> KindlmError:
    command = error.ctx.command_path if error.ctx else "kindlm"
    return misuse(error.format_message(), f"How it is used: {command} --help")


def _not_utf8(argument: str) -> KindlmError:
    written = os.fsencode(argument).decode("utf-8", "backslashreplace")
    return misuse(
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


_OTHER_COMMANDS: Mapping[str, str] = {"run": "test"}

_ALIKE: Mapping[str, str] = {"watch": "test"}
"""Commands of ours that take the options of another one."""

_OTHER_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "test": {
        "--tag": "--tags",
        "--repeat": "--runs",
        "--parallel": "--concurrency",
        "--format": "--reporter",
        "--version": "--label",
        "--filter-failing": "--failed",
    },
}

_ALWAYS_DONE: Mapping[str, frozenset[str]] = {"test": frozenset({"--save"})}
"""Options for what kindlm does anyway: every run is recorded."""


_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "test": {"--resume": "latest"},
    "rescore": {"--resume": "latest"},
    "init": {"--agent": "ask"},
}
"""What an option means that stands alone: typer has none with a value that may be left out."""


def in_our_names(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the names of other tools put into ours, and defaults put in."""
    if not arguments:
        return []
    command = _OTHER_COMMANDS.get(arguments[0], arguments[0])
    like = _ALIKE.get(command, command)
    names, surplus = _OTHER_OPTIONS.get(like, {}), _ALWAYS_DONE.get(like, frozenset())
    defaults = _DEFAULTS.get(like, {})
    renamed = [command]
    for position, argument in enumerate(arguments[1:], start=1):
        if argument == "--":
            return [*renamed, *arguments[position:]]
        if argument in defaults and not _has_value(arguments, position):
            renamed.append(f"{argument}={defaults[argument]}")
            continue
        name, sign, value = argument.partition("=")
        if argument not in surplus:
            renamed.append(names.get(name, name) + sign + value)
    return renamed


def _has_value(arguments: Sequence[str], position: int) -> bool:
    return position + 1 < len(arguments) and not arguments[position + 1].startswith("-")
