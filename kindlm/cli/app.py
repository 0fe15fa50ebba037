"""The command line: finds the given command, runs it, and returns its exit code.

It imports only the module of that command. `kindlm --help` imports none.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kindlm import __version__
from kindlm.cli.console import (
    discard,
    finish_errors,
    prepare_streams,
    report_crash,
    set_database,
    set_verbose,
    show,
    warn,
)
from kindlm.cli.ending import INTERRUPTED, NOTHING_RUN, USAGE, loading
from kindlm.cli.github import inert_output
from kindlm.errors import misuse
from kindlm.guard import guard

_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Start": {
        "demo": "Watch kindlm find a change in a bundled agent.",
        "init": "Create a first suite, or a test of your own agent.",
        "import-suite": "Convert a suite of promptfoo or OpenAI Evals to YAML.",
        "validate": "Check test files without running them.",
        "list": "List what `kindlm test` would run.",
        "test": "Run tests and record every event.",
        "watch": "Run tests again whenever a relevant file changes.",
    },
    "Compare": {
        "diff": "Compare two runs: regressions, fixes and changed behaviour.",
        "baseline": "Choose the run that later runs are compared with.",
        "settle": "Repeat suspected regressions until confirmed or cleared.",
        "rescore": "Check recorded conversations against the current suite.",
        "replay": "Run tests with recorded model answers: no key, no cost.",
    },
    "History": {
        "runs": "List recorded runs, or show one test over time.",
        "show": "Show a run, or one execution with its transcript.",
        "report": "Write a report of a recorded run.",
        "browse": "Open the history in a web browser.",
        "tail": "Follow a run or a group of shards from another terminal.",
        "label": "Name a run.",
        "review": "Record a human verdict, or report judge–human agreement.",
        "history": "Back up, move, check or erase the history.",
    },
    "Team": {
        "login": "Save the token of a history server.",
        "push": "Push recorded runs to a history server.",
        "pull": "Pull runs from a history server.",
        "serve-history": "Serve a history to a team.",
        "token": "Create, list or revoke tokens of a history server.",
    },
    "Advanced": {
        "explain": "Explain an error code, or list all codes.",
        "gen": "Generate tests from a plan, a recording or attacks.",
        "schema": "Print the JSON Schema of kindlm.yaml.",
    },
}
"""The groups of `kindlm --help`, with their commands and the help text of each.

The docstring of a command's function begins with the same sentence.
"""

_HISTORY: Mapping[str, str] = {
    "backup": "Copy the history to a new file, and check the copy.",
    "export": "Write a run to a file, or send it as an OpenTelemetry trace.",
    "import": "Import a kindlm export, or results of another tool.",
    "merge": "Merge other histories into this one, in any order.",
    "verify": "Check recorded events and content against their hashes.",
    "rebuild": "Recompute all tables from the recorded events.",
    "purge": "Erase recorded content permanently.",
}
"""The commands of `kindlm history`. They also work without that word, but no help lists that."""

_HELP = {name: text for group in _COMMANDS.values() for name, text in group.items()}

COMMANDS = (*_HELP, *(f"history {name}" for name in _HISTORY))
"""All commands as they are typed."""

_USAGE_ERROR: Any = typer.BadParameter.__base__
"""The error that typer raises for wrong usage. Not all of its versions export it by name."""


_VERBOSE = re.compile(r"--verbose\Z|-[hqxy]*v")
"""`-v`, also behind other options without a value: `-xv`. Wrong usage leaves no parsed options."""

_SHORT = re.compile(r"-[a-zA-Z]")
"""A short option. Typer would take the `=` of `-o=FILE` as part of the value."""

_INPUT = re.compile(r"Invalid value for (.+): Input (should be .+?)(?:, unable to parse .*)?\Z")


def _main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"kindlm {__version__}")
        raise typer.Exit
    _need_command(context)


def _need_command(context: typer.Context) -> None:
    """Print the help and exit with 1 if a command group is called without a command."""
    if context.invoked_subcommand is None:
        # A script that lost its command must not look successful.
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(1)


class _Group(TyperGroup):
    """A command group that imports the module of a command when it is called.

    Its help lists the commands by section, and needs no module.
    """

    prefix = ""
    sections: Mapping[str, Mapping[str, str]]

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        """Return a command, None if there is none of that name."""
        return load_command(self.prefix + cmd_name) if cmd_name in self.commands else None

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """Write the sections; their columns line up."""
        width = max(map(len, self.commands))
        for title, texts in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in texts.items()])


_RETURNED = object()
"""The result of a command that returned. A command that ends in another way has another result."""


def _make_group(
    sections: Mapping[str, Mapping[str, str]], callback: Callable[..., None], **settings: Any
) -> Any:
    app = typer.Typer(
        cls=_Group,
        invoke_without_command=True,
        result_callback=lambda *_, **__: _RETURNED,
        add_completion=False,
        # Plain help: half the start-up time, and the same on a terminal and in a pipe.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        **settings,
    )
    app.callback()(callback)
    group: Any = typer.main.get_command(app)
    group.sections = sections
    group.commands = {name: None for texts in sections.values() for name in texts}
    return group


@cache
def load_command(name: str) -> Any:
    """Return a command of `COMMANDS`, or for the empty name, the group of all commands.

    Each command gets `--verbose`, and takes each option with one value once. The help hides the
    Python types of arguments.
    """
    if not name:
        return _make_group(
            _COMMANDS,
            _main,
            help="Behavioural regression testing for AI agents, with a complete record of every"
            " run.",
            epilog="Start with: kindlm init. More on a command: kindlm COMMAND --help",
        )
    if name == "history":
        group = _make_group({"Commands": _HISTORY}, _need_command, help=_HELP[name])
        group.prefix = "history "
        return group
    word = name.rpartition(" ")[2].replace("-", "_")
    with loading():
        module = import_module(f"kindlm.cli.commands.{word}{'_' if iskeyword(word) else ''}")
    app = getattr(module, f"{word}_app", None)
    if app is not None:
        app.callback(invoke_without_command=True, help=_HELP[name])(_need_command)
        command: Any = typer.main.get_group(app)
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command()(getattr(module, f"{word}_command"))
        command = typer.main.get_command(app)
    for each in getattr(command, "commands", {"": command}).values():
        for parameter in each.params:
            if parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda **_: None
        if all(parameter.name != "verbose" for parameter in each.params):
            each.params.append(_verbose_option())
        each.parse_args = partial(_parse_strictly, each, each.parse_args)
    return command


_CHOOSES_TESTS = ("paths", "config", "run", "suite", "tests")
"""Parameters for which an empty text, as of an unset variable, would choose more than was meant."""


def _parse_strictly(
    command: Any, parse: Callable[..., Any], context: Any, arguments: list[str]
) -> Any:
    """Parse a command line, unless it gives an option twice that takes one value.

    Typer would take the last value, so that `-s a -s b` would run fewer suites than it names. An
    empty text for one of `_CHOOSES_TESTS` is wrong usage, too. `--help` is shown in any case.
    """
    given, _, order = command.make_parser(context).parse_args([*arguments])
    for parameter, times in () if given.get("help") else Counter(order).items():
        is_option, value = parameter.param_type_name == "option", given[parameter.name]
        name = parameter.opts[0] if is_option else parameter.metavar
        values = value if isinstance(value, list | tuple) else [value]
        if times > 1 and not (parameter.multiple or parameter.is_flag):
            raise _USAGE_ERROR(f"{name} is given {times} times, and takes one value.", ctx=context)
        if parameter.name in _CHOOSES_TESTS and "" in values:
            raise _USAGE_ERROR(f"{name} is empty.", ctx=context)
    return parse(context, arguments)


@cache
def _verbose_option() -> Any:
    """Return `--verbose` as a typer option. Only `run` reads it, from the arguments."""
    from kindlm.cli.options import VERBOSE

    def command(verbose: bool = VERBOSE) -> None: ...

    app = typer.Typer(add_completion=False)
    app.command()(command)
    (option,) = typer.main.get_command(app).params
    option.expose_value = False
    return option


def run(arguments: Sequence[str]) -> int:
    """Run a command line; return 0 if it succeeded and everything passed, else 1.

    If pytest's exit codes are configured, it also returns their 2, 4 and 5.
    """
    prepare_streams()
    set_verbose(any(map(_VERBOSE.match, arguments)))
    set_database(None if "KINDLM_LEASE" in os.environ else _value_of("--db", arguments))
    with inert_output():
        code = _run_command(arguments)
    if code in (INTERRUPTED, USAGE, NOTHING_RUN) and _uses_pytest_codes(arguments):
        return code
    return code if code == guard.code_of_ended else min(code, 1)


def _value_of(option: str, arguments: Sequence[str]) -> str | None:
    """Return the value of a long option in a command line, also one of wrong usage."""
    given = re.search(rf"(?:^|\0){option}[=\0]([^\0]*)", "\0".join(arguments))
    return None if given is None else given[1]


_EXIT_CODES = ("kindlm", "pytest")


def _uses_pytest_codes(arguments: Sequence[str]) -> bool:
    """Return whether the exit codes of pytest apply.

    It reads `--exit-codes` from the arguments, since wrong usage leaves no parsed options.
    """
    if (given := _value_of("--exit-codes", arguments)) is not None:
        return given == "pytest"
    from kindlm.recording.project import exit_codes

    found = exit_codes()
    if found not in (None, *_EXIT_CODES):
        hint = "exit_codes in kindlm.toml is kindlm or pytest."
        warn(f"The exit codes {found!r} are unknown.", hint)
    return found == "pytest"


def _run_command(arguments: Sequence[str]) -> int:
    """Run a command line, report an unexpected error, and return the detailed exit code."""
    logs: AbstractContextManager[None] = nullcontext()
    try:
        if os.environ.get("DEBUG") or os.environ.get("KINDLM_LOG"):
            from kindlm.cli.logs import log_as_asked

            logs = log_as_asked(os.environ)
        with logs:
            code = _invoke(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe.
        discard(sys.stdout)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last boundary: no command caught it
        return report_crash(error)
    finally:
        finish_errors()
    return abs(code)


def _invoke(arguments: Sequence[str]) -> int:
    try:
        Path.cwd()
    except FileNotFoundError:
        show([misuse("The current folder does not exist any more.", "Go to another folder.")])
        return 1
    codes = os.environ.get("KINDLM_EXIT_CODES") or "kindlm"
    if codes not in _EXIT_CODES:
        hint = "KINDLM_EXIT_CODES is kindlm or pytest."
        show([misuse(f"The exit codes {codes!r} are unknown.", hint)])
        return 1
    for argument in arguments:
        # Python decodes bytes that are not UTF-8 to lone surrogates, which cannot be stored.
        if any("\ud800" <= char <= "\udfff" for char in argument):
            written = os.fsencode(argument).decode("utf-8", "backslashreplace")
            what = f"The argument '{written}' is not UTF-8."
            show([misuse(what, "Write it in UTF-8, and rename a file whose name is not.")])
            return USAGE
    arguments = normalise(arguments)
    try:
        code = load_command("").main(args=arguments, prog_name="kindlm", standalone_mode=False)
        if code is _RETURNED:
            code = 0
        elif not code and guard.is_entered:
            # A successful command returns, so a signal handler of user code raised this.
            guard.report_exit("a signal handler raised typer.Exit")
            code = guard.code_of_ended
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):
            # Typer turns a broken pipe into SystemExit. `_run_command` discards the output.
            raise stop.__context__ from None
        code = stop.code
        if guard.is_entered:
            # kindlm does not call sys.exit here, so user code did.
            guard.report_exit("a callback or a signal handler called sys.exit")
            code = guard.code_of_ended
    except typer.Abort:
        code = INTERRUPTED
    except _USAGE_ERROR as error:
        code = USAGE
        # The error of an option without its value has no context.
        known = (name for name in (" ".join(arguments[:2]), *arguments[:1]) if name in COMMANDS)
        path = error.ctx.command_path if error.ctx else f"kindlm {next(known)}"
        # pydantic checks the values, and its messages say "input".
        message = error.format_message().replace(": Value error, ", ": ")
        show([misuse(_INPUT.sub(r"\1 \2.", message), f"For help: {path} --help")])
    return code if isinstance(code, int) else int(code is not None)


_COMMAND_ALIASES: Mapping[str, Sequence[str]] = {
    "run": ["test"],
    **{name: ["history", name] for name in _HISTORY},
}

_OPTION_ALIASES: Mapping[str, Mapping[str, str | None]] = {
    "test": {
        "--tag": "--tags",
        "--runs": "--repeat",
        "--parallel": "--concurrency",
        "--format": "--reporter",
        "--version": "--label",
        "--filter-failing": "--failed",
        "--save": None,
    },
    "replay": {"--runs": "--repeat"},
}
"""Options of other tools, with kindlm's names; None for what kindlm always does."""

_OPTIONAL_VALUES: Mapping[str, Mapping[str, str]] = {
    "test": {"--resume": "latest"},
    "rescore": {"--resume": "latest"},
    "init": {"--agent": "ask"},
}
"""Options whose value may be omitted, with the value they then get. Typer has no such options."""


def normalise(arguments: Sequence[str]) -> list[str]:
    """Return a command line with aliases replaced by kindlm's names, and omitted values added."""
    if not arguments:
        return []
    command = _COMMAND_ALIASES.get(arguments[0], arguments[:1])
    of = "test" if arguments[0] == "watch" else command[0]  # which take the same options
    aliases, values = _OPTION_ALIASES.get(of, {}), _OPTIONAL_VALUES.get(of, {})
    normal = [*command]
    for position, argument in enumerate(arguments[1:], start=1):
        if argument == "--":
            return [*normal, *arguments[position:]]
        if argument in values and not _has_value(arguments, position):
            normal.append(f"{argument}={values[argument]}")
            continue
        name, sign, value = argument.partition("=")
        if sign and _SHORT.fullmatch(name):
            normal += [name, value]
        elif (ours := aliases.get(name, name)) is not None:
            normal.append(ours + sign + value)
    return normal


def _has_value(arguments: Sequence[str], position: int) -> bool:
    """Return whether a value follows an option. After `--resume`, an existing path is no value."""
    following = arguments[position + 1 : position + 2]
    if not following or following[0].startswith("-"):
        return False
    is_path = following[0].startswith("pack:") or os.path.exists(following[0])  # noqa: PTH110 - no error
    return not (arguments[position] == "--resume" and is_path)
