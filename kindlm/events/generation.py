"""Events of runs that write tests: what was learnt of the agent, and what was written."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kindlm.events.base import Authored, Payload

__all__ = ["AgentProfiled", "ScenarioGenerated"]


class AgentProfiled(Payload):
    """A model said what an agent is for, by what it was told of it and by what the agent said."""

    type: Literal["agent.profiled"] = "agent.profiled"
    profile: Authored = Field(description="purpose, tools, constraints and tone, as JSON")


class ScenarioGenerated(Payload):
    """A test was written into a file, after it was compiled and collected."""

    type: Literal["scenario.generated"] = "scenario.generated"
    file: str = Field(description="its path, as paths of suites are written")
    category: str
    title: Authored
    sha256: str = Field(description="digest of what was written")
