"""What a case says that has no effect on what it is run on."""

from __future__ import annotations

from collections.abc import Iterator

from kindlm.config.diagnostics import Reporter
from kindlm.config.places import Path
from kindlm.formats.evalview.adapters import AGENT_ADAPTERS, MODEL_ADAPTERS, SIMULATES_TOOLS
from kindlm.formats.evalview.project_config import ProjectConfig
from kindlm.formats.evalview.schema import CaseConfig
from kindlm.formats.evalview.targets import adapter_of

_OF_AGENTS = (
    *("timeout", "headers", "verbose", "streaming", "mode"),
    *("assistant_id", "input_key", "graph_config"),
)
"""Settings of `adapter_config` that models have not."""


def warn_of_no_effect(case: CaseConfig, config: ProjectConfig, reporter: Reporter) -> None:
    """Warn of each thing that is written and does nothing here."""
    adapter = adapter_of(case, config)
    if adapter in MODEL_ADAPTERS:
        for place in _contexts(case):
            message = "`context` is for agents: a model gets no more than the query"
            reporter.warning(place, message, reason="no_effect")
        _warn_of_settings(case, adapter, reporter)
    _warn_of_mocks(case, adapter, reporter)


def _contexts(case: CaseConfig) -> Iterator[Path]:
    if case.input is not None and case.input.context:
        yield "input", "context"
    for index, turn in enumerate(case.turns or ()):
        if turn.context:
            yield "turns", index, "context"


def _warn_of_settings(case: CaseConfig, adapter: str, reporter: Reporter) -> None:
    for name in _OF_AGENTS:
        # What is off is off.
        if getattr(case.adapter_config, name, None):
            message = f"`{name}` has no effect with the adapter {adapter}: it is for agents"
            of_project = "Models have the `timeout` of .evalview/config.yaml"
            hint = of_project if name == "timeout" else None
            reporter.warning(("adapter_config", name), message, hint, reason="no_effect")


def _warn_of_mocks(case: CaseConfig, adapter: str, reporter: Reporter) -> None:
    if case.mocks is None:
        return
    for name in ("response_mocks", "http_mocks"):
        if getattr(case.mocks, name):
            message = f"`{name}` has no effect: only calls of tools are simulated"
            reporter.warning(("mocks", name), message, reason="no_effect")
    if adapter in MODEL_ADAPTERS or AGENT_ADAPTERS[adapter] in SIMULATES_TOOLS:
        return
    for name in ("tool_mocks", "strict"):
        if getattr(case.mocks, name):
            message = f"`{name}` has no effect: an agent behind {adapter} calls tools of its own"
            reporter.warning(("mocks", name), message, reason="no_effect")
