"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "MAX_CONCURRENCY",
    "MAX_REPEAT",
    "DatabaseOption",
    "DiffFormat",
    "FailOnOption",
    "ListFormat",
    "RunArgument",
    "RunOrGroupArgument",
    "VerboseOption",
]

# As in kindlm.yaml, whose schema takes too long to load where only help is asked for.
MAX_REPEAT = 100
MAX_CONCURRENCY = 32


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
