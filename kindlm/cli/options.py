"""Options that several commands share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import field, fields
from datetime import UTC, datetime, timedelta
from inspect import Parameter, Signature
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Literal,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

import typer
from typer.models import ParameterInfo

from kindlm.bounds import MAX_CONCURRENCY, MAX_REPEAT
from kindlm.cli.console import refuse
from kindlm.dataclass import dataclass
from kindlm.wording import count, option_words

_Value = TypeVar("_Value")


def option(name: str, text: str | None = None, *, default: Any = None, **more: Any) -> Any:
    """Return an option, by its form in the help, such as `--suite -s NAME`, and its help text.

    The default `...` makes it required. `more` goes to `typer.Option`.
    """
    words = name.split()
    value = " ".join(word for word in words if word[0] != "-")
    names = (word for word in words if word[0] == "-")
    return typer.Option(default, *names, metavar=value or None, help=text, **more)


def flag(name: str, text: str | None = None, **more: Any) -> Any:
    """Return an option without a value: `--yes -y`."""
    return option(name, text, default=False, **more)


def argument(name: str, text: str, *, default: Any = ...) -> Any:
    """Return an argument with its name in the help; without a default, it is required."""
    return typer.Argument(default, metavar=name, help=text)


@dataclass_transform(frozen_default=True)
def command_options(cls: type[_Value]) -> type[_Value]:
    """Turn a class whose attributes are options into a frozen dataclass."""
    for name, made in [*vars(cls).items()]:
        if isinstance(made, ParameterInfo):
            setattr(cls, name, field(default=made.default, metadata={"typer": made}))
    return dataclass(frozen=True, slots=True)(cls)


_AGE = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

ListFormat: TypeAlias = Literal["terminal", "json"]

LIST_FORMAT = option("--format", "json is for programs.", default="terminal")

DiffFormat: TypeAlias = Literal["terminal", "json", "markdown", "html"]

DATABASE = option(
    "--db FILE", "The history file. Default: KINDLM_DB, else .kindlm/kindlm.db in the project."
)

VERBOSE = flag("--verbose -v", "Show codes, details and tracebacks of errors.")

INSECURE = flag("--insecure", "Send the token over plain HTTP, to a server you trust.")

SERVER = option(
    "--url URL",
    "The history server. Default: upload.apiUrl, else KINDLM_URL, else your only login.",
)

TEXTS = flag("--texts", "Also send content, as upload.includeArtifacts does.")

RUN_NAMES = (
    "An id or its first characters, a label, latest, previous, latest~N, baseline or git:REV."
)

EXECUTION = argument(
    "EXECUTION",
    "The id of an execution, its number in the run, or the name of a test with only one.",
    default=None,
)

RUN_OR_GROUP = argument("RUN", f"{RUN_NAMES} Or a group of shards.", default="latest")


def _tags(given: list[str] | None) -> list[str]:
    return [tag.strip() for tag in ",".join(given).split(",")] if given else []


_SHARD_VARIABLES = (
    ("JOB_COMPLETION_INDEX", 0, ("JOB_COMPLETIONS", "CI_NODE_TOTAL")),
    ("CI_NODE_INDEX", 1, ("CI_NODE_TOTAL",)),
    ("CIRCLE_NODE_INDEX", 0, ("CIRCLE_NODE_TOTAL",)),
    ("BUILDKITE_PARALLEL_JOB", 0, ("BUILDKITE_PARALLEL_JOB_COUNT",)),
)
"""The variable with the number of a parallel job, the first such number, and the variables with
the number of jobs: for an Indexed Job of Kubernetes, GitLab, CircleCI and Buildkite."""

_LEADING_ZEROS = re.compile(r"\b0+(?=[1-9])")


def _shard(text: str | None) -> str | None:
    """Return the value of `--shard`; `env` becomes the shard of this parallel CI job.

    Scripts number jobs as 01/10, which is recorded as 1/10.
    """
    value = _shard_of_job() if text == "env" else text
    return value and _LEADING_ZEROS.sub("", value)


def _shard_of_job() -> str:
    for variable, first, totals in _SHARD_VARIABLES:
        if not (index := os.environ.get(variable)):
            continue
        count = next((os.environ[name] for name in totals if os.environ.get(name)), None)
        if count is None:
            raise typer.BadParameter(
                f"{variable} is {index}, but nothing says of how many. Set {totals[0]} to the"
                " number of parallel jobs."
            )
        return f"{int(index) - first + 1 if index.isdecimal() else index}/{count}"
    names = ", ".join(variable for variable, _, _ in _SHARD_VARIABLES)
    raise typer.BadParameter(f"env needs one of these variables: {names}. Or write --shard 2/4.")


CONCURRENCY = option(
    "--concurrency -j N", "Number of executions at the same time.", min=1, max=MAX_CONCURRENCY
)

DURATIONS = option("--durations N", "Show the N slowest tests.", default=0, min=0)

STRICT = flag(
    "--strict", "Report unknown keys, checks that never fail and doubtful files as errors."
)

NO_PROGRESS = flag("--no-progress", "Hide progress.")


def _positive(limit: float | None) -> float | None:
    if limit is not None and limit <= 0:
        raise typer.BadParameter(
            f"{limit:g} allows no call at all. Write an amount above 0, or leave it out."
        )
    return limit


MAX_COST = option(
    "--max-cost USD",
    "Stop the run when it costs more, or an unknown amount.",
    callback=_positive,
)
"""The cost limit of all commands but `kindlm test`, whose limit may be 0, for `--cache`."""


def parse_since(text: str, now: datetime | None = None, option: str = "--since") -> str:
    """Return the point in time of an option such as `--since`, in UTC, in the format of events.

    The text is an age before `now` (`30d`, `12h`, `2w`, `90m`), or a date or time. Without a time
    zone, it is local.
    """
    age = _AGE.fullmatch(text)
    try:
        if age:
            moment = (now or datetime.now(UTC)) - timedelta(**{_UNITS[age[2]]: int(age[1])})
        else:
            moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        refuse(
            f"{option} {text!r} is not an age or a date.",
            f"Write an age or a date: {option} 30d, {option} 12h, {option} 2026-01-31",
        )
    # strftime writes years before 1000 with fewer digits, which would sort behind later years.
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def parse_erased_before(text: str, option: str) -> str:
    """Return the point in time before which content is erased, as `parse_since` does.

    A time in the future would erase everything. `3m` is three minutes, but may be meant as months.
    """
    age = _AGE.fullmatch(text)
    if age and age[2] == "m":
        refuse(
            f"{option} {text!r} may mean minutes or months.",
            f"Write hours, days or weeks: {option} {int(age[1]) * 30}d for"
            f" {count(int(age[1]), 'month')}",
        )
    before, now = parse_since(text, option=option), parse_since("0m")
    if before > now:
        refuse(
            f"{option} {text!r} is in the future.",
            f"Write an age or a date in the past: {option} 30d, {option} {now[:10]}",
        )
    return before


@command_options
class TestOptions:
    """The options of `kindlm test`, as typed.

    A subclass is another command with some of these options and its own. Its `takes` names them,
    in the order of its help.
    """

    __test__ = False  # not a pytest class
    takes: ClassVar[tuple[str, ...]] = ()

    paths: tuple[Path, ...] = argument(
        "PATH",
        "Files, folders or pack:NAME. Default: kindlm.yaml, or the tests folder.",
        default=(),
    )
    config: tuple[Path, ...] = option("--config -c FILE", "A suite; same as PATH.", default=())
    suite: str | None = option("--suite -s TEXT", "Run only suites whose name contains TEXT.")
    tests: tuple[str, ...] = option(
        "--test -t TEXT",
        "Run only the test named TEXT. Without such a test: all tests whose name, suite or"
        " file contains TEXT. Repeatable.",
        default=(),
    )
    tags: tuple[str, ...] = option(
        "--tags A,B", "Run only tests with one of these tags.", default=(), callback=_tags
    )
    models: tuple[str, ...] = option(
        "--model ID", "Run only on this model or agent. Repeatable.", default=()
    )
    keywords: str | None = option(
        "-k EXPR",
        "Run only tests whose names match: 'refund and not gpt'. The names are those of"
        " the suite, test, target and tags.",
    )
    failed: bool = flag("--failed --lf", "Run only tests that failed when they last ran.")
    repeat: int | None = option(
        "--repeat N", "Number of repeats of each test.", min=1, max=MAX_REPEAT
    )
    gate: str | None = option("--gate RATE", "Required pass rate of each suite: 95 or 0.95.")
    concurrency: int | None = CONCURRENCY
    timeout_ms: int | None = option(
        "--timeout MS", "Time limit of one call, in milliseconds.", min=1
    )
    strict: bool = STRICT
    compat: Literal["evalview", "none"] | None = option(
        "--compat",
        "evalview: judge EvalView test cases by EvalView's rules. If kindlm's verdict"
        " differs, reports show both.",
    )
    fail_fast: bool = flag("--fail-fast -x", "Stop after the first failure.")
    max_cost_usd: float | None = option(
        "--max-cost USD", "Stop the run when it costs more, or an unknown amount.", min=0
    )
    max_time_s: float | None = option("--max-time SECONDS", "Stop the run after this time.", min=0)
    max_rpm: float | None = option(
        "--max-rpm N", "Maximum calls per minute to each provider.", min=0.1
    )
    shard: str | None = option(
        "--shard I/N",
        "Run only every Nth test, starting at the Ith. env: that of this parallel CI job.",
        callback=_shard,
    )
    run_group: str | None = option(
        "--run-group ID", "Id that the shards of one run share. Default: the id of the CI run."
    )
    workers: str | None = option(
        "--workers N|ADDRESS",
        "Share the tests among N processes, or among the workers of a Dask scheduler at"
        " tcp://HOST:PORT or tls://HOST:PORT.",
    )
    listen: str | None = option(
        "--listen HOST[:PORT]", "Where workers on other machines reach this one."
    )
    insecure: bool = flag("--insecure", "Connect to workers on other machines without TLS.")
    cache: bool = flag("--cache", "Reuse recorded answers to identical model requests.")
    resume: str | None = option(
        "--resume [RUN]", "Finish an interrupted run or group of shards. Default: the latest run."
    )
    force_resume: bool = flag(
        "--force-resume",
        "Resume even if the configuration has changed. The tests must be the same.",
    )
    dry_run: bool = flag("--dry-run", "Show the plan and its estimated cost. Calls nothing.")
    watch: bool = flag("--watch", "Run again whenever a relevant file changes.")
    push: bool = flag(
        "--push", "Send the run to a history server while it goes on, as upload.enabled does."
    )
    texts: bool = TEXTS
    die_with_parent: bool = flag(
        "--die-with-parent",
        "End at once, with all started programs, when the starting process ends.",
    )
    reporters: tuple[str, ...] = option(
        "--reporter NAME[=FILE]",
        "terminal, json, junit, markdown, html, sarif or that of a package. Repeatable. FILE - is"
        " stdout.",
        default=(),
    )
    output: Path | None = option("--output -o FILE", "Write the report to FILE.")
    label: str | None = option("--label NAME", "Name the run.")
    compliance: bool = flag("--compliance", "Also write the compliance report of each suite.")
    pdf: Path | None = option("--pdf FILE", "Also write the compliance report as PDF.")
    exit_codes: Literal["kindlm", "pytest"] | None = option(
        "--exit-codes",
        "pytest: exit with 1 for failures, 2 for Ctrl-C, 4 for wrong usage, 5 if no test"
        " was selected.",
    )
    database: Path | None = DATABASE
    verbose: bool = flag(
        "--verbose -v", "List all tests; show requests, retries, timing and tracebacks of failures."
    )
    durations: int = DURATIONS
    quiet: bool = flag(
        "--quiet -q", "Hide progress and warnings; print one line if the run passes."
    )
    no_progress: bool = NO_PROGRESS

    def __post_init__(self) -> None:
        """Add `--config` to the paths."""
        object.__setattr__(self, "paths", (*self.paths, *self.config))
        object.__setattr__(self, "config", ())

    @property
    def progress(self) -> bool:
        """Whether to show progress."""
        return not (self.no_progress or self.quiet)

    @property
    def warnings(self) -> bool:
        """Whether to show warnings and notes."""
        return not self.quiet


def option_name(options: Any, attribute: str) -> str:
    """Return the name of an option or argument, such as `--suite` for `suite`."""
    info = options.__dataclass_fields__[attribute].metadata["typer"]
    return str(info.param_decls[0] if info.param_decls else info.metavar)


def refuse_together(name: str, options: Any, *others: str) -> None:
    """End the command if some other options are given beside one; `others` are attributes."""
    given = (other for other in others if getattr(options, other) not in (None, False, ()))
    if names := [option_name(options, other) for other in given]:
        refuse(f"{name} cannot be combined with {', '.join(names)}.", "Leave one of them out.")


def given_again(options: Any, attributes: Iterable[str]) -> Iterator[str]:
    """Yield some options as arguments of another command, without those at their default."""
    for attribute in attributes:
        value = getattr(options, attribute)
        if value != options.__dataclass_fields__[attribute].default:
            yield from option_words(option_name(options, attribute), value)


SOURCE_RUN = argument("RUN", f"{RUN_NAMES} Default: the newest finished run.", default=None)


@command_options
class DerivedOptions(TestOptions):
    """The options that `kindlm rescore` and `kindlm replay` share."""

    takes: ClassVar[tuple[str, ...]] = (
        "compat", "concurrency", "max_cost_usd", "reporters", "output", "label", "database",
        "verbose", "quiet", "no_progress",
    )  # fmt: skip

    max_cost_usd: float | None = MAX_COST


def with_options(work: Callable[..., int]) -> Callable[..., None]:
    """Return the typer command of a function that gets its options as a dataclass.

    The function has the parameter `options`, of a class made by `command_options`, and returns the
    exit code. A repeatable option has the type `tuple[X, ...]`.
    """
    cls = get_type_hints(work)["options"]
    types = get_type_hints(cls)
    parameters = list[Parameter]()
    known = {field.name: field for field in fields(cls)}
    for name in getattr(cls, "takes", ()) or known:
        kind, info = types[name], known[name].metadata.get("typer")
        if info is None:
            continue  # no option
        if info.default == ():
            info, kind = copy(info), list[get_args(kind)[0]] | None  # type: ignore[misc]
            info.default = None
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=info, annotation=kind))

    def command(**given: Any) -> None:
        values = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
            if value is not None
        }
        if code := work(cls(**values)):
            raise typer.Exit(code)

    command.__doc__ = work.__doc__
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(command)["__signature__"] = Signature(parameters)
    return command
