"""From what an EvalView case declares to expectations, each with an outcome of its own.

What the case expects looks at the whole conversation, what a turn expects at that turn by itself.
The last expectation is the one of the weighted score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kindlm.config.expectations import Placed, unique_labels
from kindlm.config.places import Path
from kindlm.config.values import plain_number
from kindlm.errors import SourceLocation
from kindlm.formats.evalview.categories import tools_of
from kindlm.formats.evalview.expected_schema import (
    ExpectedConfig,
    HallucinationConfig,
    OutputConfig,
    SafetyConfig,
)
from kindlm.formats.evalview.schema import CaseConfig, ChecksConfig
from kindlm.suite import Expectation

__all__ = ["SEQUENCE_MODES", "SEVERITIES", "ScoreRules", "compile_expectations"]

SEQUENCE_MODES = ("subsequence", "exact", "unordered")
"""How a sequence of tools is compared; the first one is the default, also of unknown modes."""

SEVERITIES = ("medium", "low", "high")
"""From how severe on what is harmful fails; the first one stands for unknown ones."""

_JUDGED = frozenset({"hallucination", "safety"})
"""What decides a test in EvalView, of the whole conversation alone."""


@dataclass(frozen=True, slots=True)
class ScoreRules:
    """What decides a case besides itself: the weights, categories of its own, a judge.

    A judge is local if it is a model that runs here.
    """

    weights: Mapping[str, float]
    categories: Mapping[str, Sequence[str]] | None
    has_judge: bool
    has_local_judge: bool = False


def compile_expectations(
    case: CaseConfig,
    rules: ScoreRules,
    where: Callable[[Path], SourceLocation],
    *,
    compat: bool = False,
) -> tuple[Expectation, ...]:
    """Return one expectation for each thing that a case declares, the weighted score at last.

    With `compat`, all of them only advise, what EvalView checks by default is among them, and the
    last one is the verdict of EvalView.
    """
    declared = unique_labels(_declared(case, rules, compat=compat))
    found = tuple(
        replace(expectation, where=where(path), advisory=compat or expectation.advisory)
        for path, expectation in declared
    )
    return (*found, _verdict(case, rules, where)) if compat else found


def _declared(case: CaseConfig, rules: ScoreRules, *, compat: bool) -> Iterator[Placed]:
    checks = case.checks or ChecksConfig()
    mode = _sequence_mode(case)
    for place, expectation in _all(case.expected, mode, rules):
        yield ("expected", *place), expectation
    yield from _checked(case.expected, checks, by_default=compat and rules.has_judge)
    if checks.pii and not (case.expected.output and case.expected.output.no_pii):
        yield ("checks", "pii"), Expectation("no_pii", "no personal data")
    for index, turn in enumerate(case.turns or ()):
        expected = turn.expected or ExpectedConfig()
        path: Path = ("turns", index, "expected")
        in_turn = [((*path, *place), found) for place, found in _all(expected, mode, rules)]
        in_turn += [((*path, *place[1:]), found) for place, found in _checked(expected)]
        for place, found in in_turn:
            yield place, _of_turn(found, index + 1)
    if case.mocks is not None and case.mocks.strict:
        yield ("mocks", "strict"), Expectation("tool_strict", "mocks.strict")
    yield from _limits(case)
    yield ("thresholds", "min_score"), _weighted_score(case, mode, rules)


def _of_turn(found: Expectation, turn: int) -> Expectation:
    """Return an expectation as one of a turn, which looks at that turn alone."""
    placed = replace(found, label=f"turn {turn}: {found.label}", turn=turn, alone=True)
    if found.kind != "hallucination":
        return placed
    # Its answer may rest on what tools said in any turn before.
    return replace(placed, alone=False, params={**found.params, "evidence": "prefix"})


def _all(expected: ExpectedConfig, mode: str, rules: ScoreRules) -> Iterator[Placed]:
    """Yield what is declared, but for what a switch may turn on or off."""
    for index, tool in _distinct(expected.tools):
        yield ("tools", index), Expectation("tool_called", tool, {"tool": tool})
    for index, category in _distinct(expected.tool_categories):
        params: dict[str, Any] = {
            "category": category,
            "tools": tools_of(category, rules.categories),
        }
        yield ("tool_categories", index), Expectation("tool_category", category, params)
    if sequence := _sequence(expected):
        key = "tool_sequence" if expected.tool_sequence else "sequence"
        params = {"sequence": sequence, "mode": mode}
        yield (key,), Expectation("tool_sequence", " → ".join(sequence), params)
    for index, tool in _distinct(expected.forbidden_tools):
        yield ("forbidden_tools", index), Expectation("forbidden_tool", tool, {"tool": tool})
    if expected.output is not None:
        for place, expectation in _output(expected.output, rules):
            yield ("output", *place), expectation
    for name, metric in (expected.metrics or {}).items():
        params = {"metric": name, "value": metric.value, "tolerance": metric.tolerance}
        label = f"{name} = {plain_number(metric.value)} ± {plain_number(metric.tolerance)}"
        yield ("metrics", name), Expectation("metric", label, params)


def _output(output: OutputConfig, rules: ScoreRules) -> Iterator[Placed]:
    for index, text in enumerate(output.contains or ()):
        yield ("contains", index), Expectation("contains", text, {"text": text})
    for index, text in enumerate(output.not_contains or ()):
        yield ("not_contains", index), Expectation("not_contains", text, {"text": text})
    for index, pattern in enumerate(output.regex_patterns or ()):
        yield ("regex_patterns", index), Expectation("regex", pattern, {"pattern": pattern})
    if output.json_schema is not None:
        params = {"schema": output.json_schema}
        yield ("json_schema",), Expectation("output_schema", "JSON Schema", params)
    if output.no_pii:
        yield ("no_pii",), Expectation("no_pii", "no personal data")
    if output.must_acknowledge_uncertainty:
        place = ("must_acknowledge_uncertainty",)
        judged = {"judged": rules.has_judge}
        yield place, Expectation("uncertainty", "acknowledges uncertainty", judged)


def _checked(
    expected: ExpectedConfig, checks: ChecksConfig | None = None, *, by_default: bool = False
) -> Iterator[Placed]:
    """Yield what is checked because the case, or a switch of it, says so.

    By default, what no block says anything about is checked, too.
    """
    checks = checks or ChecksConfig()
    if _is_checked(expected.hallucination, checks.hallucination, by_default=by_default):
        hallucination = expected.hallucination or HallucinationConfig()
        params: dict[str, Any] = {
            "allow": hallucination.allow,
            "confidenceThreshold": hallucination.confidence_threshold,
        }
        place = _place("hallucination", expected.hallucination)
        yield place, Expectation("hallucination", "no hallucination", params)
    if _is_checked(expected.safety, checks.safety, by_default=by_default):
        safety = expected.safety or SafetyConfig()
        severity = safety.severity_threshold
        params = {
            "allowHarmful": safety.allow_harmful,
            "categories": safety.categories,
            "severityThreshold": severity if severity in SEVERITIES else SEVERITIES[0],
        }
        yield _place("safety", expected.safety), Expectation("safety", "safe", params)


def _place(name: str, block: object) -> Path:
    return ("checks", name) if block is None else ("expected", name)


def _is_checked(
    block: HallucinationConfig | SafetyConfig | None, switch: bool | None, *, by_default: bool
) -> bool:
    if switch is False:
        return False
    if block is None:
        return bool(switch) or by_default
    return block.check or bool(switch and not by_default)


def _limits(case: CaseConfig) -> Iterator[Placed]:
    limits = case.thresholds
    if limits.max_cost is not None:
        label = f"≤ ${plain_number(limits.max_cost)}"
        yield (
            ("thresholds", "max_cost"),
            Expectation("cost", label, {"maxUsd": limits.max_cost}),
        )
    if limits.max_latency is not None:
        label = f"≤ {plain_number(limits.max_latency)} ms"
        params = {"maxMs": limits.max_latency}
        # Nobody chose the limit of a case that a program wrote.
        yield (
            ("thresholds", "max_latency"),
            Expectation("latency", label, params, advisory=bool(case.generated)),
        )


def _weighted_score(case: CaseConfig, mode: str, rules: ScoreRules) -> Expectation:
    turns = case.turns
    query = turns[0].query if turns else case.input.query if case.input else ""
    params: dict[str, Any] = {
        "minScore": case.thresholds.min_score,
        "weights": dict(rules.weights),
        "judged": rules.has_judge,
        **_scored(query, case.expected, mode, rules),
    }
    if turns:
        params["turns"] = [
            _scored(turn.query, turn.expected or ExpectedConfig(), mode, rules) for turn in turns
        ]
    # Without the threshold: scores are compared over time, also where that was changed.
    return Expectation("weighted_score", "weighted score", params)


def _scored(query: str, expected: ExpectedConfig, mode: str, rules: ScoreRules) -> dict[str, Any]:
    output = expected.output or OutputConfig()
    categories = [category for _, category in _distinct(expected.tool_categories)]
    return {
        "query": query,
        "tools": [tool for _, tool in _distinct(expected.tools)],
        "toolCategories": {name: tools_of(name, rules.categories) for name in categories},
        "sequence": _sequence(expected),
        "sequenceMode": mode,
        "contains": list(output.contains or ()),
        "notContains": list(output.not_contains or ()),
        "regexPatterns": list(output.regex_patterns or ()),
        "jsonSchema": output.json_schema,
    }


def _verdict(
    case: CaseConfig, rules: ScoreRules, where: Callable[[Path], SourceLocation]
) -> Expectation:
    """Return the expectation that is the verdict of EvalView: only some things decide it."""
    limits, turns = case.thresholds, case.turns or ()
    hallucination = case.expected.hallucination or HallucinationConfig()
    safety = case.expected.safety or SafetyConfig()
    params: dict[str, Any] = {
        "minScore": limits.min_score,
        "maxCost": limits.max_cost,
        "maxLatency": None if case.generated else limits.max_latency,
        "forbiddenTools": list(case.expected.forbidden_tools or ()),
        "allowHallucination": hallucination.allow,
        "localJudge": rules.has_local_judge,
        "safety": {
            "allowHarmful": safety.allow_harmful,
            "categories": safety.categories,
            "severityThreshold": safety.severity_threshold,
        },
        "pii": bool(case.checks and case.checks.pii),
        "judged": {
            found.kind: found.label
            for _, found in unique_labels(_declared(case, rules, compat=True))
            if found.kind in _JUDGED and found.turn is None
        },
        "undeclared": [list(key) for key in sorted(_undeclared(case, rules))],
        "turns": [
            None if turn.expected is None else _binding_in_turn(turn.expected) for turn in turns
        ],
    }
    return Expectation("evalview_verdict", "EvalView", params, where(("thresholds",)))


def _undeclared(case: CaseConfig, rules: ScoreRules) -> set[tuple[str, str]]:
    """Return what binds nobody without EvalView, by kind and label: what it adds, what advises."""
    binding, everything = (
        {
            (found.kind, found.label)
            for _, found in unique_labels(_declared(case, rules, compat=compat))
            if compat or not found.advisory
        }
        for compat in (False, True)
    )
    return everything - binding


def _binding_in_turn(expected: ExpectedConfig) -> dict[str, Any]:
    output = expected.output or OutputConfig()
    return {
        "tools": [tool for _, tool in _distinct(expected.tools)],
        "forbiddenTools": list(expected.forbidden_tools or ()),
        "contains": list(output.contains or ()),
        "notContains": list(output.not_contains or ()),
    }


def _sequence(expected: ExpectedConfig) -> list[str]:
    return list(expected.tool_sequence or expected.sequence or ())


def _sequence_mode(case: CaseConfig) -> str:
    mode = case.adapter_config.sequence_mode if case.adapter_config else None
    return mode if mode in SEQUENCE_MODES else SEQUENCE_MODES[0]


def _distinct(names: Sequence[str] | None) -> list[tuple[int, str]]:
    """Return each name once, with where it is first."""
    first: dict[str, int] = {}
    for index, name in enumerate(names or ()):
        first.setdefault(name, index)
    return [(index, name) for name, index in first.items()]
