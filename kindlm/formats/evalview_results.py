"""Files that EvalView recorded: golden traces (`*.golden.json`) and lists of results.

Both hold the trace of one execution each: its steps, its final output, what it cost. Of the
evaluations only the score and the verdict are carried over.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field, ValidationError

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.formats.foreign_results import (
    Amount,
    Count,
    ForeignCall,
    ForeignExecution,
    ForeignModel,
    ForeignResults,
    ForeignTest,
    utc,
)

_VERSION = 1
_MOST_RESULTS = 10_000


class _Step(ForeignModel):
    tool_name: str
    parameters: dict[str, Any] = Field(default={})
    output: Any = None
    error: str | None = None


class _Tokens(ForeignModel):
    input_tokens: Count = None
    output_tokens: Count = None


class _Metrics(ForeignModel):
    total_cost: Amount = None
    total_latency: Amount = None
    total_tokens: Any = None


class _Trace(ForeignModel):
    steps: list[_Step] = Field(default=[])
    final_output: str = ""
    metrics: _Metrics = _Metrics()
    model_id: str | None = None


class _Metadata(ForeignModel):
    test_name: str = Field(min_length=1)
    blessed_at: str | None = None
    score: Amount = None
    version: int = _VERSION
    model_id: str | None = None


class _Golden(ForeignModel):
    metadata: _Metadata
    trace: _Trace


class _Result(ForeignModel):
    test_case: str = Field(min_length=1)
    passed: bool
    score: Amount = None
    min_score: Amount = None
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
            if golden.metadata.version != _VERSION:
                return Err(_other_version(golden.metadata.version))
            return Ok(_of_golden(golden, now))
        results = [_Result.model_validate(item) for item in _listed(value)]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return Err(_corrupt(f"{place}: {first['msg']}"))
    if len(results) > _MOST_RESULTS:
        return Err(_corrupt(f"it holds more than {_MOST_RESULTS:,} results"))
    return Ok(_of_results(results, now))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


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
    tokens = _Tokens()
    if isinstance(trace.metrics.total_tokens, dict):
        tokens = _Tokens.model_validate(trace.metrics.total_tokens)
    return ForeignExecution(
        passed,
        output=trace.final_output,
        query=query,
        calls=tuple(
            ForeignCall(
                step.tool_name,
                step.parameters,
                step.output if step.error is None else {"error": step.error},
            )
            for step in trace.steps
        ),
        score=_share(score),
        threshold=_share(min_score),
        latency_ms=trace.metrics.total_latency,
        cost_usd=trace.metrics.total_cost,
        input_tokens=tokens.input_tokens,
        output_tokens=tokens.output_tokens,
        model=trace.model_id,
    )


def _share(points: float | None) -> float | None:
    """Return points of a hundred as a share; None for what is no score."""
    return None if points is None or points > 100 else points / 100


def _corrupt(why: str) -> KindlmError:
    return KindlmError(
        ErrorCode.BASELINE_CORRUPT,
        f"The file of EvalView can not be read: {why}.",
        "Save it anew with the program that wrote it.",
    )


def _other_version(version: int) -> KindlmError:
    return KindlmError(
        ErrorCode.BASELINE_VERSION_MISMATCH,
        f"The golden trace has version {version}; this kindlm knows version {_VERSION}.",
        "Update kindlm, or choose a recorded run: kindlm baseline set RUN",
    )
