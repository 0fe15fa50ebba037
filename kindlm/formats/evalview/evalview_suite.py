"""From the cases of a folder to the `Suite` that the engine runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

from kindlm.config.compile import canonical, config_hash
from kindlm.dataclass import dataclass
from kindlm.document import Path
from kindlm.errors import SourceLocation
from kindlm.formats.evalview.case_schema import CaseConfig
from kindlm.formats.evalview.evalview_targets import (
    JUDGE,
    MODEL_ADAPTERS,
    ModelTargets,
    adapter_of,
    as_written,
    compile_agent,
    compile_tools,
    told_tools,
)
from kindlm.formats.evalview.expectations import compile_expectations
from kindlm.formats.evalview.project_config import ProjectConfig
from kindlm.outcome import ScoreLimits
from kindlm.secrecy import hide_headers
from kindlm.section import resolved
from kindlm.suite import Case, Price, Prompt, Service, Suite

_TIMEOUT_MS = 120_000
"""Time for one answer where nothing is written, as in EvalView."""

_EXECUTION_TIMEOUT_MS = 300_000
_FOR_CHECKS_MS = 60_000
_MOST_POINTS = 100
_USUAL_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class CheckedCase:
    """A case without an error, its file, and what knows where its parts are."""

    config: CaseConfig
    file: FilePath
    where: Callable[[Path], SourceLocation]


def compile_folder(
    name: str,
    project: str,
    path: str,
    cases: Sequence[CheckedCase],
    config: ProjectConfig,
    services: tuple[Service, ...] = (),
    *,
    compat: bool = False,
    unread: tuple[str, ...] = (),
) -> Suite:
    """Return the suite of a folder, with all its cases; `path` is what it is known by.

    With `compat`, the verdict is that of EvalView, and what kindlm checks only advises. `unread`
    are the files of the folder that could not be loaded.
    """
    targets = ModelTargets()
    compiled = tuple(_case(case, config, targets, compat=compat) for case in cases)
    if config.judge is not None:
        targets.add_judge(config.judge)
    text = _config_text(cases, config, compat=compat)
    timeout_ms = _TIMEOUT_MS if config.timeout is None else max(1, round(config.timeout * 1000))
    retries = config.retry.max_retries if config.retry else None
    return Suite(
        name=name,
        project=project,
        front_end="evalview",
        path=path,
        config_hash=config_hash(text),
        config_text=text,
        providers=targets.providers,
        models=targets.models,
        cases=compiled,
        gates=(),
        judge_model=JUDGE if config.judge is not None else None,
        timeout_ms=timeout_ms,
        execution_timeout_ms=_longest(compiled, timeout_ms),
        retries=2 if retries is None else retries,
        services=services,
        prices=_prices(config),
        unread=unread,
    )


def _case(
    checked: CheckedCase, config: ProjectConfig, targets: ModelTargets, *, compat: bool
) -> Case:
    case = checked.config
    is_model = adapter_of(case, config) in MODEL_ADAPTERS
    agent = None if is_model else compile_agent(case, config, checked.file.parent)
    target = targets.add(case, config) if agent is None else agent.id
    # Cases are checked before they are compiled: one without turns has an input.
    first, *others = (turn.query for turn in case.turns or (case.input,) if turn is not None)
    variance = case.thresholds.variance
    more = {"difficulty": case.difficulty, "suite_type": case.suite_type}
    return Case(
        name=case.name,
        prompt=Prompt(user=first),
        targets=(target,),
        expectations=compile_expectations(case, config, checked.where, compat=compat),
        tools=compile_tools(case),
        follow_ups=tuple(others),
        contexts=() if is_model else _contexts(case),
        agent=agent,
        repeat=1 if variance is None else variance.runs,
        pass_rate=1.0 if variance is None else variance.pass_rate,
        score_limits=_score_limits(case),
        confidence=_USUAL_CONFIDENCE if variance is None else variance.confidence_level,
        tags=(*(case.tags or ()), *(f"{key}:{value}" for key, value in more.items() if value)),
        where=checked.where(()),
    )


def _contexts(case: CaseConfig) -> tuple[Mapping[str, Any] | None, ...]:
    """Return what goes with each message; that of the input is that of the first one, too."""
    common = {"tools": told_tools(case)} if case.tools else {}
    first = case.input.context if case.input else None
    written = [turn.context for turn in case.turns or ()] or [first]
    if written[0] is None:
        written[0] = first
    contexts = [{**common, **(context or {})} or context for context in written]
    return tuple(contexts) if any(context is not None for context in contexts) else ()


def _score_limits(case: CaseConfig) -> ScoreLimits | None:
    variance = case.thresholds.variance
    if variance is None:
        return None
    points = (variance.min_mean_score, variance.max_std_dev)
    limits = ScoreLimits(*(None if each is None else each / _MOST_POINTS for each in points))
    return None if limits == ScoreLimits() else limits


def _longest(cases: Sequence[Case], timeout_ms: int) -> int:
    """Return the time for an execution: so long that each answer may take the time it has."""
    needed = [
        (case.agent.timeout_ms if case.agent and case.agent.timeout_ms else timeout_ms)
        * (1 + len(case.follow_ups))
        for case in cases
    ]
    return max(_EXECUTION_TIMEOUT_MS, max(needed, default=0) + _FOR_CHECKS_MS)


def _prices(config: ProjectConfig) -> dict[str, Price]:
    model = config.model
    if model is None or model.name is None or model.pricing is None:
        return {}
    pricing = model.pricing
    return {model.name: Price(pricing.input_per_1m, pricing.output_per_1m, pricing.cached_per_1m)}


def _config_text(cases: Sequence[CheckedCase], config: ProjectConfig, *, compat: bool) -> str:
    """Return what the cases mean in canonical JSON: variables by name, no credentials."""
    document: dict[str, Any] = {
        "cases": [_without_credentials(resolved(case.config)) for case in cases],
        "config": _without_credentials(resolved(config)),
    }
    if compat:
        document["compat"] = "evalview"
    return as_written(canonical(document))


def _without_credentials(settings: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration, or a case with its `adapter_config`, as it may be recorded."""
    hidden = dict(settings)
    if headers := settings.get("headers"):
        hidden["headers"] = hide_headers(headers)
    if isinstance(of_agent := settings.get("adapter_config"), dict):
        hidden["adapter_config"] = _without_credentials(of_agent)
    return hidden
