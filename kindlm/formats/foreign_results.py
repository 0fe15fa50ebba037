"""Results that other programs recorded, as far as they carry the facts; no file says all of them.

A fact that a file does not carry is None, never a guess. Two programs are known:

- EvalView: golden traces (`*.golden.json`) and lists of results. Both hold the trace of one
  execution each: its steps, its final output, what it cost. Of the evaluations only the score and
  the verdict are carried over.
- KindLM: baseline files, `.kindlm/baselines/<suite>-….json`. Of each test and model, they hold the
  share of repeats that passed, one text that stands for all of them, and means; not the repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.transcript import ToolCall, ToolUse
from kindlm.wording import count


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
    """A test with its repeats; without a target, the file does not say what was tested."""

    name: str
    target: str | None
    executions: tuple[ForeignExecution, ...]


@dataclass(frozen=True, slots=True)
class ForeignResults:
    """What a file holds.

    Attributes:
        format: Whose format it is: kindlm or evalview.
        suite: Name of the suite; None if the file does not say.
        at: When it was recorded, UTC, ISO 8601 with microseconds; None if the file does not say.
        tests: The tests, in the order of the file.
        warnings: What could not be carried over.
    """

    format: str
    suite: str | None
    at: str | None
    tests: tuple[ForeignTest, ...]
    warnings: tuple[str, ...] = ()


_MOST = 10**12
"""A larger number could not be exported from the history."""


class ForeignModel(BaseModel):
    """An object of such a file; what it holds besides is passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


Amount = Annotated[float, Field(ge=0, le=_MOST)]
Count = Annotated[int, Field(ge=0, le=_MOST)]
Points = Annotated[float, Field(ge=0, le=100)]


def utc(text: str | None, now: datetime) -> str | None:
    """Return a time as events have it; a time without a zone is local, none is in the future."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return min(moment, now).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if moment.year >= 1970 else None


_GOLDEN_VERSION = 1
_MOST_RESULTS = 10_000


class _Step(ForeignModel):
    tool_name: str
    parameters: dict[str, Any] = Field(default={})
    output: Any = None
    error: str | None = None


class _Tokens(ForeignModel):
    input_tokens: Count | None = None
    output_tokens: Count | None = None


class _Metrics(ForeignModel):
    total_cost: Amount | None = None
    total_latency: Amount | None = None
    # One number would not say what it counts.
    total_tokens: Annotated[
        _Tokens, BeforeValidator(lambda value: value if isinstance(value, dict) else {})
    ] = _Tokens()


class _Trace(ForeignModel):
    steps: list[_Step] = Field(default=[])
    final_output: str = ""
    metrics: _Metrics = _Metrics()
    model_id: str | None = None


class _Metadata(ForeignModel):
    test_name: str = Field(min_length=1)
    blessed_at: str | None = None
    score: Points | None = None
    version: int = _GOLDEN_VERSION
    model_id: str | None = None


class _Golden(ForeignModel):
    metadata: _Metadata
    trace: _Trace


class _Result(ForeignModel):
    test_case: str = Field(min_length=1)
    passed: bool
    score: Points | None = None
    min_score: Points | None = None
    timestamp: str | None = None
    input_query: str | None = None
    adapter_name: str | None = None
    trace: _Trace


def is_evalview(value: Any) -> bool:
    """Tell whether the value of a JSON file is meant to be one of EvalView's."""
    first = value[0] if isinstance(value, list) and value else value
    return (
        isinstance(first, dict)
        and "trace" in first
        and bool({"metadata", "test_case"} & set(first))
    )


def read_evalview(value: Any, now: datetime) -> Result[ForeignResults]:
    """Return what a file of EvalView holds.

    BASELINE_VERSION_MISMATCH for a golden trace of an unknown version, BASELINE_CORRUPT for a
    file that is not what it must be.
    """
    try:
        if isinstance(value, dict) and "metadata" in value:
            golden = _Golden.model_validate(value)
            if golden.metadata.version != _GOLDEN_VERSION:
                return Err(_other_version("golden trace", golden.metadata.version, _GOLDEN_VERSION))
            return Ok(_of_golden(golden, now))
        listed = value if isinstance(value, list) else [value]
        results = [_Result.model_validate(item) for item in listed]
    except ValidationError as error:
        return Err(_corrupt("file of EvalView", _first_fault(error)))
    if len(results) > _MOST_RESULTS:
        return Err(_corrupt("file of EvalView", f"it holds more than {_MOST_RESULTS:,} results"))
    return Ok(_of_results(results, now))


def _of_golden(golden: _Golden, now: datetime) -> ForeignResults:
    metadata = golden.metadata
    # What was made the golden trace is what is wanted, whatever its score.
    execution = _execution(golden.trace, passed=True, score=metadata.score)
    test = ForeignTest(metadata.test_name, metadata.model_id or golden.trace.model_id, (execution,))
    return ForeignResults("evalview", None, utc(metadata.blessed_at, now), (test,))


def _of_results(results: list[_Result], now: datetime) -> ForeignResults:
    """Put the results of one test together: they are its repeats."""
    tests: dict[tuple[str, str | None], list[ForeignExecution]] = {}
    for result in results:
        key = (result.test_case, result.trace.model_id or result.adapter_name)
        tests.setdefault(key, []).append(
            _execution(
                result.trace,
                passed=result.passed,
                score=result.score,
                min_score=result.min_score,
                query=result.input_query,
            )
        )
    times = [at for result in results if (at := utc(result.timestamp, now))]
    return ForeignResults(
        "evalview",
        None,
        min(times, default=None),
        tuple(
            ForeignTest(name, target, tuple(executions))
            for (name, target), executions in tests.items()
        ),
    )


def _execution(
    trace: _Trace,
    *,
    passed: bool,
    score: float | None,
    min_score: float | None = None,
    query: str | None = None,
) -> ForeignExecution:
    tokens = trace.metrics.total_tokens
    return ForeignExecution(
        passed,
        output=trace.final_output,
        query=query,
        calls=tuple(
            ToolUse(
                ToolCall(f"imported-{index}", step.tool_name, step.parameters),
                step.output if step.error is None else {"error": step.error},
            )
            for index, step in enumerate(trace.steps)
        ),
        score=_of_hundred(score),
        threshold=_of_hundred(min_score),
        latency_ms=trace.metrics.total_latency,
        cost_usd=trace.metrics.total_cost,
        input_tokens=tokens.input_tokens,
        output_tokens=tokens.output_tokens,
        model=trace.model_id,
    )


def _of_hundred(points: float | None) -> float | None:
    """Return points of a hundred as a share."""
    return None if points is None else points / 100


_BASELINE_VERSION = "1"
_MOST_REPEATS = 1_000
_LONGEST_NAME = 10_000
_ROUNDING = 0.001
_KEYS = {"suiteName", "results", "latestFile"}


class _Entry(ForeignModel):
    pass_rate: float | None = Field(default=None, ge=0, le=1, alias="passRate")
    output: str | None = Field(default=None, alias="outputText")
    failure_codes: list[str] = Field(default=[], alias="failureCodes")
    latency_ms: Amount | None = Field(default=None, alias="latencyAvgMs")
    cost_usd: Amount | None = Field(default=None, alias="costUsd")
    repeats: int | None = Field(default=None, ge=0, le=_MOST_REPEATS, alias="runCount")


class _Baseline(ForeignModel):
    # A limit makes the model look at the characters, and refuse half of a surrogate pair.
    suite: str = Field(alias="suiteName", max_length=_LONGEST_NAME)
    created_at: str | None = Field(default=None, alias="createdAt")
    results: dict[Annotated[str, Field(max_length=_LONGEST_NAME)], _Entry]


def is_baseline(value: Any) -> bool:
    """Tell whether the value of a JSON file is meant to be such a baseline."""
    return isinstance(value, dict) and not _KEYS.isdisjoint(value)


def read_baseline(value: dict[str, Any], now: datetime) -> Result[ForeignResults]:
    """Return what a baseline file holds.

    BASELINE_VERSION_MISMATCH for a version that is not known, BASELINE_CORRUPT for a file that is
    not what it must be, such as one that only points to another file.
    """
    version = value.get("version")
    if version is not None and str(version) != _BASELINE_VERSION:
        return Err(_other_version("baseline file", version, _BASELINE_VERSION))
    try:
        baseline = _Baseline.model_validate(value)
    except ValidationError as error:
        return Err(_corrupt("baseline file", _first_fault(error)))
    if version is None or not baseline.suite:
        return Err(_corrupt("baseline file", "it names no version or no suite"))
    tests = []
    warnings: list[str] = []
    for key, entry in baseline.results.items():
        name, separator, target = key.rpartition("::")
        if not (separator and name and target):
            return Err(
                _corrupt("baseline file", f"{key!r} is not a test and a model, as in test::model")
            )
        tests.append(ForeignTest(name, target, tuple(_executions(key, entry, warnings))))
    at = utc(baseline.created_at, now)
    return Ok(ForeignResults("kindlm", baseline.suite, at, tuple(tests), tuple(warnings)))


def _executions(key: str, entry: _Entry, warnings: list[str]) -> Iterator[ForeignExecution]:
    """Yield the repeats; the text is that of the first that passed, or of the first of all."""
    repeats = entry.repeats or 1
    passed: int | None = None
    if entry.pass_rate is None:
        warnings.append(f"{key}: the file has no result for it; kindlm counts it as skipped.")
    else:
        passed = round(entry.pass_rate * repeats)
        if abs(passed / repeats - entry.pass_rate) > _ROUNDING:
            passed = int(entry.pass_rate * repeats)
            warnings.append(
                f"{key}: a share of {entry.pass_rate:g} of {count(repeats, 'repeat')} is no whole"
                f" number: {passed} count as passed."
            )
    for repeat in range(repeats):
        good = None if passed is None else repeat < passed
        yield ForeignExecution(
            good,
            output=entry.output if repeat == 0 else None,
            failures=tuple(entry.failure_codes) if good is False else (),
            latency_ms=entry.latency_ms,
            cost_usd=None if entry.cost_usd is None else entry.cost_usd / repeats,
        )


def _first_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


def _corrupt(what: str, why: str) -> KindlmError:
    hint = "Save it again with the program that wrote it"
    return KindlmError(
        ErrorCode.BASELINE_CORRUPT,
        f"The {what} cannot be read: {why}.",
        f"{hint}, or choose a recorded run: kindlm baseline set RUN"
        if what == "baseline file"
        else f"{hint}.",
    )


def _other_version(what: str, version: object, known: object) -> KindlmError:
    return KindlmError(
        ErrorCode.BASELINE_VERSION_MISMATCH,
        f"The {what} has version {version!r}; this kindlm knows version {known!r}.",
        "Update kindlm, or choose a recorded run: kindlm baseline set RUN",
    )
