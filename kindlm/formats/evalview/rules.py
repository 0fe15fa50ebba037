"""Checks of a case beyond the types of its fields, and warnings of keys without effect."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kindlm.checks.evalview.honesty import MOST_CONFIDENCE
from kindlm.checks.output import EMPTY, matches_anything
from kindlm.config.diagnostics import Reporter
from kindlm.config.expect import warn_of_text
from kindlm.config.json_schemas import report_inline_schema
from kindlm.document import Path
from kindlm.errors import ErrorCode
from kindlm.formats.evalview.case_schema import (
    AdapterConfig,
    CaseConfig,
    EvalviewSection,
    ExpectedConfig,
    OutputConfig,
)
from kindlm.formats.evalview.evalview_suite import (
    AGENT_ADAPTERS,
    MODEL_ADAPTERS,
    is_address,
    kind_of,
    target_of,
)
from kindlm.formats.evalview.expectations import (
    SEQUENCE_MODES,
    SEVERITIES,
    compile_expectations,
    weights_of,
)
from kindlm.formats.evalview.project_config import ProjectConfig
from kindlm.suggestions import hint_for
from kindlm.values import check_url

_TOLERANCE = 0.001
_SERVED = (*AGENT_ADAPTERS, *MODEL_ADAPTERS)


def check_case(case: CaseConfig, config: ProjectConfig, reporter: Reporter) -> None:
    """Report the errors of a case, and unknown names that have no effect."""
    _check_target(case, config, reporter)
    if case.thresholds.weights is not None:
        _check_total(weights_of(config, case), ("thresholds", "weights"), reporter)
    words: list[tuple[Path, str | None, tuple[str, ...]]]
    words = [(("adapter_config", "sequence_mode"), case.settings.sequence_mode, SEQUENCE_MODES)]
    for path, expected in _expected(case):
        if expected.safety is not None:
            place = (*path, "safety", "severity_threshold")
            words.append((place, expected.safety.severity_threshold, SEVERITIES))
        if expected.output is not None and expected.output.json_schema is not None:
            place = (*path, "output", "json_schema")
            report_inline_schema(place, expected.output.json_schema, "json_schema", reporter)
    for place, word, known in words:
        if word is not None and word not in known:
            message = f'Unknown {place[-1]} "{word}": it counts as {known[0]}'
            hint = hint_for(word, known, "Known ones")
            reporter.warning(place, message, hint, reason="no_effect")


def _check_adapter(adapter: str, path: Path, reporter: Reporter) -> bool:
    """Report an unknown or unsupported adapter; return whether kindlm supports it."""
    name = adapter.strip().lower()
    if name in _SERVED:
        return True
    message, more = f'Unknown adapter "{adapter}"', "Put another agent behind one, such as http"
    hint = hint_for(name, _SERVED, "Known adapters", more)
    code = ErrorCode.PROVIDER_NOT_FOUND
    reporter.error(path, message, hint, reason="unknown_adapter", code=code, value=adapter)
    return False


def check_project(config: ProjectConfig, reporter: Reporter) -> None:
    """Report the errors of a project's configuration."""
    if config.scoring is not None and config.scoring.weights is not None:
        _check_total(weights_of(config), ("scoring", "weights"), reporter)
    if config.adapter is not None:
        _check_adapter(config.adapter, ("adapter",), reporter)
    _check_endpoint(config.endpoint, (config.adapter or "").strip().lower(), reporter)
    warn_of_no_effect(config, (), reporter)
    warn_of_no_effect(config.retry, ("retry",), reporter)
    judge = config.judge
    if judge is not None and judge.base_url:
        with reporter.refused(("judge", "base_url"), "base_url"):
            check_url(judge.base_url)
    if judge is not None and judge.provider.strip().lower() not in MODEL_ADAPTERS:
        message = f'The provider "{judge.provider}" is not supported as a judge'
        hint = f"Supported: {', '.join(MODEL_ADAPTERS)}; where it has an API like that of OpenAI"
        hint += ", write `provider: openai` and its `base_url:`"
        code, at = ErrorCode.PROVIDER_NOT_FOUND, ("judge", "provider")
        reporter.error(at, message, hint, reason="unknown_provider", code=code)


def _check_target(case: CaseConfig, config: ProjectConfig, reporter: Reporter) -> None:
    target = target_of(case, config)
    adapter = target.adapter
    if case.adapter is not None and not _check_adapter(case.adapter, ("adapter",), reporter):
        return
    _check_endpoint(case.endpoint, adapter, reporter)
    if adapter in MODEL_ADAPTERS:
        path: Path = ("adapter",) if case.adapter else ()
        if target.model is None:
            message = f"No model is configured for {adapter}"
            reporter.error(path, message, "Write `model:`", reason="model")
        elif target.named is None:
            message = f"No model is named: {target.model} is called, as EvalView does"
            reporter.warning(path, message, "Write `model:` to choose it", reason="usual_model")
        return
    if not target.endpoint and kind_of(adapter).needs_endpoint:
        message = "No endpoint is configured for the agent"
        hint = "Write `endpoint:` in the case, or in .evalview/config.yaml"
        reporter.error(("endpoint",), message, hint, reason="endpoint")


def _check_endpoint(endpoint: str | None, adapter: str, reporter: Reporter) -> None:
    # What is no address names a model.
    if endpoint and (adapter not in MODEL_ADAPTERS or is_address(endpoint)):
        with reporter.refused(("endpoint",), "endpoint"):
            check_url(endpoint)


def _check_total(weights: dict[str, float], path: Path, reporter: Reporter) -> None:
    # Tolerate rounded weights, such as 0.333 three times.
    if math.isclose(math.fsum(weights.values()), 1, rel_tol=0, abs_tol=_TOLERANCE + 1e-12):
        return
    total = ", ".join(f"{name} {value:g}" for name, value in weights.items())
    message = f"The weights total {sum(weights.values()):g}, not 1: {total}"
    hint = "Weights that you do not set keep their defaults"
    reporter.error(path, message, hint, reason="weights")


_OF_MODELS = ("model", "sequence_mode")
"""The settings of `adapter_config` that are not for agents only."""

_OF_SOME_AGENTS = ("streaming", "mode", "assistant_id", "input_key", "graph_config")
"""The settings that only some adapters of agents have."""


def warn_of_no_effect(section: EvalviewSection | None, path: Path, reporter: Reporter) -> None:
    """Warn of keys of a section that other commands of EvalView use."""
    for name in () if section is None else section.without_effect:
        if getattr(section, name) is not None:
            message = f"`{name}` has no effect in kindlm"
            reporter.warning((*path, name), message, "Remove it", reason="no_effect")


def warn_of_case(case: CaseConfig, config: ProjectConfig, reporter: Reporter) -> None:
    """Warn of keys without effect, and of checks that can never fail."""
    warn_of_no_effect(case.mocks, ("mocks",), reporter)
    for place, message in _without_effect(case, target_of(case, config).adapter):
        reporter.warning(place, message, "Change or remove it", reason="no_effect")
    for place, why in _never_failing(case):
        message = f"This check can never fail: {why}"
        reporter.warning(place, message, "Change or remove it", reason="never_fails")
    if config.judge is None and len(compile_expectations(case, config, reporter.where)) == 1:
        message = f'The case "{case.name}" expects nothing, and no judge rates its answers'
        hint = "Write `expected:`, or a `judge:` in .evalview/config.yaml"
        reporter.warning(("expected",), message, hint, reason="expects_nothing")
    for path, expected in _expected(case):
        output = expected.output or OutputConfig()
        for key in ("contains", "not_contains", "regex_patterns"):
            for index, text in enumerate(getattr(output, key) or ()):
                warn_of_text((*path, "output", key, index), text, reporter)
    score = case.thresholds.min_score
    if 0 < score < 1:
        message = f"min_score is {score:g} of 100, so nearly every answer passes"
        hint = f"Scores are from 0 to 100: write {score * 100:g} for {score * 100:g} %"
        reporter.warning(("thresholds", "min_score"), message, hint, reason="share")


def _expected(case: CaseConfig) -> Iterator[tuple[Path, ExpectedConfig]]:
    yield ("expected",), case.expected
    for index, turn in enumerate(case.turns or ()):
        if turn.expected is not None:
            yield ("turns", index, "expected"), turn.expected


def _never_failing(case: CaseConfig) -> Iterator[tuple[Path, str]]:
    for path, expected in _expected(case):
        made_up = expected.hallucination
        if made_up is not None and made_up.confidence_threshold > MOST_CONFIDENCE:
            place = (*path, "hallucination", "confidence_threshold")
            yield place, f"no confidence exceeds {MOST_CONFIDENCE:g}"
        for index, tool in enumerate(expected.forbidden_tools or ()):
            if not tool.strip():
                yield (*path, "forbidden_tools", index), "no tool has this name"
        output = expected.output or OutputConfig()
        for index, text in enumerate(output.contains or ()):
            if not text:
                yield (*path, "output", "contains", index), EMPTY
        for index, pattern in enumerate(output.regex_patterns or ()):
            if matches_anything(pattern):
                place = (*path, "output", "regex_patterns", index)
                yield place, "it matches every text, also an empty one"
    if case.thresholds.min_score == 0:
        yield ("thresholds", "min_score"), "no score is below 0"
    variance = case.thresholds.variance
    if variance is not None and variance.pass_rate == 0:
        yield ("thresholds", "variance", "pass_rate"), "it allows all repeats to fail"


def _without_effect(case: CaseConfig, adapter: str) -> Iterator[tuple[Path, str]]:
    if case.turns and case.input is not None and case.input.query != case.turns[0].query:
        yield ("input", "query"), "`input.query` has no effect: the messages are those of `turns`"
    for path, expected in _expected(case):
        for name in ("hallucination", "safety"):
            block = getattr(expected, name)
            # `checks` applies to the whole case. An empty block needs no warning.
            switch = getattr(case.checks, name, None) if path == ("expected",) else None
            written = set() if block is None else block.model_fields_set
            if written and "check" not in written and switch is None:
                yield (*path, name), f"`{name}` has no effect without `check: true`"
    ignored: dict[Path, Any] = {}
    if adapter in MODEL_ADAPTERS:
        settings = [name for name in AdapterConfig.model_fields if name not in _OF_MODELS]
        ignored = {("adapter_config", name): getattr(case.settings, name) for name in settings}
        ignored["input", "context"] = case.input and case.input.context
        ignored |= {("turns", n, "context"): it.context for n, it in enumerate(case.turns or ())}
        reason = f"the adapter {adapter} calls a model, and it is for agents"
    elif case.mocks is not None and not kind_of(adapter).asks_for_tools:
        ignored = {("mocks", name): getattr(case.mocks, name) for name in ("tool_mocks", "strict")}
        reason = f"an agent behind {adapter} calls its own tools"
    for place, value in ignored.items():
        if value:
            yield place, f"`{place[-1]}` has no effect: {reason}"
    for name in () if adapter in MODEL_ADAPTERS else _OF_SOME_AGENTS:
        if getattr(case.settings, name) and name not in kind_of(adapter).model_fields:
            message = f"`{name}` has no effect: the adapter {adapter} has no such setting"
            yield ("adapter_config", name), message
