"""Options that several commands share."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kindlm.bounds import MAX_CONCURRENCY
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
    list[Path] | None,
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
    list[str] | None,
    typer.Option(
        "--test",
        "-t",
        metavar="TEXT",
        help="Only tests whose suite, name or file has this; repeatable.",
    ),
]

TagsOption = Annotated[
    str | None,
    typer.Option("--tags", metavar="A,B", help="Only tests with one of these tags."),
]

TargetsOption = Annotated[
    list[str] | None,
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
    list[str] | None,
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


def given_paths(paths: list[Path] | None, config: Path | None) -> tuple[Path, ...]:
    """Return what PATH and `--config` name together."""
    return (*(paths or ()), *((config,) if config is not None else ()))


def given_tags(tags: str | None) -> tuple[str, ...]:
    """Return the tags of `--tags`."""
    return () if tags is None else tuple(tag.strip() for tag in tags.split(","))


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
