"""The agent of each scenario: its own, else that of the configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import isroutine
from pathlib import Path
from typing import Any

from kindlm.config.compile_targets import compile_agent
from kindlm.config.credentials import header_secrets
from kindlm.config.diagnostics import Reporter
from kindlm.config.document import read_document
from kindlm.config.raw import section
from kindlm.errors import ErrorCode, KindlmError
from kindlm.scenarios.compile import compiled_agent
from kindlm.scenarios.configuration import AGENT, LoadedConfiguration, SandboxTable, own_agent
from kindlm.scenarios.finding import Scenario
from kindlm.spelling import PYTHON, SCENARIO_YAML
from kindlm.suite import AgentTarget


@dataclass(frozen=True, slots=True)
class ChosenAgents:
    """The agents of scenarios by their names, and what is wrong with those that have none.

    A scenario with a fault has an agent in name alone, so that it is known in the history as ever.
    """

    agents: Mapping[str, AgentTarget]
    faults: Mapping[str, KindlmError]

    @property
    def errors(self) -> list[KindlmError]:
        """The faults, each once: the cases of a scenario share one, and those without an agent."""
        told: dict[tuple[str, str], KindlmError] = {}
        for fault in self.faults.values():
            place = "" if fault.details["reason"] == "no_agent" else str(fault.where)
            told.setdefault((place, fault.message), fault)
        return list(told.values())


def choose_agents(
    scenarios: Sequence[Scenario],
    configuration: LoadedConfiguration,
    root: Path,
    environ: Mapping[str, str],
) -> ChosenAgents:
    """Return the agent of each scenario."""
    default = compiled_agent(configuration, root)
    agents: dict[str, AgentTarget] = {}
    faults: dict[str, KindlmError] = {}
    for each in scenarios:
        own = each.spec.agent
        if own is None:
            found = default or _no_agent(each)
        else:
            found = _own(own, each, configuration, environ)
        if isinstance(found, KindlmError):
            # What is not run needs none: a mark may skip it where a variable is not set.
            if not each.is_skipped and each.hint is None:
                faults[each.name] = found
            found = _in_name_alone(own)
        agents[each.name] = found
    return ChosenAgents(agents, faults)


def _own(
    own: str | Mapping[str, Any],
    scenario: Scenario,
    configuration: LoadedConfiguration,
    environ: Mapping[str, str],
) -> AgentTarget | KindlmError:
    if (wrong := _no_table(own)) is not None:
        return KindlmError(
            ErrorCode.CONFIG_VALIDATION_ERROR,
            f"agent of @scenario must be a URL or a mapping with the keys of [agent], {wrong}",
            "For a Python function, write its path: "
            'agent={"type": "python", "endpoint": "package.module:function"}',
            scenario.agent_where or scenario.where,
            {"reason": "agent"},
        )
    table = {"type": "http", "url": own} if isinstance(own, str) else dict(own)
    file = Path(scenario.where.file)
    is_python = file.suffix.lower() == ".py"
    reporter = Reporter(str(file), read_document(b""), PYTHON if is_python else SCENARIO_YAML)
    reporter.hide(header_secrets(section(table, "headers")))
    sandbox = configuration.config.sandbox if configuration.config else SandboxTable()
    config = own_agent(table, environ, reporter, sandbox)
    if config is None:
        first = reporter.diagnostics[0].error
        message = f"agent of @scenario: {first.message}" if is_python else first.message
        where = scenario.agent_where or scenario.where
        return KindlmError(first.code, message, first.hint, where, first.details)
    return compile_agent(config, file.parent)


def _no_table(own: object) -> str | None:
    """Return what is wrong with the agent of a scenario that is neither a URL nor a table."""
    if isinstance(own, str):
        return None
    if not isinstance(own, Mapping):
        return f"but is {'a function' if isroutine(own) else f'of type {type(own).__name__}'}"
    try:
        json.dumps(dict(own), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return f"and its values JSON: {error}"
    return None


def _in_name_alone(own: str | Mapping[str, Any] | None) -> AgentTarget:
    name = own.get("name") if isinstance(own, Mapping) else None
    return AgentTarget(name if isinstance(name, str) and name else AGENT, "http", "")


def _no_agent(scenario: Scenario) -> KindlmError:
    is_python = scenario.where.file.lower().endswith(".py")
    own = '@scenario(…, agent="http://…")' if is_python else "`agent: http://…`"
    return KindlmError(
        ErrorCode.CONFIG_VALIDATION_ERROR,
        "There is no agent to test",
        f'Name it in kindlm.toml: [agent] with type = "http" and url = "…"; or with {own}',
        scenario.where,
        {"reason": "no_agent"},
    )
