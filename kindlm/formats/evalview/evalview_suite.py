"""Compiles the cases of a folder to the `Suite` that the engine runs.

Each case has an agent of its own, or runs on a model of the suite.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path as FilePath
from typing import Any

from pydantic.alias_generators import to_camel

from kindlm.config.compile import canonical, compile_service, config_hash
from kindlm.config.entries import recorded_name
from kindlm.config.interpolation import MARK
from kindlm.dataclass import dataclass
from kindlm.document import Path
from kindlm.errors import SourceLocation
from kindlm.formats.evalview.case_schema import (
    AdapterConfig,
    CaseConfig,
    ToolDefinitionConfig,
    VarianceConfig,
)
from kindlm.formats.evalview.expectations import compile_expectations
from kindlm.formats.evalview.project_config import ProjectConfig
from kindlm.outcome import ScoreLimits
from kindlm.packages import own
from kindlm.plugins import Adapter
from kindlm.secrecy import hide_headers
from kindlm.section import resolved
from kindlm.suite import (
    TELEMETRY_WAIT_MS,
    AgentTarget,
    Case,
    ModelTarget,
    Price,
    Prompt,
    ProviderSettings,
    SimulatedTool,
    Suite,
    ToolAnswer,
)

_TIMEOUT_MS = 120_000
"""The default time limit of an answer, as in EvalView."""

_EXECUTION_TIMEOUT_MS = 300_000
_FOR_CHECKS_MS = 60_000
_MOST_POINTS = 100


@dataclass(frozen=True, slots=True)
class CheckedCase:
    """A case without an error, its file, and a function that returns the place of a path."""

    config: CaseConfig
    file: FilePath
    where: Callable[[Path], SourceLocation]


def compile_folder(
    name: str,
    project: str,
    path: str,
    cases: Sequence[CheckedCase],
    config: ProjectConfig,
    home: FilePath,
    *,
    compat: bool = False,
    unread: tuple[str, ...] = (),
) -> Suite:
    """Return the suite of a folder; `path` is its identity. Programs of `serve` run in `home`.

    With `compat`, EvalView's verdict decides, and the checks of kindlm only advise. `unread` are
    the files of the folder with errors.
    """
    targets = ModelTargets()
    compiled = tuple(_case(case, config, targets, compat=compat) for case in cases)
    if (judge := config.judge) is not None:
        provider = targets.provider(judge.provider.strip().lower(), judge.base_url)
        targets.models[JUDGE] = ModelTarget(JUDGE, provider, judge.model)
    document: dict[str, Any] = {
        "cases": [_without_credentials(resolved(case.config)) for case in cases],
        "config": _without_credentials(resolved(config)),
    }
    # Variables by name, no credentials.
    text = as_written(canonical(document | ({"compat": "evalview"} if compat else {})))
    timeout_ms = _TIMEOUT_MS if config.timeout is None else max(1, round(config.timeout * 1000))
    retries = config.retry.max_retries if config.retry else None
    # An execution has enough time for the time limits of all its answers.
    needed = [
        (case.agent.timeout_ms if case.agent and case.agent.timeout_ms else timeout_ms)
        * (1 + len(case.follow_ups))
        for case in compiled
    ]
    prices, model = dict[str, Price](), config.model
    if model is not None and model.name is not None and (paid := model.pricing) is not None:
        prices[model.name] = Price(paid.input_per_1m, paid.output_per_1m, paid.cached_per_1m)
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
        execution_timeout_ms=max(_EXECUTION_TIMEOUT_MS, max(needed, default=0) + _FOR_CHECKS_MS),
        retries=2 if retries is None else retries,
        services=tuple(compile_service(each, home) for each in config.serve or ()),
        prices=prices,
        unread=unread,
    )


def _case(
    checked: CheckedCase, config: ProjectConfig, targets: ModelTargets, *, compat: bool
) -> Case:
    case = checked.config
    runs_on = target_of(case, config)
    is_model = runs_on.adapter in MODEL_ADAPTERS
    agent = None if is_model else compile_agent(case, config, runs_on, checked.file.parent)
    target = targets.add(runs_on) if agent is None else agent.id
    # Cases are checked before they are compiled: one without turns has an input.
    first, *others = (turn.query for turn in case.turns or (case.input,) if turn is not None)
    variance = case.thresholds.variance or VarianceConfig.model_construct(runs=1, pass_rate=1.0)
    points = (variance.min_mean_score, variance.max_std_dev)
    limits = ScoreLimits(*(None if each is None else each / _MOST_POINTS for each in points))
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
        repeat=variance.runs,
        pass_rate=variance.pass_rate,
        score_limits=None if limits == ScoreLimits() else limits,
        confidence=variance.confidence_level,
        tags=(*(case.tags or ()), *(f"{key}:{value}" for key, value in more.items() if value)),
        where=checked.where(()),
    )


def _contexts(case: CaseConfig) -> tuple[Mapping[str, Any] | None, ...]:
    """Return the context of each message. The first turn has that of `input` by default."""
    common: dict[str, Any] = {}
    if case.tools:
        common["tools"] = [tool.model_dump(exclude_unset=True) for tool in case.tools]
    first = case.input.context if case.input else None
    written = [turn.context for turn in case.turns or ()] or [first]
    if written[0] is None:
        written[0] = first
    contexts = [{**common, **(context or {})} or context for context in written]
    return tuple(contexts) if any(context is not None for context in contexts) else ()


def _without_credentials(settings: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration, or a case with its `adapter_config`, as it may be recorded."""
    hidden = dict(settings)
    if headers := settings.get("headers"):
        hidden["headers"] = hide_headers(headers)
    if isinstance(of_agent := settings.get("adapter_config"), dict):
        hidden["adapter_config"] = _without_credentials(of_agent)
    return hidden


AGENT_ADAPTERS = (
    *("http", "langgraph", "crewai", "openai-assistants", "openai-assistant"),
    *("tapescope", "jsonl", "streaming"),
)
"""EvalView's adapters of agents."""

MODEL_ADAPTERS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "ollama": None}
"""Adapters that call a model with simulated tools, each with the variable of its key."""

USUAL_MODELS = {"anthropic": "claude-sonnet-4-5-20250929", "ollama": "llama3.2"}
"""The default models of EvalView's adapters."""


def kind_of(adapter: str) -> type[Adapter]:
    """Return the class of an adapter of agents."""
    kind = own(Adapter, adapter)
    assert kind is not None, "AGENT_ADAPTERS names adapters of kindlm"
    return kind


def options(adapter: str, config: AdapterConfig) -> Adapter:
    """Return the options of an agent's adapter: the keys of `adapter_config` that it has."""
    kind = kind_of(adapter)
    if adapter == "http":
        return kind.model_validate({"request": "query"})
    names = kind.model_fields.keys() & type(config).model_fields.keys()
    written = {to_camel(name): getattr(config, name) for name in names}
    # An empty text counts as absent.
    return kind.model_validate({key: it for key, it in written.items() if it not in (None, "")})


JUDGE = "judge"
"""The id of the model that judges."""

_VARIABLE = re.compile(MARK + r"?\{\{env\.(\w+)\}\}")
_URL = re.compile(r"https?://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """What a case runs on: the name of its adapter in EvalView, its address, and its model.

    `named` is the model that the case or its project names; an address that is no URL is one, too.
    """

    adapter: str
    endpoint: str | None
    named: str | None

    @property
    def model(self) -> str | None:
        """The model that is called: the named one, else the default of the adapter."""
        return self.named or USUAL_MODELS.get(self.adapter)


def target_of(case: CaseConfig, config: ProjectConfig) -> Target:
    """Return the target of a case; the adapter is `http` by default."""
    of_project = (config.adapter or "http").strip().lower()
    adapter = case.adapter.strip().lower() if case.adapter else of_project
    endpoint = case.endpoint
    # The address of the project's agent must not get the key of a model.
    may_share = adapter == of_project or MODEL_ADAPTERS.keys().isdisjoint({adapter, of_project})
    if endpoint is None and may_share:
        endpoint = config.endpoint
    by_endpoint = None if endpoint is None or is_address(endpoint) else endpoint
    by_project = config.model.name if config.model else None
    return Target(adapter, endpoint, case.model or case.settings.model or by_endpoint or by_project)


def as_written(text: str) -> str:
    """Return a text with its variables as in the file: `${NAME}`."""
    return _VARIABLE.sub(r"${\1}", text)


def compile_agent(
    case: CaseConfig, config: ProjectConfig, target: Target, folder: FilePath
) -> AgentTarget:
    """Return the agent of a case. Its id is the adapter: an address may not be in identities."""
    settings = case.settings
    adapter = recorded_name(kind_of(target.adapter), target.adapter)
    own = {name.lower() for name in settings.headers or ()}
    headers = {n: value for n, value in (config.headers or {}).items() if n.lower() not in own}
    return AgentTarget(
        id=adapter,
        adapter=adapter,
        endpoint=target.endpoint or "",
        headers={**headers, **(settings.headers or {})},
        options=options(target.adapter, settings),
        directory=str(folder),
        timeout_ms=None if settings.timeout is None else max(1, round(settings.timeout * 1000)),
        verbose=bool(settings.verbose),
        model=case.model or settings.model or (config.model.name if config.model else None),
        reports_tools=bool(
            config.reports_tools if settings.reports_tools is None else settings.reports_tools
        ),
        gateway=bool(config.gateway),
        telemetry=settings.telemetry or config.telemetry,
        telemetry_wait_ms=(
            settings.telemetry_wait_ms or config.telemetry_wait_ms or TELEMETRY_WAIT_MS
        ),
    )


@dataclass(slots=True)
class ModelTargets:
    """The models that the cases of a suite call, and their providers."""

    providers: dict[str, ProviderSettings] = field(default_factory=dict)
    models: dict[str, ModelTarget] = field(default_factory=dict)

    def add(self, target: Target) -> str:
        """Add the model of a case, and return its id: the adapter and the name of the model.

        If two cases call models of one name at different addresses, the id of the later one
        contains its address.
        """
        adapter, endpoint, model = target.adapter, target.endpoint, target.model
        assert model is not None, "cases are checked before they are compiled"
        base_url = endpoint if endpoint is not None and is_address(endpoint) else None
        provider = self.provider(adapter, base_url)
        name = f"{adapter}/{as_written(model)}"
        if (known := self.models.get(name)) is not None and known.provider != provider:
            name += f" at {as_written(base_url or adapter)}"
        self.models[name] = ModelTarget(name, provider, model)
        return name

    def provider(self, kind: str, base_url: str | None) -> str:
        """Return the name of a provider of this type at this address, which it adds."""
        for name, known in self.providers.items():
            if (known.type, known.base_url) == (kind, base_url):
                return name
        same = sum(known.type == kind for known in self.providers.values())
        name = f"{kind}-{same + 1}" if same else kind
        key = MODEL_ADAPTERS[kind]
        self.providers[name] = ProviderSettings(name, kind, api_key_env=key, base_url=base_url)
        return name


def is_address(endpoint: str) -> bool:
    """Return whether the endpoint of a model is an address; others name the model."""
    return bool(_URL.match(endpoint)) or endpoint.startswith("{{env.")


def compile_tools(case: CaseConfig) -> tuple[SimulatedTool, ...]:
    """Return the tools that a case defines or mocks."""
    defined = {tool.name: tool for tool in case.tools or ()}
    mocks = (case.mocks.tool_mocks if case.mocks else None) or ()
    names = dict.fromkeys([*defined, *(mock.tool for mock in mocks)])
    tools: list[SimulatedTool] = []
    for name in names:
        answers = tuple(
            ToolAnswer(
                when=mock.match_params,
                then=mock.returns if mock.error is None else {"error": mock.error},
                delay_ms=round(mock.latency_ms or 0),
            )
            for mock in mocks
            if mock.tool == name
        )
        tool = defined.get(name, ToolDefinitionConfig.model_construct(name=name))
        schema = tool.input_schema if tool.parameters is None else tool.parameters
        tools.append(SimulatedTool(name, tool.description, schema, answers))
    return tuple(tools)
