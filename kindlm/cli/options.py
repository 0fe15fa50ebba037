"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Self, get_args, get_type_hints

import typer

from kindlm.bounds import MAX_CONCURRENCY, MAX_REPEAT
from kindlm.errors import Err, Ok, Result, misuse

_AGE = re.compile(r"(\d{1,6})([mhdw])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class ListFormat(StrEnum):
    """How a list is written: for people, or for programs."""

    TERMINAL = "terminal"
    JSON = "json"


class DiffFormat(StrEnum):
    """How a comparison of two runs is written."""

    TERMINAL = "terminal"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"


class FailOnOption(StrEnum):
    """What makes a comparison of two runs end with 1, as it is typed."""

    DEFAULT = "default"
    BEHAVIOUR = "behaviour"
    ANY = "any"
    NEVER = "never"


DatabaseOption = Annotated[
    Path | None,
    typer.Option(
        "--db",
        metavar="FILE",
        help="The history. Default: KINDLM_DB, else .kindlm/kindlm.db of the project.",
        show_default=False,
    ),
]

VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Show codes, details and traces of errors.")
]

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id or its beginning, a label, or latest.")
]

RunOrGroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's id or its beginning, a label, latest, or a group of shards.",
    ),
]

PathsArgument = Annotated[
    tuple[Path, ...],
    typer.Argument(
        metavar="PATH",
        help="Files, folders or pack:NAME. Default: kindlm.yaml, and tests/ where it is alone or "
        "configured.",
    ),
]

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", metavar="FILE", help="A suite, like PATH.")
]

SuiteTextOption = Annotated[
    str | None,
    typer.Option("--suite", "-s", metavar="TEXT", help="Only suites whose name has this."),
]

TestsOption = Annotated[
    tuple[str, ...],
    typer.Option(
        "--test",
        "-t",
        metavar="TEXT",
        help="Only tests whose suite, name or file has this; repeatable.",
    ),
]


def _tags(given: list[str] | None) -> list[str]:
    """Return the tags of the last `--tags`."""
    return [tag.strip() for tag in given[-1].split(",")] if given else []


TagsOption = Annotated[
    tuple[str, ...],
    typer.Option(
        "--tags", metavar="A,B", callback=_tags, help="Only tests with one of these tags."
    ),
]

TargetsOption = Annotated[
    tuple[str, ...],
    typer.Option("--model", metavar="ID", help="Only on this model or agent; repeatable."),
]

GateOption = Annotated[
    str | None,
    typer.Option("--gate", metavar="RATE", help="Least pass rate of a suite: 95 or 0.95."),
]

ConcurrencyOption = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        "-j",
        metavar="N",
        min=1,
        max=MAX_CONCURRENCY,
        help="Executions at once.",
    ),
]

ReporterOption = Annotated[
    tuple[str, ...],
    typer.Option(
        "--reporter",
        metavar="NAME[=FILE]",
        help="terminal, json, junit, markdown, html or sarif; repeatable. -: standard output.",
    ),
]

ReportFileOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Where the report goes."),
]

RunVerboseOption = Annotated[
    bool,
    typer.Option("--verbose", help="Show bodies, tries, timing and traces of what failed."),
]

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Neither progress nor warnings.")]

StrictOption = Annotated[
    bool,
    typer.Option("--strict", help="Unknown keys, and files that only look like tests, are errors."),
]


class Compat(StrEnum):
    """By whose rules cases of another program pass and fail, as it is typed."""

    EVALVIEW = "evalview"
    NONE = "none"


CompatOption = Annotated[
    Compat | None,
    typer.Option(
        "--compat",
        help="evalview: EvalView test cases pass and fail as in EvalView; where kindlm's own"
        " verdict is another one, both are shown.",
        show_default=False,
    ),
]

NoProgressOption = Annotated[
    bool, typer.Option("--no-progress", "-x", help="No progress while it runs.")
]

NewRunLabelOption = Annotated[
    str | None, typer.Option("--label", metavar="NAME", help="A name for the new run.")
]


def _more_than_nothing(limit: float | None) -> float | None:
    if limit == 0:
        raise typer.BadParameter("0 allows no call at all. Write a sum above 0, or leave it out.")
    return limit


MaxCostOption = Annotated[
    float | None,
    typer.Option("--max-cost", metavar="USD", min=0, help="Stop when more than this is spent."),
]

JudgeCostOption = Annotated[
    float | None,
    typer.Option(
        "--max-cost",
        metavar="USD",
        min=0,
        callback=_more_than_nothing,
        help="Stop when judges cost more.",
    ),
]


def parse_since(text: str, now: datetime) -> Result[str]:
    """Return the point in time that `--since` means, in UTC as events have it.

    An age (`30d`, `12h`, `2w`, `90m`) counts back from `now`; a date or time without a zone is
    local.
    """
    age = _AGE.fullmatch(text)
    try:
        if age:
            moment = now - timedelta(**{_UNITS[age[2]]: int(age[1])})
        else:
            moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return Err(
            misuse(
                f"--since {text!r} is no point in time.",
                "Write an age or a date: --since 30d, --since 12h, --since 2026-01-31",
            )
        )
    return Ok(moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))


@dataclass(frozen=True, slots=True)
class TestOptions:
    """The options of `kindlm test`, as typed; other commands that make runs have some of them."""

    __test__ = False  # not a pytest class

    paths: PathsArgument = ()
    config: ConfigOption = None
    suite: SuiteTextOption = None
    tests: TestsOption = ()
    tags: TagsOption = ()
    models: TargetsOption = ()
    failed: Annotated[
        bool, typer.Option("--failed", help="Only tests that failed when they last ran.")
    ] = False
    repeat: Annotated[
        int | None,
        typer.Option("--runs", metavar="N", min=1, max=MAX_REPEAT, help="Repeats of each test."),
    ] = None
    gate: GateOption = None
    concurrency: ConcurrencyOption = None
    timeout_ms: Annotated[
        int | None,
        typer.Option("--timeout", metavar="MS", min=1, help="Milliseconds for one call."),
    ] = None
    strict: StrictOption = False
    compat: CompatOption = None
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Start nothing new after the first failure.")
    ] = False
    max_cost_usd: MaxCostOption = None
    max_time_s: Annotated[
        float | None,
        typer.Option("--max-time", metavar="SECONDS", min=0, help="Stop after this time."),
    ] = None
    max_rpm: Annotated[
        float | None,
        typer.Option(
            "--max-rpm", metavar="N", min=0.1, help="Calls a minute to each provider at most."
        ),
    ] = None
    shard: Annotated[
        str | None,
        typer.Option("--shard", metavar="I/N", help="Only every N-th test, from the I-th on."),
    ] = None
    run_group: Annotated[
        str | None,
        typer.Option(
            "--run-group",
            metavar="ID",
            help="What the shards of one run share. Default: the run of the CI service.",
        ),
    ] = None
    cache: Annotated[
        bool,
        typer.Option(
            "--cache", help="Ask models only what they have not been asked in an earlier run."
        ),
    ] = False
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="[RUN]",
            help="Finish a run that was stopped; by default the latest one.",
        ),
    ] = None
    force_resume: Annotated[
        bool,
        typer.Option(
            "--force-resume",
            help="Resume although the configuration has changed; its tests must be the same.",
        ),
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and what it may cost; call nothing.")
    ] = False
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Run again whenever a file changes that matters."),
    ] = False
    reporters: ReporterOption = ()
    output: ReportFileOption = None
    label: Annotated[
        str | None, typer.Option("--label", metavar="NAME", help="A name for this run.")
    ] = None
    compliance: Annotated[
        bool,
        typer.Option("--compliance", help="Write the compliance report of each suite, too."),
    ] = False
    pdf: Annotated[
        Path | None,
        typer.Option("--pdf", metavar="FILE", help="Write the compliance report as PDF, too."),
    ] = None
    database: DatabaseOption = None
    verbose: RunVerboseOption = False
    quiet: QuietOption = False
    no_progress: NoProgressOption = False

    @classmethod
    def of(cls, given: object) -> Self:
        """Return the options of another command that are also options of `kindlm test`."""
        names = (field.name for field in fields(cls))
        return cls(**{name: getattr(given, name) for name in names if hasattr(given, name)})

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


def with_options(work: Callable[..., int]) -> Callable[..., None]:
    """Return the command of a function that takes its options as a dataclass.

    `work` has the parameter `options`, whose fields are the options of the command: declared like
    parameters of typer, or as `tuple[X, ...]` if they may be repeated. A field that is not
    `Annotated` is no option. `work` may also have `context`, and returns the exit code.
    """
    hints = get_type_hints(work)
    declared = get_type_hints(hints["options"], include_extras=True)
    parameters = [Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    for field in fields(hints["options"]):
        hint, default = declared[field.name], field.default
        if not hasattr(hint, "__metadata__"):
            continue  # no option
        if default == ():
            (of, _), default = get_args(hint.__origin__), None
            hint = Annotated[list[of] | None, *hint.__metadata__]  # type: ignore[valid-type]
        parameters.append(
            Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)
        )

    def command(context: typer.Context, **given: Any) -> None:
        values = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
            if value is not None
        }
        options = hints["options"](**values)
        others = {"context": context} if "context" in hints else {}
        raise typer.Exit(work(options, **others))

    command.__doc__ = work.__doc__
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(command)["__signature__"] = Signature(parameters)
    return command
