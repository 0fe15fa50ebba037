"""Options that several commands share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args, get_type_hints

import typer

from kindlm.bounds import MAX_CONCURRENCY, MAX_REPEAT
from kindlm.dataclass import dataclass
from kindlm.errors import Err, Ok, Result, misuse
from kindlm.wording import option_words

_AGE = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

ListFormat: TypeAlias = Literal["terminal", "json"]
"""How a list is written: for people, or for programs."""

ListFormatOption = Annotated[ListFormat, typer.Option("--format", help="json is for programs.")]

DiffFormat: TypeAlias = Literal["terminal", "json", "markdown", "html"]
"""How a comparison of two runs is written."""

DatabaseOption = Annotated[
    Path | None,
    typer.Option(
        "--db",
        metavar="FILE",
        help="The history file. Default: KINDLM_DB, else .kindlm/kindlm.db in the project.",
        show_default=False,
    ),
]

VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show codes, details and tracebacks of errors.")
]

InsecureOption = Annotated[
    bool,
    typer.Option("--insecure", help="Send the token over plain HTTP, to a server you trust."),
]

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The history server. Default: upload.apiUrl, else KINDLM_URL, else your only login.",
        show_default=False,
    ),
]

TextsOption = Annotated[
    bool,
    typer.Option("--texts", help="Also send content, as upload.includeArtifacts does."),
]

RUN_NAMES = (
    "An id or its first characters, a label, latest, previous, latest~N, baseline or git:REV."
)
"""How all commands name a run."""

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help=RUN_NAMES)]

RunOrGroupArgument = Annotated[
    str, typer.Argument(metavar="RUN", help=f"{RUN_NAMES} Or a group of shards.")
]


def _tags(given: list[str] | None) -> list[str]:
    """Return the tags of the last `--tags`."""
    return [tag.strip() for tag in given[-1].split(",")] if given else []


_SHARD_VARIABLES = (
    ("JOB_COMPLETION_INDEX", 0, ("JOB_COMPLETIONS", "CI_NODE_TOTAL")),
    ("CI_NODE_INDEX", 1, ("CI_NODE_TOTAL",)),
    ("CIRCLE_NODE_INDEX", 0, ("CIRCLE_NODE_TOTAL",)),
    ("BUILDKITE_PARALLEL_JOB", 0, ("BUILDKITE_PARALLEL_JOB_COUNT",)),
)
"""Which of several parallel jobs this is, from which number they are counted, and what says how
many there are: an Indexed Job of Kubernetes, GitLab, CircleCI, Buildkite."""


def _shard(text: str | None) -> str | None:
    """Return the shard that `--shard` names, for `env` that of this job of several."""
    if text != "env":
        return text
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


ConcurrencyOption = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        "-j",
        metavar="N",
        min=1,
        max=MAX_CONCURRENCY,
        help="Number of executions at the same time.",
    ),
]

DurationsOption = Annotated[
    int, typer.Option("--durations", metavar="N", min=0, help="Show the N slowest tests.")
]

StrictOption = Annotated[
    bool,
    typer.Option("--strict", help="Report unknown keys and doubtful test files as errors."),
]

NoProgressOption = Annotated[bool, typer.Option("--no-progress", help="Hide progress.")]


def _more_than_nothing(limit: float | None) -> float | None:
    """Return a limit of costs; refuse 0, which is for `kindlm test --cache` alone."""
    if limit is not None and limit <= 0:
        raise typer.BadParameter(
            f"{limit:g} allows no call at all. Write a sum above 0, or leave it out."
        )
    return limit


MaxCostOption = Annotated[
    float | None,
    typer.Option(
        "--max-cost",
        metavar="USD",
        callback=_more_than_nothing,
        help="Stop the run when it has cost more.",
    ),
]
"""The limit of commands that make a run of a recorded one. That of `kindlm test` may be 0."""


def parse_since(text: str, now: datetime | None = None, option: str = "--since") -> Result[str]:
    """Return the point in time that an option means, in UTC as events have it.

    An age (`30d`, `12h`, `2w`, `90m`) counts back from `now`, by default from this
    moment. A date or time without a zone is local.
    """
    age = _AGE.fullmatch(text)
    try:
        if age:
            moment = (now or datetime.now(UTC)) - timedelta(**{_UNITS[age[2]]: int(age[1])})
        else:
            moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return Err(
            misuse(
                f"{option} {text!r} is not an age or a date.",
                f"Write an age or a date: {option} 30d, {option} 12h, {option} 2026-01-31",
            )
        )
    return Ok(moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))


@dataclass(frozen=True, slots=True)
class TestOptions:
    """The options of `kindlm test`, as typed.

    Other commands that make runs have some of them: `takes` names those, and their own, in the
    order of their help.
    """

    __test__ = False  # not a pytest class
    takes: ClassVar[tuple[str, ...]] = ()

    paths: Annotated[
        tuple[Path, ...],
        typer.Argument(
            metavar="PATH",
            help="Files, folders or pack:NAME. Default: kindlm.yaml, or the tests folder.",
        ),
    ] = ()
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="A suite; same as PATH.")
    ] = None
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite", "-s", metavar="TEXT", help="Run only suites whose name contains TEXT."
        ),
    ] = None
    tests: Annotated[
        tuple[str, ...],
        typer.Option(
            "--test",
            "-t",
            metavar="TEXT",
            help="Run only the test named TEXT. Without such a test: all tests whose name, suite or"
            " file contains TEXT. Repeatable.",
        ),
    ] = ()
    tags: Annotated[
        tuple[str, ...],
        typer.Option(
            "--tags", metavar="A,B", callback=_tags, help="Run only tests with one of these tags."
        ),
    ] = ()
    models: Annotated[
        tuple[str, ...],
        typer.Option("--model", metavar="ID", help="Run only on this model or agent. Repeatable."),
    ] = ()
    keywords: Annotated[
        str | None,
        typer.Option(
            "-k",
            metavar="EXPR",
            help="Run only tests whose names match: 'refund and not gpt'. The names are those of"
            " the suite, test, target and tags.",
        ),
    ] = None
    failed: Annotated[
        bool,
        typer.Option("--failed", "--lf", help="Run only tests that failed when they last ran."),
    ] = False
    repeat: Annotated[
        int | None,
        typer.Option(
            "--repeat", metavar="N", min=1, max=MAX_REPEAT, help="Number of repeats of each test."
        ),
    ] = None
    gate: Annotated[
        str | None,
        typer.Option(
            "--gate", metavar="RATE", help="Required pass rate of each suite: 95 or 0.95."
        ),
    ] = None
    concurrency: ConcurrencyOption = None
    timeout_ms: Annotated[
        int | None,
        typer.Option(
            "--timeout", metavar="MS", min=1, help="Time limit of one call, in milliseconds."
        ),
    ] = None
    strict: StrictOption = False
    compat: Annotated[
        Literal["evalview", "none"] | None,
        typer.Option(
            "--compat",
            help="evalview: judge EvalView test cases by EvalView's rules. If kindlm's verdict"
            " differs, reports show both.",
            show_default=False,
        ),
    ] = None
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", "-x", help="Stop after the first failure.")
    ] = False
    max_cost_usd: Annotated[
        float | None,
        typer.Option(
            "--max-cost", metavar="USD", min=0, help="Stop the run when it has cost more."
        ),
    ] = None
    max_time_s: Annotated[
        float | None,
        typer.Option("--max-time", metavar="SECONDS", min=0, help="Stop the run after this time."),
    ] = None
    max_rpm: Annotated[
        float | None,
        typer.Option(
            "--max-rpm", metavar="N", min=0.1, help="Maximum calls per minute to each provider."
        ),
    ] = None
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            metavar="I/N",
            callback=_shard,
            help="Run only every Nth test, starting at the Ith. env: that of this parallel CI job.",
        ),
    ] = None
    run_group: Annotated[
        str | None,
        typer.Option(
            "--run-group",
            metavar="ID",
            help="Id that the shards of one run share. Default: the id of the CI run.",
        ),
    ] = None
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers",
            metavar="N|ADDRESS",
            help="Share the tests among N processes, or among the workers of a Dask scheduler at"
            " tcp://HOST:PORT or tls://HOST:PORT.",
        ),
    ] = None
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST[:PORT]",
            help="Where workers on other machines reach this one.",
        ),
    ] = None
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Connect to workers on other machines without TLS."),
    ] = False
    cache: Annotated[
        bool,
        typer.Option("--cache", help="Reuse recorded answers to identical model requests."),
    ] = False
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="[RUN]",
            help="Finish an interrupted run or group of shards. Default: the latest run.",
        ),
    ] = None
    force_resume: Annotated[
        bool,
        typer.Option(
            "--force-resume",
            help="Resume even if the configuration has changed. The tests must be the same.",
        ),
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and its estimated cost. Calls nothing.")
    ] = False
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Run again whenever a relevant file changes."),
    ] = False
    push: Annotated[
        bool,
        typer.Option(
            "--push",
            help="Send the run to a history server while it goes on, as upload.enabled does.",
        ),
    ] = False
    texts: TextsOption = False
    die_with_parent: Annotated[
        bool,
        typer.Option(
            "--die-with-parent",
            help="End at once, with all started programs, when the starting process ends.",
        ),
    ] = False
    reporters: Annotated[
        tuple[str, ...],
        typer.Option(
            "--reporter",
            metavar="NAME[=FILE]",
            help="terminal, json, junit, markdown, html or sarif. Repeatable. FILE - is stdout.",
        ),
    ] = ()
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the report to FILE."),
    ] = None
    label: Annotated[str | None, typer.Option("--label", metavar="NAME", help="Name the run.")] = (
        None
    )
    compliance: Annotated[
        bool,
        typer.Option("--compliance", help="Also write the compliance report of each suite."),
    ] = False
    pdf: Annotated[
        Path | None,
        typer.Option("--pdf", metavar="FILE", help="Also write the compliance report as PDF."),
    ] = None
    exit_codes: Annotated[
        Literal["kindlm", "pytest"] | None,
        typer.Option(
            "--exit-codes",
            help="pytest: exit with 1 for failures, 2 for Ctrl-C, 4 for wrong usage, 5 if no test"
            " was selected.",
            show_default=False,
        ),
    ] = None
    database: DatabaseOption = None
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="List all tests; show requests, retries, timing and tracebacks of failures.",
        ),
    ] = False
    durations: DurationsOption = 0
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Hide progress and warnings; print one line if the run passes."
        ),
    ] = False
    no_progress: NoProgressOption = False

    def __post_init__(self) -> None:
        """Let `--config` name one more path."""
        if self.config is not None:
            object.__setattr__(self, "paths", (*self.paths, self.config))
            object.__setattr__(self, "config", None)

    @property
    def progress(self) -> bool:
        """Whether progress is shown while the run goes on."""
        return not (self.no_progress or self.quiet)

    @property
    def warnings(self) -> bool:
        """Whether warnings and notes are shown."""
        return not self.quiet

    @property
    def by_evalview(self) -> bool:
        """Whether cases of EvalView pass and fail as they do there."""
        return self.compat == "evalview"


@cache
def typed(option: str) -> str:
    """Return how an option of `kindlm test` is typed: `--suite` of `suite`."""
    name: str = get_type_hints(TestOptions, include_extras=True)[option].__metadata__[0].default
    return name


def typed_again(options: TestOptions, names: Iterable[str]) -> Iterator[str]:
    """Yield some options for another command line, as far as they were given."""
    defaults = {field.name: field.default for field in fields(TestOptions)}
    for name in names:
        value = getattr(options, name)
        if value != defaults[name]:
            yield from option_words(typed(name), value)


SourceRunArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help=f"{RUN_NAMES} Default: the newest finished run.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class DerivedOptions(TestOptions):
    """The options of all commands that make a run from a recorded one."""

    takes: ClassVar[tuple[str, ...]] = (
        "compat", "concurrency", "max_cost_usd", "reporters", "output", "label", "database",
        "verbose", "quiet", "no_progress",
    )  # fmt: skip

    max_cost_usd: MaxCostOption = None


def with_options(work: Callable[..., int]) -> Callable[..., None]:
    """Return the command of a function that takes its options as a dataclass.

    `work` has the parameter `options`, whose fields are the options of the command: declared like
    parameters of typer, or as `tuple[X, ...]` if they may be repeated. A field that is not
    `Annotated` is no option. `work` may also have `context`, and returns the exit code.
    """
    hints = get_type_hints(work)
    declared = get_type_hints(hints["options"], include_extras=True)
    parameters = [Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    known = {field.name: field for field in fields(hints["options"])}
    for name in getattr(hints["options"], "takes", ()) or known:
        hint, default = declared[name], known[name].default
        if not hasattr(hint, "__metadata__"):
            continue  # no option
        if default == ():
            (of, _), default = get_args(hint.__origin__), None
            hint = Annotated[list[of] | None, *hint.__metadata__]  # type: ignore[valid-type]
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint))

    def command(context: typer.Context, **given: Any) -> None:
        values = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
            if value is not None
        }
        options = hints["options"](**values)
        others = {"context": context} if "context" in hints else {}
        if code := work(options, **others):
            raise typer.Exit(code)

    command.__doc__ = work.__doc__
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(command)["__signature__"] = Signature(parameters)
    return command
