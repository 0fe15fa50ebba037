"""What a case of EvalView runs on: an agent of its own or a model of the suite, and its tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from kindlm.config.interpolation import MARK
from kindlm.formats.evalview.case_schema import AdapterConfig, CaseConfig
from kindlm.formats.evalview.project_config import JudgeConfig, ProjectConfig
from kindlm.packages import own
from kindlm.plugins import Adapter
from kindlm.suite import (
    TELEMETRY_WAIT_MS,
    AgentTarget,
    ModelTarget,
    ProviderSettings,
    SimulatedTool,
    ToolAnswer,
)

AGENT_ADAPTERS = {
    "http": "http",
    "langgraph": "langgraph",
    "crewai": "crewai",
    "openai-assistants": "openai-assistants",
    "openai-assistant": "openai-assistants",
    "tapescope": "tapescope",
    "jsonl": "tapescope",
    "streaming": "streaming",
}
"""Adapters of agents as they are written, and as kindlm calls them."""

MODEL_ADAPTERS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "ollama": None}
"""Adapters that call a model with simulated tools, and where their keys are."""

USUAL_MODELS = {"anthropic": "claude-sonnet-4-5-20250929", "ollama": "llama3.2"}
"""What EvalView's adapters call where no model is named."""

UNSERVED = frozenset({"huggingface", "goose", "mcp", "cohere", "mistral", "opencode", "aider"})
"""Adapters that EvalView has and kindlm has not."""

_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "langgraph": ("mode", "streaming", "assistant_id", "input_key", "graph_config"),
    "openai-assistants": ("assistant_id",),
    "tapescope": ("streaming",),
    "streaming": ("streaming",),
}
"""The keys of `adapter_config` that are options of an adapter."""


def kind_of(adapter: str) -> type[Adapter]:
    """Return the class of an adapter of agents."""
    kind = own(Adapter, AGENT_ADAPTERS[adapter])
    assert kind is not None, "AGENT_ADAPTERS names adapters of kindlm"
    return kind


def options(adapter: str, config: AdapterConfig) -> Adapter:
    """Return the options of an agent, with those of kindlm.yaml that a case can have."""
    kind = kind_of(adapter)
    if adapter == "http":
        return kind.model_validate({"request": "query"})
    written = {to_camel(name): getattr(config, name) for name in _OPTIONS.get(adapter, ())}
    # An empty text says as little as none.
    return kind.model_validate({key: it for key, it in written.items() if it not in (None, "")})


_USUAL_ADAPTER = "http"

JUDGE = "judge"
"""The id of the model that judges."""

_VARIABLE = re.compile(MARK + r"?\{\{env\.(\w+)\}\}")
_URL = re.compile(r"https?://", re.IGNORECASE)


def adapter_of(case: CaseConfig, config: ProjectConfig) -> str:
    """Return the adapter of a case as it is written; `http` where nothing is."""
    return case.adapter.strip().lower() if case.adapter else _adapter_of_project(config)


def endpoint_of(case: CaseConfig, config: ProjectConfig) -> str | None:
    """Return where a case reaches its agent, or its model; None where nothing says so."""
    if case.endpoint is not None:
        return case.endpoint
    adapter, of_project = adapter_of(case, config), _adapter_of_project(config)
    if adapter != of_project and not MODEL_ADAPTERS.keys().isdisjoint({adapter, of_project}):
        # That of an agent says nothing about a model, and must not get its key.
        return None
    return config.endpoint


def _adapter_of_project(config: ProjectConfig) -> str:
    return (config.adapter or _USUAL_ADAPTER).strip().lower()


def model_of(case: CaseConfig, config: ProjectConfig) -> str | None:
    """Return the name of the model that a case calls; an endpoint that is not a URL is one, too.

    Where none is named, it is that of the adapter, if it has one; None otherwise.
    """
    return named_model_of(case, config) or USUAL_MODELS.get(adapter_of(case, config))


def named_model_of(case: CaseConfig, config: ProjectConfig) -> str | None:
    """Return the model that a case, its endpoint or its project names."""
    endpoint = endpoint_of(case, config)
    by_endpoint = None if endpoint is None or _is_address(endpoint) else endpoint
    by_project = config.model.name if config.model else None
    return case.model or case.settings.model or by_endpoint or by_project


def as_written(text: str) -> str:
    """Return a text with its variables as they stand in the file."""
    return _VARIABLE.sub(r"${\1}", text)


def compile_agent(case: CaseConfig, config: ProjectConfig, folder: Path) -> AgentTarget:
    """Return the agent of a case; its id is the adapter, so that no address is in identities."""
    settings = case.settings
    adapter = AGENT_ADAPTERS[adapter_of(case, config)]
    own = {name.lower() for name in settings.headers or ()}
    headers = {n: value for n, value in (config.headers or {}).items() if n.lower() not in own}
    return AgentTarget(
        id=adapter,
        adapter=adapter,
        endpoint=endpoint_of(case, config) or "",
        headers={**headers, **(settings.headers or {})},
        options=options(adapter, settings),
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
    """The models that cases of one suite call, and how they are reached."""

    providers: dict[str, ProviderSettings] = field(default_factory=dict)
    models: dict[str, ModelTarget] = field(default_factory=dict)

    def add_judge(self, judge: JudgeConfig) -> None:
        """Add the model that judges."""
        provider = self._provider(judge.provider.strip().lower(), judge.base_url)
        self.models[JUDGE] = ModelTarget(JUDGE, provider, judge.model)

    def add(self, case: CaseConfig, config: ProjectConfig) -> str:
        """Add the model of a case, whose name must be known; return its id.

        That is its adapter and its name, whatever other cases call. Only of two that are named
        alike and reached at different addresses, the later one has its address in it.
        """
        endpoint, model = endpoint_of(case, config), model_of(case, config)
        assert model is not None, "cases are checked before they are compiled"
        base_url = endpoint if endpoint is not None and _is_address(endpoint) else None
        adapter = adapter_of(case, config)
        provider = self._provider(adapter, base_url)
        name = f"{adapter}/{as_written(model)}"
        if (known := self.models.get(name)) is not None and known.provider != provider:
            name += f" at {as_written(base_url or adapter)}"
        self.models[name] = ModelTarget(name, provider, model)
        return name

    def _provider(self, kind: str, base_url: str | None) -> str:
        for name, known in self.providers.items():
            if (known.type, known.base_url) == (kind, base_url):
                return name
        same = sum(known.type == kind for known in self.providers.values())
        name = f"{kind}-{same + 1}" if same else kind
        key = MODEL_ADAPTERS[kind]
        self.providers[name] = ProviderSettings(name, kind, api_key_env=key, base_url=base_url)
        return name


def _is_address(endpoint: str) -> bool:
    return bool(_URL.match(endpoint)) or endpoint.startswith("{{env.")


def compile_tools(case: CaseConfig) -> tuple[SimulatedTool, ...]:
    """Return the tools that a case defines, and those that it answers for."""
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
        tool, description, schema = defined.get(name), None, None
        if tool is not None:
            description = tool.description
            schema = tool.input_schema if tool.parameters is None else tool.parameters
        tools.append(SimulatedTool(name, description, schema, answers))
    return tuple(tools)


def told_tools(case: CaseConfig) -> list[dict[str, Any]]:
    """Return the definitions of tools as they are in the file, for the context of an agent."""
    return [tool.model_dump(exclude_unset=True) for tool in case.tools or ()]
