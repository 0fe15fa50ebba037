"""From the `expect` section of a test to the expectations that checks know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from kindlm.checks.base import Check
from kindlm.checks.calls import CallCount
from kindlm.checks.drift import Drift
from kindlm.checks.judge import Judge
from kindlm.checks.limits import Cost, Latency
from kindlm.checks.of_packages import CheckOfPackage
from kindlm.checks.output import Contains, KeywordsAllow, KeywordsDeny, MaxLength, NotContains
from kindlm.checks.output_json import Schema
from kindlm.checks.pii import NamedPattern, Pii
from kindlm.checks.tool_calls import ToolCalled, ToolNotCalled
from kindlm.checks.trajectory import Trajectory, TrajectoryCall, TrajectoryMode
from kindlm.config.expect_schema import (
    CallCountConfig,
    ExpectConfig,
    GuardrailsConfig,
    OutputConfig,
    ToolCallConfig,
    TrajectoryConfig,
)
from kindlm.config.files import ReferencedFiles
from kindlm.config.places import Path
from kindlm.config.schema import TestConfig
from kindlm.errors import Ok, SourceLocation
from kindlm.suite import Expectation
from kindlm.values import plain_number

MAX_LABEL = 200

Where = Callable[[Path], SourceLocation]


Placed = tuple[Path, Expectation]
"""An expectation, and where it is written."""


def compile_expectations(
    test: TestConfig, path: Path, files: ReferencedFiles, where: Where
) -> tuple[Expectation, ...]:
    """Return one expectation for each thing that a test expects, in the order of the schema.

    What the test itself expects looks at the whole conversation; what a message of the
    conversation expects, at the turns up to the answer to it: the first message is turn 1.
    Labels are unique for a kind: results are told apart by them.
    """
    return tuple(
        replace(expectation, where=where((*path, *place)))
        for place, expectation in unique_labels(_of_test(test, files))
    )


def _of_test(test: TestConfig, files: ReferencedFiles) -> Iterator[Placed]:
    for place, expectation in _all(test.expect, files):
        yield ("expect", *place), expectation
    for index, follow_up in enumerate(test.conversation):
        turn = index + 2
        for place, expectation in _all(follow_up.expect, files):
            label = f"turn {turn}: {expectation.label}"
            yield (
                ("conversation", index, "expect", *place),
                replace(expectation, label=label, turn=turn),
            )


def _all(expect: ExpectConfig, files: ReferencedFiles) -> Iterator[Placed]:
    if expect.output is not None:
        yield from _output(expect.output, files)
    if expect.guardrails is not None:
        yield from _guardrails(expect.guardrails)
    for index, call in enumerate(expect.tool_calls):
        yield ("toolCalls", index), _tool_call(call, files)
    for index, criterion in enumerate(expect.judge):
        check: Check = Judge(
            criterion.criteria,
            criterion.min_score,
            criterion.model,
            criterion.rubric,
            criterion.passes,
        )
        yield ("judge", index), check.expected(criterion.criteria)
    if expect.baseline is not None and expect.baseline.drift is not None:
        drift = expect.baseline.drift
        check = Drift(drift.max_score, drift.method, drift.fields)
        yield ("baseline", "drift"), check.expected(drift.method)
    if expect.trajectory is not None:
        yield ("trajectory",), _trajectory(expect.trajectory)
    if expect.latency is not None:
        limit = expect.latency.max_ms
        yield ("latency",), Latency(limit).expected(f"≤ {plain_number(limit)} ms")
    if expect.cost is not None:
        limit = expect.cost.max_usd
        yield ("cost",), Cost(limit).expected(f"≤ ${plain_number(limit)}")
    for name, checks in expect.added.items():
        placed = enumerate(checks) if isinstance(checks, list) else [(None, checks)]
        for number, options in placed:
            place = (name,) if number is None else (name, number)
            yield place, Expectation(name, name, CheckOfPackage(name, options))


def _output(output: OutputConfig, files: ReferencedFiles) -> Iterator[Placed]:
    if output.format == "json":
        file = output.schema_file
        check = Schema(_schema(file, files), file)
        yield ("output", "schemaFile"), check.expected(file or "json")
    for index, text in enumerate(output.contains):
        yield ("output", "contains", index), Contains(text).expected(text)
    for index, text in enumerate(output.not_contains):
        yield ("output", "notContains", index), NotContains(text).expected(text)
    if output.max_length is not None:
        limit = output.max_length
        yield ("output", "maxLength"), MaxLength(limit).expected(f"≤ {limit}")


def _guardrails(guardrails: GuardrailsConfig) -> Iterator[Placed]:
    pii, keywords = guardrails.pii, guardrails.keywords
    if pii is not None and pii.enabled:
        custom = [NamedPattern(item.name, item.pattern) for item in pii.custom_patterns]
        yield ("guardrails", "pii"), Pii(pii.deny_patterns, custom).expected("pii")
    if keywords is None:
        return
    for index, word in enumerate(keywords.deny):
        yield ("guardrails", "keywords", "deny", index), KeywordsDeny(word).expected(word)
    if allowed := keywords.allow:
        place = ("guardrails", "keywords", "allow")
        yield place, KeywordsAllow(allowed).expected(", ".join(allowed))


def _tool_call(call: ToolCallConfig, files: ReferencedFiles) -> Expectation:
    if call.should_not_call:
        return ToolNotCalled(call.tool, call.args_match).expected(call.tool)
    return ToolCalled(
        call.tool,
        call.args_match,
        call.args_schema,
        call.response_contains,
        call.order,
        call.before,
        call.after,
        _count(call.count),
        _schema(call.args_schema, files),
    ).expected(call.tool)


def _trajectory(trajectory: TrajectoryConfig) -> Expectation:
    calls = [
        TrajectoryCall(call.tool, call.args_match, _count(call.count)) for call in trajectory.calls
    ]
    return Trajectory(TrajectoryMode(trajectory.mode), calls).expected(trajectory.mode)


def _count(written: CallCountConfig | None) -> CallCount | None:
    return None if written is None else CallCount(written.min, written.max)


def _schema(file: str | None, files: ReferencedFiles) -> Any:
    if file is None:
        return None
    schema = files.schema(file)
    assert isinstance(schema, Ok), "references are checked before a suite is compiled"
    return schema.value


def unique_labels(placed: Iterable[Placed]) -> Iterator[Placed]:
    """Yield the expectations with labels that are unique for a kind, and not too long."""
    seen: Counter[tuple[str, str]] = Counter()
    for place, expectation in placed:
        label = expectation.label
        if len(label) > MAX_LABEL:
            label = label[: MAX_LABEL - 1] + "…"
        seen[expectation.kind, label] += 1
        number = seen[expectation.kind, label]
        unique = label if number == 1 else f"{label} #{number}"
        yield place, replace(expectation, label=unique)
