"""From the `expect` section of a test to the expectations that checks know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from kindlm.config.canonical import resolved
from kindlm.config.expect_schema import (
    DriftConfig,
    ExpectConfig,
    GuardrailsConfig,
    OutputConfig,
    ToolCallConfig,
    TrajectoryConfig,
)
from kindlm.config.files import ReferencedFiles
from kindlm.config.places import Path
from kindlm.config.schema import TestConfig
from kindlm.config.values import plain_number
from kindlm.errors import Ok, SourceLocation
from kindlm.suite import Expectation

__all__ = ["Placed", "compile_expectations", "unique_labels"]

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
        params = {
            "criteria": criterion.criteria,
            "minScore": criterion.min_score,
            "model": criterion.model,
            "rubric": criterion.rubric,
            "passes": criterion.passes,
        }
        yield ("judge", index), Expectation("judge", criterion.criteria, params)
    if expect.baseline is not None and expect.baseline.drift is not None:
        yield ("baseline", "drift"), _drift(expect.baseline.drift)
    if expect.trajectory is not None:
        yield ("trajectory",), _trajectory(expect.trajectory)
    if expect.latency is not None:
        limit = expect.latency.max_ms
        params = {"maxMs": limit}
        yield ("latency",), Expectation("latency", f"≤ {plain_number(limit)} ms", params)
    if expect.cost is not None:
        limit = expect.cost.max_usd
        params = {"maxUsd": limit}
        yield ("cost",), Expectation("cost", f"≤ ${plain_number(limit)}", params)
    for name, checks in expect.added.items():
        placed = enumerate(checks) if isinstance(checks, list) else [(None, checks)]
        for number, options in placed:
            place = (name,) if number is None else (name, number)
            yield place, Expectation(name, name, options, of_package=True)


def _output(output: OutputConfig, files: ReferencedFiles) -> Iterator[Placed]:
    if output.format == "json":
        file = output.schema_file
        params = {"schema": _schema(file, files), "schemaFile": file}
        yield ("output", "schemaFile"), Expectation("schema", file or "json", params)
    for index, text in enumerate(output.contains):
        yield ("output", "contains", index), Expectation("contains", text, {"text": text})
    for index, text in enumerate(output.not_contains):
        yield ("output", "notContains", index), Expectation("not_contains", text, {"text": text})
    if output.max_length is not None:
        params = {"max": output.max_length}
        yield ("output", "maxLength"), Expectation("max_length", f"≤ {output.max_length}", params)


def _guardrails(guardrails: GuardrailsConfig) -> Iterator[Placed]:
    pii, keywords = guardrails.pii, guardrails.keywords
    if pii is not None and pii.enabled:
        params: dict[str, Any] = {
            "denyPatterns": list(pii.deny_patterns),
            "customPatterns": [
                {"name": item.name, "pattern": item.pattern} for item in pii.custom_patterns
            ],
        }
        yield ("guardrails", "pii"), Expectation("pii", "pii", params)
    if keywords is None:
        return
    for index, word in enumerate(keywords.deny):
        place: Path = ("guardrails", "keywords", "deny", index)
        yield place, Expectation("keywords_deny", word, {"word": word})
    if keywords.allow:
        params = {"words": list(keywords.allow)}
        place = ("guardrails", "keywords", "allow")
        yield place, Expectation("keywords_allow", ", ".join(keywords.allow), params)


def _tool_call(call: ToolCallConfig, files: ReferencedFiles) -> Expectation:
    params: dict[str, Any] = {"tool": call.tool}
    if call.args_match is not None:
        params["argsMatch"] = call.args_match
    if call.should_not_call:
        return Expectation("tool_not_called", call.tool, params)
    if call.args_schema is not None:
        params["argsSchema"] = _schema(call.args_schema, files)
        params["argsSchemaFile"] = call.args_schema
    if call.order is not None:
        params["order"] = call.order
    if call.response_contains is not None:
        params["responseContains"] = call.response_contains
    if call.before is not None:
        params["before"] = call.before
    if call.after is not None:
        params["after"] = call.after
    if call.count is not None:
        params["count"] = resolved(call.count)
    return Expectation("tool_called", call.tool, params)


def _trajectory(trajectory: TrajectoryConfig) -> Expectation:
    params = {"mode": trajectory.mode, "calls": [resolved(call) for call in trajectory.calls]}
    return Expectation("trajectory", trajectory.mode, params)


def _drift(drift: DriftConfig) -> Expectation:
    params = {"maxScore": drift.max_score, "method": drift.method, "fields": drift.fields}
    return Expectation("drift", drift.method, params)


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
        label = _shortened(expectation.label)
        seen[expectation.kind, label] += 1
        number = seen[expectation.kind, label]
        unique = label if number == 1 else f"{label} #{number}"
        yield place, replace(expectation, label=unique)


def _shortened(label: str) -> str:
    return label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…"
