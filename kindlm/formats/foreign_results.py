"""Reads results that other programs recorded. A fact that a format does not have is None.

- EvalView: golden traces (`*.golden.json`) and lists of results. Each result has the trace of one
  execution: its steps, its final output, its cost. Of its evaluations, only the score and the
  verdict are read.
- KindLM: baseline files, `.kindlm/baselines/<suite>-….json`. For each test and model, they have the
  share of repeats that passed, one output and mean values, but no single repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AliasPath, BaseModel, ConfigDict, Field, ValidationError

from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.transcript import ToolCall, ToolUse


@dataclass(frozen=True, slots=True)
class ForeignExecution:
    """One repeat of a test. `passed` is None if the file does not say; `score` is in [0, 1]."""

    passed: bool | None
    output: str | None = None
    query: str | None = None
    calls: tuple[ToolUse, ...] = ()
    failures: tuple[str, ...] = ()
    score: float | None = None
    threshold: float | None = None
    latency_ms: float | None = None
    cost_usd: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignTest:
    """A test with its repeats; the target is None if the file does not say it."""

    name: str
    target: str | None
    executions: tuple[ForeignExecution, ...]


@dataclass(frozen=True, slots=True)
class ForeignResults:
    """The results in a file of the program `format`: kindlm or evalview.

    `at` is the time of the recording: UTC, ISO 8601 with microseconds. `warnings` are what the
    results lack.
    """

    format: str
    suite: str | None
    at: str | None
    tests: tuple[ForeignTest, ...]
    warnings: tuple[str, ...] = ()


_MOST = 10**12
"""The history cannot export larger numbers."""

_GOLDEN = "golden trace"
_RESULTS = "file of EvalView"
_BASELINE = "baseline file"
_VERSION = "1"


def read_foreign(value: Any) -> Result[ForeignResults] | None:
    """Return the results in the value of a JSON file; None if it is in no known format.

    Errors: BASELINE_VERSION_MISMATCH for an unknown version; BASELINE_CORRUPT for a file that does
    not fit its format, such as one that only points to another file.
    """
    listed = value if isinstance(value, list) else [value]
    first = listed[0] if listed else None
    if not isinstance(first, dict):
        return None
    is_evalview = "trace" in first and not first.keys().isdisjoint({"metadata", "test_case"})
    if not is_evalview and (first is not value or _KEYS.isdisjoint(first)):
        return None
    try:
        if not is_evalview:
            return _of_baseline(first)
        if first is value and "metadata" in first:
            return _of_golden(_Golden.model_validate(first))
        return _of_results([_Result.model_validate(item) for item in listed])
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        return _corrupt(_RESULTS if is_evalview else _BASELINE, f"{place}: {fault['msg']}")


class ForeignModel(BaseModel):
    """An object of such a file; unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


def _utc(text: str) -> str | None:
    """Return a time in the form of events, not later than now; one without a zone is local."""
    try:
        moment = min(datetime.fromisoformat(text).astimezone(UTC), datetime.now(UTC))
    except (ValueError, OverflowError):
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if moment.year >= 1970 else None


Amount = Annotated[float, Field(ge=0, le=_MOST)]
Count = Annotated[int, Field(ge=0, le=_MOST)]
Points = Annotated[float, Field(ge=0, le=100), AfterValidator(lambda points: points / 100)]
Moment = Annotated[str, AfterValidator(_utc)] | None

_MOST_RESULTS = 10_000


class _Step(ForeignModel):
    tool_name: str
    parameters: dict[str, Any] = Field(default={})
    output: Any = None
    error: str | None = None


class _Trace(ForeignModel):
    steps: list[_Step] = Field(default=[])
    final_output: str = ""
    cost_usd: Amount | None = Field(None, validation_alias=AliasPath("metrics", "total_cost"))
    latency_ms: Amount | None = Field(None, validation_alias=AliasPath("metrics", "total_latency"))
    # A single number for all tokens is not read.
    input_tokens: Count | None = Field(
        None, validation_alias=AliasPath("metrics", "total_tokens", "input_tokens")
    )
    output_tokens: Count | None = Field(
        None, validation_alias=AliasPath("metrics", "total_tokens", "output_tokens")
    )
    model_id: str | None = None


class _Metadata(ForeignModel):
    test_name: str = Field(min_length=1)
    blessed_at: Moment = None
    score: Points | None = None
    version: int = 1
    model_id: str | None = None


class _Golden(ForeignModel):
    metadata: _Metadata
    trace: _Trace


class _Result(ForeignModel):
    test_case: str = Field(min_length=1)
    passed: bool
    score: Points | None = None
    min_score: Points | None = None
    timestamp: Moment = None
    input_query: str | None = None
    adapter_name: str | None = None
    trace: _Trace


def _of_golden(golden: _Golden) -> Result[ForeignResults]:
    metadata = golden.metadata
    if str(metadata.version) != _VERSION:
        return _other_version(_GOLDEN, metadata.version)
    # A golden trace counts as passed, whatever its score.
    execution = _execution(golden.trace, passed=True, score=metadata.score)
    test = ForeignTest(metadata.test_name, metadata.model_id or golden.trace.model_id, (execution,))
    return Ok(ForeignResults("evalview", None, metadata.blessed_at, (test,)))


def _of_results(results: list[_Result]) -> Result[ForeignResults]:
    """Group the results by test: those of one test are its repeats."""
    if len(results) > _MOST_RESULTS:
        return _corrupt(_RESULTS, f"it holds more than {_MOST_RESULTS:,} results")
    tests: dict[tuple[str, str | None], list[ForeignExecution]] = {}
    for each in results:
        key = (each.test_case, each.trace.model_id or each.adapter_name)
        more = {"score": each.score, "threshold": each.min_score, "query": each.input_query}
        tests.setdefault(key, []).append(_execution(each.trace, passed=each.passed, **more))
    at = min((each.timestamp for each in results if each.timestamp), default=None)
    found = (ForeignTest(*key, tuple(executions)) for key, executions in tests.items())
    return Ok(ForeignResults("evalview", None, at, tuple(found)))


def _execution(trace: _Trace, *, passed: bool, **more: Any) -> ForeignExecution:
    calls = (
        ToolUse(
            ToolCall(f"imported-{index}", step.tool_name, step.parameters),
            step.output if step.error is None else {"error": step.error},
        )
        for index, step in enumerate(trace.steps)
    )
    of_trace = trace.model_dump(exclude={"steps", "final_output", "model_id"})
    output, model = trace.final_output, trace.model_id
    return ForeignExecution(
        passed, output=output, calls=tuple(calls), model=model, **of_trace, **more
    )


_MOST_REPEATS = 1_000
_LONGEST_NAME = 10_000
_ROUNDING = 0.0006
"""Makes up for shares that were rounded to three digits; it never makes a repeat more."""
_KEYS = {"suiteName", "results", "latestFile"}


class _Entry(ForeignModel):
    pass_rate: float | None = Field(default=None, ge=0, le=1, alias="passRate")
    output: str | None = Field(default=None, alias="outputText")
    failure_codes: list[str] = Field(default=[], alias="failureCodes")
    latency_ms: Amount | None = Field(default=None, alias="latencyAvgMs")
    cost_usd: Amount | None = Field(default=None, alias="costUsd")
    repeats: int | None = Field(default=None, ge=0, le=_MOST_REPEATS, alias="runCount")


class _Baseline(ForeignModel):
    # A length limit makes pydantic decode the text, and refuse half of a surrogate pair.
    suite: str = Field(alias="suiteName", max_length=_LONGEST_NAME)
    created_at: Moment = Field(default=None, alias="createdAt")
    results: dict[Annotated[str, Field(max_length=_LONGEST_NAME)], _Entry]


def _of_baseline(value: dict[str, Any]) -> Result[ForeignResults]:
    version = value.get("version")
    if version is not None and str(version) != _VERSION:
        return _other_version(_BASELINE, version)
    baseline = _Baseline.model_validate(value)
    if version is None or not baseline.suite:
        return _corrupt(_BASELINE, "it names no version or no suite")
    tests = []
    warnings: list[str] = []
    for key, entry in baseline.results.items():
        name, separator, target = key.rpartition("::")
        if not (separator and name and target):
            return _corrupt(_BASELINE, f"{key!r} is not a test and a model, as in test::model")
        tests.append(ForeignTest(name, target, tuple(_executions(key, entry, warnings))))
    suite, at = baseline.suite, baseline.created_at
    return Ok(ForeignResults("kindlm", suite, at, tuple(tests), tuple(warnings)))


def _executions(key: str, entry: _Entry, warnings: list[str]) -> Iterator[ForeignExecution]:
    """Yield the repeats, those that passed first. The first one gets the output."""
    repeats = entry.repeats or 1
    passed: int | None = None
    if entry.pass_rate is None:
        warnings.append(f"{key}: the file has no result for it; kindlm counts it as skipped.")
    else:
        passed = min(repeats, int(repeats * (entry.pass_rate + _ROUNDING)))
    for repeat in range(repeats):
        good = None if passed is None else repeat < passed
        yield ForeignExecution(
            good,
            output=entry.output if repeat == 0 else None,
            failures=tuple(entry.failure_codes) if good is False else (),
            latency_ms=entry.latency_ms,
            cost_usd=None if entry.cost_usd is None else entry.cost_usd / repeats,
        )


def _corrupt(what: str, why: str) -> Err:
    hint = "Save it again with the program that wrote it"
    message = f"The {what} cannot be read: {why}."
    return Err(KindlmError(ErrorCode.BASELINE_CORRUPT, message, hint))


def _other_version(what: str, version: object) -> Err:
    message = f"The {what} has version {version!r}; this kindlm knows version {_VERSION}."
    hint = "Update kindlm, or choose a recorded run: kindlm baseline set RUN"
    return Err(KindlmError(ErrorCode.BASELINE_VERSION_MISMATCH, message, hint))
