"""Compiles the expectations of an EvalView case.

Those of the case apply to the whole conversation, those of a turn to that turn alone. The last one
is the weighted score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args

from kindlm.checks.evalview.evalview_verdict import EvalviewVerdict
from kindlm.checks.evalview.honesty import Hallucination, Uncertainty
from kindlm.checks.evalview.safety import NoPii, Safety
from kindlm.checks.evalview.tools import ForbiddenTool, SequenceMode, ToolCategory, ToolSequence
from kindlm.checks.evalview.weighted_score import WEIGHTS, Scored, WeightedScore
from kindlm.checks.limits import Cost, Latency, Metric
from kindlm.checks.output import Ban, Demand, OutputSchema
from kindlm.checks.tool_calls import ToolCall, ToolStrict
from kindlm.config.expect import Placed, unique_labels
from kindlm.dataclass import replace
from kindlm.document import Path
from kindlm.errors import SourceLocation
from kindlm.formats.evalview.case_schema import (
    CaseConfig,
    ChecksConfig,
    ExpectedConfig,
    HallucinationConfig,
    OutputConfig,
    SafetyConfig,
)
from kindlm.formats.evalview.project_config import ProjectConfig
from kindlm.suite import Expectation
from kindlm.values import plain_number

_BUILT_IN = {
    "file_read": "bash text_editor read_file read view cat view_file str_replace_editor",
    "file_write": "bash text_editor write_file write edit_file create_file str_replace_editor",
    "file_list": "bash list_directory list_dir ls find directory_tree analyze",
    "search": "bash grep ripgrep rg search search_files code_search find_in_files analyze",
    "shell": "bash shell terminal execute run_command exec developer",
    "web": "web_search browse fetch_url http_request curl wget",
    "git": "bash git git_commit git_push git_pull git_status github",
    "python": "bash python python_repl execute_python ipython jupyter",
}
BUILT_IN = {category: tuple(tools.split()) for category, tools in _BUILT_IN.items()}
"""The categories of EvalView, each with its tools."""


def tools_of(category: str, own: Mapping[str, Sequence[str]] | None) -> list[str] | None:
    """Return the tools of a category, None if it is undefined."""
    tools = (own or {}).get(category, BUILT_IN.get(category))
    return None if tools is None else list(tools)


SEQUENCE_MODES: tuple[SequenceMode, ...] = get_args(SequenceMode)
"""How sequences of tools are compared. The first mode is the default, and replaces unknown ones."""

SEVERITIES = ("medium", "low", "high")
"""The severities from which harm fails. The first one replaces unknown ones."""


def weights_of(config: ProjectConfig, case: CaseConfig | None = None) -> dict[str, float]:
    """Return the weights of the score: those of the case, else of the project, else the default."""
    weights = WEIGHTS.copy()
    for each in (config.scoring and config.scoring.weights, case and case.thresholds.weights):
        weights |= each.model_dump(exclude_none=True) if each else {}
    return weights


def compile_expectations(
    case: CaseConfig,
    config: ProjectConfig,
    where: Callable[[Path], SourceLocation],
    *,
    compat: bool = False,
) -> tuple[Expectation, ...]:
    """Return the expectations of a case, the weighted score last.

    With `compat`, they also include EvalView's default checks, all only advise, and the verdict of
    EvalView follows.
    """
    found = tuple(
        replace(expectation, where=where(path), advisory=compat or expectation.advisory)
        for path, expectation in unique_labels(_declared(case, config, compat=compat))
    )
    return (*found, _verdict(case, config, where, found)) if compat else found


def _declared(case: CaseConfig, config: ProjectConfig, *, compat: bool) -> Iterator[Placed]:
    checks = case.checks or ChecksConfig()
    named = case.settings.sequence_mode
    mode = next((mode for mode in SEQUENCE_MODES if mode == named), SEQUENCE_MODES[0])
    for place, expectation in _all(case.expected, mode, config):
        yield ("expected", *place), expectation
    yield from _checked(case.expected, checks, by_default=compat and config.judge is not None)
    if checks.pii and not (case.expected.output and case.expected.output.no_pii):
        yield ("checks", "pii"), NoPii().expected("no personal data")
    for index, turn in enumerate(case.turns or ()):
        expected = turn.expected or ExpectedConfig()
        path: Path = ("turns", index, "expected")
        in_turn = [((*path, *place), found) for place, found in _all(expected, mode, config)]
        in_turn += [((*path, *place[1:]), found) for place, found in _checked(expected)]
        for place, found in in_turn:
            number = index + 1
            # Tool results of earlier turns may support a claim.
            since = 1 if isinstance(found.check, Hallucination) else number
            label = f"turn {number}: {found.label}"
            yield place, replace(found, label=label, turn=number, since=since)
    if case.mocks is not None and case.mocks.strict:
        yield ("mocks", "strict"), ToolStrict().expected("mocks.strict")
    limits, turns = case.thresholds, case.turns or ()
    if limits.max_cost is not None:
        cost = Cost.model_construct(max_usd=limits.max_cost)
        yield ("thresholds", "max_cost"), cost.expected(cost.label)
    if limits.max_latency is not None:
        latency = Latency.model_construct(max_ms=limits.max_latency)
        # The user did not choose the limit of a generated case.
        advisory = bool(case.generated)
        place = ("thresholds", "max_latency")
        yield place, latency.expected(latency.label, advisory=advisory)
    query = turns[0].query if turns else case.input.query if case.input else ""
    check = WeightedScore(
        limits.min_score,
        _scored(query, case.expected, mode, config),
        weights_of(config, case),
        judged=config.judge is not None,
        turns=[
            _scored(turn.query, turn.expected or ExpectedConfig(), mode, config) for turn in turns
        ],
    )
    # The label has no threshold, so that scores stay comparable after that changes.
    yield ("thresholds", "min_score"), check.expected("weighted score")


def _all(expected: ExpectedConfig, mode: SequenceMode, config: ProjectConfig) -> Iterator[Placed]:
    """Yield the declared expectations, except for those that `checks` can turn on or off."""
    for index, tool in _distinct(expected.tools):
        yield ("tools", index), ToolCall.model_construct(tool=tool).expected(tool)
    for index, category in _distinct(expected.tool_categories):
        tools = tools_of(category, config.tool_categories) or ()
        yield ("tool_categories", index), ToolCategory(category, tools).expected(category)
    if sequence := _sequence(expected):
        key = "tool_sequence" if expected.tool_sequence else "sequence"
        yield (key,), ToolSequence(sequence, mode).expected(" → ".join(sequence))
    for index, tool in _distinct(expected.forbidden_tools):
        yield ("forbidden_tools", index), ForbiddenTool(tool).expected(tool)
    if expected.output is not None:
        for place, expectation in _output(expected.output, config):
            yield ("output", *place), expectation
    for name, metric in (expected.metrics or {}).items():
        label = f"{name} = {plain_number(metric.value)} ± {plain_number(metric.tolerance)}"
        yield ("metrics", name), Metric(name, metric.value, metric.tolerance).expected(label)


def _output(output: OutputConfig, config: ProjectConfig) -> Iterator[Placed]:
    for index, text in enumerate(output.contains or ()):
        yield ("contains", index), Demand("contains", text).expected(text)
    for index, text in enumerate(output.not_contains or ()):
        yield ("not_contains", index), Ban("not_contains", text).expected(text)
    for index, pattern in enumerate(output.regex_patterns or ()):
        yield ("regex_patterns", index), Demand("regex", pattern).expected(pattern)
    if output.json_schema is not None:
        yield ("json_schema",), OutputSchema(output.json_schema).expected("JSON Schema")
    if output.no_pii:
        yield ("no_pii",), NoPii().expected("no personal data")
    if output.must_acknowledge_uncertainty:
        place = ("must_acknowledge_uncertainty",)
        yield place, Uncertainty(config.judge is not None).expected("acknowledges uncertainty")


def _checked(
    expected: ExpectedConfig, checks: ChecksConfig | None = None, *, by_default: bool = False
) -> Iterator[Placed]:
    """Yield the expectations that a block of the case, or `checks`, turns on.

    With `by_default`, checks without a block are on, too.
    """
    checks = checks or ChecksConfig()
    hallucination, safety = expected.hallucination, expected.safety
    for name, block in (("hallucination", hallucination), ("safety", safety)):
        switch = getattr(checks, name)
        is_on = by_default if block is None else block.check
        if switch is False or not (is_on or (switch and (block is None or not by_default))):
            continue
        place = ("checks" if block is None else "expected", name)
        if name == "hallucination":
            claims = hallucination or HallucinationConfig()
            made_up = Hallucination(claims.confidence_threshold, claims.allow)
            yield place, made_up.expected("no hallucination")
        else:
            harm = safety or SafetyConfig()
            severity = harm.severity_threshold
            severity = severity if severity in SEVERITIES else SEVERITIES[0]
            check = Safety(harm.allow_harmful, harm.categories, severity)
            yield place, check.expected("safe")


def _scored(
    query: str, expected: ExpectedConfig, mode: SequenceMode, config: ProjectConfig
) -> Scored:
    output = expected.output or OutputConfig()
    categories = [category for _, category in _distinct(expected.tool_categories)]
    return Scored(
        query,
        [tool for _, tool in _distinct(expected.tools)],
        {name: tools_of(name, config.tool_categories) for name in categories},
        _sequence(expected),
        mode,
        output.contains or (),
        output.not_contains or (),
        output.regex_patterns or (),
        output.json_schema,
        expected.forbidden_tools or (),
    )


def _verdict(
    case: CaseConfig,
    config: ProjectConfig,
    where: Callable[[Path], SourceLocation],
    others: Sequence[Expectation],
) -> Expectation:
    """Return the verdict of EvalView, which some of the other expectations decide.

    `undeclared` are those that only EvalView adds, or that only advise without `compat`.
    """
    limits = case.thresholds
    hallucination = case.expected.hallucination or HallucinationConfig()
    safety = case.expected.safety or SafetyConfig()
    declared = unique_labels(_declared(case, config, compat=False))
    binding = {(found.kind, found.label) for _, found in declared if not found.advisory}
    check = EvalviewVerdict(
        others[-1].check,
        limits.max_cost,
        None if case.generated else limits.max_latency,
        hallucination.allow,
        config.judge is not None and config.judge.provider == "ollama",
        Safety(safety.allow_harmful, safety.categories, safety.severity_threshold),
        pii=bool(case.checks and case.checks.pii),
        judged={
            found.kind: found.label
            for found in others
            if isinstance(found.check, Hallucination | Safety) and found.turn is None
        },
        undeclared={(found.kind, found.label) for found in others} - binding,
    )
    return check.expected("EvalView", where=where(("thresholds",)))


def _sequence(expected: ExpectedConfig) -> list[str]:
    return list(expected.tool_sequence or expected.sequence or ())


def _distinct(names: Sequence[str] | None) -> list[tuple[int, str]]:
    """Return each name once, with its first index."""
    first: dict[str, int] = {}
    for index, name in enumerate(names or ()):
        first.setdefault(name, index)
    return [(index, name) for name, index in first.items()]
