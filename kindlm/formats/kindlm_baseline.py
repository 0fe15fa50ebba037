"""Baseline files of KindLM: `.kindlm/baselines/<suite>-….json`.

Such a file holds, of each test and model, the share of repeats that passed, one text that stands
for all of them, and means; not the repeats themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, ValidationError

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.formats.foreign_results import (
    Amount,
    Count,
    ForeignExecution,
    ForeignModel,
    ForeignResults,
    ForeignTest,
    Share,
    utc,
)
from kindlm.wording import count

_VERSION = "1"
_MOST_REPEATS = 1_000
_LONGEST_NAME = 10_000
_ROUNDING = 0.001
_KEYS = {"suiteName", "results", "latestFile"}


class _Entry(ForeignModel):
    pass_rate: Share = Field(default=None, alias="passRate")
    output: str | None = Field(default=None, alias="outputText")
    failure_codes: list[str] = Field(default=[], alias="failureCodes")
    latency_ms: Amount = Field(default=None, alias="latencyAvgMs")
    cost_usd: Amount = Field(default=None, alias="costUsd")
    repeats: Count = Field(default=None, alias="runCount")


class _Baseline(ForeignModel):
    # A limit makes the model look at the characters: half of a surrogate pair is none.
    suite: str = Field(alias="suiteName", max_length=_LONGEST_NAME)
    created_at: str | None = Field(default=None, alias="createdAt")
    results: dict[Annotated[str, Field(max_length=_LONGEST_NAME)], _Entry]


def is_baseline(value: Any) -> bool:
    """Tell whether the value of a JSON file is meant to be such a baseline."""
    return isinstance(value, dict) and not _KEYS.isdisjoint(value)


def read_baseline(value: dict[str, Any], now: datetime) -> Result[ForeignResults]:
    """Return what a baseline file holds.

    BASELINE_VERSION_MISMATCH for a version that is not known, BASELINE_CORRUPT for a file that is
    not what it must be; one that only points to another file is none.
    """
    version = value.get("version")
    if version is not None and str(version) != _VERSION:
        return Err(_other_version(version))
    try:
        baseline = _Baseline.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return Err(_corrupt(f"{place}: {first['msg']}"))
    if version is None or not baseline.suite:
        return Err(_corrupt("it names no version or no suite"))
    tests = []
    warnings: list[str] = []
    for key, entry in baseline.results.items():
        name, separator, target = key.rpartition("::")
        if not (separator and name and target):
            return Err(_corrupt(f"{key!r} is not a test and a model, as in test::model"))
        tests.append(ForeignTest(name, target, tuple(_executions(key, entry, warnings))))
    at = utc(baseline.created_at, now)
    return Ok(ForeignResults("kindlm", baseline.suite, at, tuple(tests), tuple(warnings)))


def _executions(key: str, entry: _Entry, warnings: list[str]) -> Iterator[ForeignExecution]:
    """Yield the repeats; the text is that of the first that passed, or of the first of all."""
    repeats = min(max(entry.repeats or 1, 1), _MOST_REPEATS)
    passed: int | None = None
    if entry.pass_rate is None:
        warnings.append(f"{key}: the file does not say whether it passed; it counts as skipped.")
    else:
        passed = round(entry.pass_rate * repeats)
        if abs(passed / repeats - entry.pass_rate) > _ROUNDING:
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


def _corrupt(why: str) -> KindlmError:
    return KindlmError(
        ErrorCode.BASELINE_CORRUPT,
        f"The baseline file can not be read: {why}.",
        "Save it anew with the program that wrote it, or choose a recorded run:"
        " kindlm baseline set RUN",
    )


def _other_version(version: object) -> KindlmError:
    return KindlmError(
        ErrorCode.BASELINE_VERSION_MISMATCH,
        f"The baseline file has version {version!r}; this kindlm knows version {_VERSION!r}.",
        "Update kindlm, or choose a recorded run: kindlm baseline set RUN",
    )
