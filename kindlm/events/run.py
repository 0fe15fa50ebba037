"""Events that frame a run: how it began, went on and ended."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kindlm.events.base import Data, Payload

__all__ = [
    "GateVerdictData",
    "GitState",
    "RunAborted",
    "RunExtended",
    "RunFinished",
    "RunInterrupted",
    "RunOptions",
    "RunResumed",
    "RunStarted",
]


class GitState(Data):
    """The commit that was tested, and whether the working tree had changes beside it."""

    commit: str
    branch: str | None = None
    dirty: bool = False


class RunOptions(Data):
    """What a run was asked for on the command line; a key that is absent was left to the suites."""

    paths: list[str] = []
    suite: str | None = None
    tests: list[str] = []
    tags: list[str] = []
    models: list[str] = []
    repeat: int | None = None
    gate: str | None = None
    concurrency: int | None = None
    timeout_ms: int | None = None
    failed: bool = False
    fail_fast: bool = False
    shard: str | None = None
    max_cost_usd: float | None = None
    max_rpm: float | None = None
    cache: bool = False
    compat: str | None = Field(
        default=None, description="the program by whose rules cases in its format are judged"
    )
    runner: Literal["pytest"] | None = Field(
        default=None, description="what chose and started the tests, if it was not kindlm"
    )


class RunStarted(Payload):
    """A run began. First event of a run's stream."""

    type: Literal["run.started"] = "run.started"
    project: str
    mode: Literal["live", "rescored", "replayed", "settled", "generation", "imported"] = "live"
    planned: int = Field(description="number of executions that the plan holds")
    label: str | None = None
    group: str | None = Field(default=None, description="what the shards of one run share")
    shard: str | None = Field(default=None, description="which shard this is, as `i/n`")
    git: GitState | None = None
    ci: str | None = Field(default=None, description="the CI service that ran it")
    versions: dict[str, str] = Field(description="kindlm, Python and the provider SDKs")
    options: RunOptions | None = Field(default=None, description="what the user asked for")
    source_run: str | None = Field(default=None, description="the run this one was derived from")
    imported_from: str | None = Field(
        default=None, description="format and digest of the file that was imported as this run"
    )


class RunResumed(Payload):
    """An interrupted run goes on, in a new process."""

    type: Literal["run.resumed"] = "run.resumed"
    by: str = Field(description="host and process id")
    planned: int = Field(description="number of executions that the plan holds now")
    changed: list[str] = Field(
        default=[], description="suites whose configuration is not that of the run so far"
    )


class DealtTest(Data):
    """A test that came to this run while it went on."""

    suite: int = Field(description="ordinal of its suite")
    name: str
    target: str


class RunExtended(Payload):
    """More is to be run than was planned until now.

    What was found calls for more repeats, or one more test was dealt to this shard.
    """

    type: Literal["run.extended"] = "run.extended"
    planned: int = Field(description="number of executions that the plan holds now")
    tests: list[DealtTest] = Field(
        default=[], description="tests that are selected from now on, as they were dealt"
    )


class RunInterrupted(Payload):
    """A run was stopped before its plan was complete; it can be resumed."""

    type: Literal["run.interrupted"] = "run.interrupted"
    reason: str


class RunAborted(Payload):
    """A run could not go on (budget used up, fatal error); it can be resumed."""

    type: Literal["run.aborted"] = "run.aborted"
    reason: str


class GateVerdictData(Data):
    """What a gate said when the run ended; `actual` is null where nothing was measured."""

    suite: str
    name: str
    threshold: float
    actual: float | None
    passed: bool
    written: bool
    message: str


class RunFinished(Payload):
    """The plan is complete. Holds the verdict as it was told to the user; seals the stream."""

    type: Literal["run.finished"] = "run.finished"
    passed: bool
    exit_code: int
    gates: list[GateVerdictData]
    tests: dict[str, int] = Field(description="number of tests by status")
    executions: dict[str, int] = Field(description="number of executions by status")
    duration_ms: float
