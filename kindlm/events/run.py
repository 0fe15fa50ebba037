"""Events about runs and their suites, in journals, and in runs that write tests.

`SEALED_HEADS` and `PURGES` tell `verify` and `merge` how to read the events of journals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

from kindlm.events.codec import OfAttempt, Payload, Stored
from kindlm.outcome import Gate, GateResult, ScoreLimits
from kindlm.stored_form import Authored, Form, Note
from kindlm.suite import ListedTools
from kindlm_store import HeadOf, RecordedEvent
from kindlm_store.erasing import Erasures


class GitState(Stored):
    """The tested commit, and whether the working tree had uncommitted changes."""

    commit: str
    branch: str | None = None
    dirty: bool = False


class RunOptions(Stored):
    """The command-line options of a run; an absent key is left to the suites."""

    paths: Sequence[str] = ()
    suite: str | None = None
    tests: Sequence[str] = ()
    tags: Sequence[str] = ()
    models: Sequence[str] = ()
    keywords: str | None = None
    repeat: int | None = None
    gate: str | None = None
    concurrency: int | None = None
    timeout_ms: int | None = None
    failed: bool = False
    fail_fast: bool = False
    shard: str | None = None
    force_resume: Annotated[bool, "its group goes on with a changed configuration"] = False
    max_cost_usd: float | None = None
    max_rpm: float | None = None
    cache: bool = False
    compat: Annotated[str | None, "the program whose rules decide on its tests"] = None
    runner: Annotated[Literal["pytest"] | None, "what started the tests, if not kindlm"] = None


class RunStarted(Payload, type="run.started"):
    """A run began. This is the first event of its stream."""

    project: str
    mode: Literal["live", "rescored", "replayed", "settled", "generation", "imported"] = "live"
    planned: Annotated[int, "number of executions in the plan"]
    label: str | None = None
    group: Annotated[str | None, "the name that the shards of a run share"] = None
    shard: Annotated[str | None, "the shard, as `i/n`"] = None
    git: GitState | None = None
    ci: Annotated[str | None, "the CI service that ran it"] = None
    versions: Annotated[Mapping[str, str], "kindlm, Python and the provider SDKs"]
    options: Annotated[RunOptions | None, "the command-line options"] = None
    source_run: Annotated[str | None, "the run this one was derived from"] = None
    imported_from: Annotated[str | None, "format and digest of the imported file"] = None


class RunResumed(Payload, type="run.resumed"):
    """An interrupted run continues in a new process."""

    by: Annotated[str, "host and process id"]
    planned: Annotated[int, "number of executions in the plan from now on"]
    changed: Annotated[Sequence[str], "suites whose configuration changed since then"] = ()


class DealtTest(Stored):
    """A test that was added to a run in progress."""

    suite: Annotated[int, "ordinal of its suite"]
    name: str
    target: str


class RunExtended(Payload, type="run.extended"):
    """The plan grew: results need more repeats, or this shard got further tests."""

    planned: Annotated[int, "number of executions in the plan from now on"]
    tests: Annotated[Sequence[DealtTest], "selected from now on, in this order"] = ()


class RunInterrupted(Payload, type="run.interrupted", schema=2):
    """A run was stopped before its plan was complete; it can be resumed."""

    reason: Note


class RunAborted(Payload, type="run.aborted", schema=2):
    """A run could not continue (budget used up, fatal error); it can be resumed."""

    reason: Note


class GateVerdict(Stored):
    """The result of a gate at the end of a run. `actual` is null if nothing was measured."""

    suite: str
    result: Annotated[GateResult, Form.FLAT]


class RunFinished(Payload, type="run.finished"):
    """The plan is complete; this event holds the verdict, and seals the stream."""

    passed: bool
    exit_code: int
    gates: Sequence[GateVerdict]
    tests: Annotated[Mapping[str, int], "number of tests by status"]
    executions: Annotated[Mapping[str, int], "number of executions by status"]
    duration_ms: Annotated[float, "duration of the session that finished the run"]


class PlannedTest(Stored):
    """The identity of a test on a target, and whether this run selected it."""

    name: str
    target: str
    tags: Sequence[str] = ()
    selected: bool = True
    skip: bool = False
    repeat: int = 1
    pass_rate: float = 1.0
    line: int | None = None
    file: Annotated[str | None, "of `line`, if not the `path` of the suite"] = None
    score_limits: ScoreLimits | None = None
    confidence: Annotated[float | None, "of its intervals; 0.95 if absent"] = None


class CassetteRun(Stored):
    """The run that cassettes of a suite are from; `name` is what the suite calls it."""

    name: str
    run: str


class SuiteStarted(Payload, type="suite.started"):
    """A suite of the run began. Holds its resolved configuration."""

    suite: str
    ordinal: Annotated[int, "position of the suite in the run, from 0"]
    project: str
    front_end: Annotated[str, "its file format: kindlm, evalview, scenario"]
    path: str
    config_hash: str
    config: Authored
    gates: Annotated[Sequence[Gate], "gates in force, after command-line overrides"]
    baseline_run: str | None = None
    tags: Sequence[str] = ()
    tests: Sequence[PlannedTest]
    unread: Annotated[Sequence[str], "its files that could not be loaded"] = ()
    servers: Annotated[Sequence[ListedTools], "its MCP servers, with their tools"] = ()
    cassettes: Sequence[CassetteRun] = ()


class SuiteSkipped(Payload, type="suite.skipped"):
    """A suite could not be loaded. kindlm called nothing for it; other suites ran."""

    suite: str
    ordinal: int
    path: str
    tests: Annotated[int, "number of its tests, if kindlm could count them"]
    error_code: str
    error_number: int
    message: Authored
    hint: Authored | None = None
    line: int | None = None
    column: int | None = None


class RunLabelled(Payload, type="run.labelled"):
    """A run got a label, or lost it (`label` is null). Journal."""

    run: str
    label: str | None = None
    by: str


class ReviewRecorded(Payload, type="review.recorded"):
    """A person reviewed an execution. The last review of a person counts. Journal.

    For a conversation that later runs check again, this is the execution that held it.
    """

    run: str
    execution: Annotated[int, "its number in the run, from 1"]
    passed: bool
    note: Annotated[Authored | None, "the reason"] = None
    by: str


class RunSealed(Payload, type="run.sealed"):
    """A run's stream was sealed; `head` is its last hash. Journal."""

    run: str
    head: str | HeadOf


class BaselineSet(Payload, type="baseline.set"):
    """A run, or a group of shards, was made the baseline of a suite. Journal."""

    project: str
    suite: str
    run: Annotated[str, "the run; of a group, that of the first shard"]
    runs: Annotated[Sequence[str] | None, "of a group, the runs of all shards"] = None
    label: str | None = None
    by: str


class BaselineRemoved(Payload, type="baseline.removed"):
    """A baseline of a suite was removed. The run stays. Journal."""

    project: str
    suite: str
    label: str | None = None
    by: str


class ContentsPurged(Payload, type="contents.purged"):
    """Texts were erased permanently. Journal.

    The pattern is not recorded, since it may contain what was erased. A purge of many texts is
    several events.
    """

    texts: Annotated[int, "number of erased texts"]
    refs: Annotated[Sequence[str] | None, "their references; null in older events"] = None
    runs: Annotated[Sequence[str], "only texts of these runs; if absent, of all runs"] = ()
    matching: Annotated[bool, "only texts that matched a pattern"] = False
    by: str


class StreamsPulled(Payload, type="streams.pulled"):
    """Events came from a history server. Journal.

    They may refer to any text of this history, so their content is not pushed by settings.
    """

    streams: Annotated[Mapping[str, int], "`run/ID` or `journal/ID`, and its last event that came"]


class AgentProfiled(OfAttempt, type="agent.profiled"):
    """A model described an agent's purpose, from its description and its answers."""

    profile: Annotated[Authored, "purpose, tools, constraints and tone, as JSON"]


class ScenarioGenerated(Payload, type="scenario.generated"):
    """A generated test was compiled, collected and written to a file."""

    file: Annotated[str, "its path, in the form of suite paths"]
    category: str
    title: Authored
    sha256: Annotated[str, "digest of the file"]


SEALED_HEADS: Mapping[str, Callable[[RecordedEvent], Mapping[str, str]]] = {
    "run.sealed": lambda event: {f"run/{event.data['run']}": event.data["head"]}
}
"""By event type, how to read the heads of streams from an event, for `verify_file`."""


PURGES: Erasures = {"contents.purged": lambda event: event.data.get("refs")}
"""By event type, how to read the erased texts from an event, for `verify_file` and `Merge`."""
