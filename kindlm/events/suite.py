"""Events of the suites of a run: what they were to do, or why they could not run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kindlm.events.base import Authored, Data, Payload

__all__ = [
    "GateData",
    "PlannedTest",
    "ScoreLimitsData",
    "SuiteSkipped",
    "SuiteStarted",
]


class GateData(Data):
    """A gate in force; `written` tells the user's own from defaults."""

    name: str
    threshold: float
    written: bool


class ScoreLimitsData(Data):
    """What the weighted scores of the repeats of a test have to keep to, from 0 to 1."""

    min_mean: float | None = None
    max_std_dev: float | None = Field(default=None, description="that of a sample")


class PlannedTest(Data):
    """The identity of a test (case x target), and whether this run selected it."""

    name: str
    target: str
    tags: list[str] = []
    selected: bool = True
    skip: bool = False
    repeat: int = 1
    pass_rate: float = 1.0
    line: int | None = None
    file: str | None = Field(
        default=None, description="the file that `line` is one of, if not the `path` of the suite"
    )
    score_limits: ScoreLimitsData | None = None
    confidence: float | None = Field(
        default=None, description="of the intervals of its repeats that are shown; 0.95 if absent"
    )


class SuiteStarted(Payload):
    """A suite of the run began; holds its configuration as it was resolved."""

    type: Literal["suite.started"] = "suite.started"
    suite: str
    ordinal: int = Field(description="position of the suite in the run, from 0")
    project: str
    front_end: str = Field(description="the format it was written in: kindlm, evalview, scenario")
    path: str
    config_hash: str
    config: Authored
    gates: list[GateData] = Field(description="gates in force, after command-line overrides")
    baseline_run: str | None = None
    tags: list[str] = []
    tests: list[PlannedTest]
    unread: list[str] = Field(
        default=[], description="files of it that could not be loaded: their tests are not known"
    )


class SuiteSkipped(Payload):
    """A suite could not be loaded; nothing of it was called, other suites ran."""

    type: Literal["suite.skipped"] = "suite.skipped"
    suite: str
    ordinal: int
    path: str
    tests: int = Field(description="how many tests it holds, where they could be counted")
    error_code: str
    error_number: int
    message: Authored
    hint: Authored | None = None
    line: int | None = None
    column: int | None = None
