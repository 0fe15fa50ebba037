"""What an agent is for: what is known of it before tests are planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kindlm.generate.texts import is_name, one_line
from kindlm.generate.tool_names import names_tool
from kindlm.model_answers import object_in, objects_member, text_member, texts_member

__all__ = ["AgentProfile", "Exchange", "KnownTool", "Sources", "plain_profile", "read_profile"]

_MOST_TOOLS = 50
_MOST_CONSTRAINTS = 30
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the agent was asked, what it said, and the names of the tools that it called for it."""

    asked: str
    answered: str
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """All that is known of an agent: what the user says of it, and what it said itself."""

    description: str | None = None
    system_prompt: str | None = None
    exchanges: tuple[Exchange, ...] = ()

    def knows_tool(self, name: str) -> bool:
        """Tell whether there is such a tool: the user names it, or the agent called it.

        What an agent says of its tools is no evidence of them.
        """
        called = {tool for exchange in self.exchanges for tool in exchange.tools}
        written = (self.description or "", self.system_prompt or "")
        return name in called or any(names_tool(text, name) for text in written)


@dataclass(frozen=True, slots=True)
class KnownTool:
    """A tool of the agent."""

    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """What an agent is for, what it works with, what it may not do, and how it sounds."""

    purpose: str
    tools: tuple[KnownTool, ...] = ()
    constraints: tuple[str, ...] = ()
    tone: str = ""


def read_profile(text: str, sources: Sources) -> AgentProfile:
    """Read a model's answer; tools that there is no evidence of are left out.

    Raises:
        ValueError: it is no profile; says why.
    """
    answer = object_in(text)
    purpose = one_line(text_member(answer, "purpose"), _LONGEST)
    if not purpose:
        raise ValueError("its purpose is empty")
    called = [tool for exchange in sources.exchanges for tool in exchange.tools]
    tools = {name: KnownTool(name) for name in called}
    for item in objects_member(answer, "tools")[:_MOST_TOOLS]:
        name = text_member(item, "name").strip()
        if is_name(name) and sources.knows_tool(name):
            tools[name] = KnownTool(name, one_line(text_member(item, "description"), _LONGEST))
    return AgentProfile(
        purpose,
        tuple(tools.values()),
        _lines(texts_member(answer, "constraints")),
        one_line(text_member(answer, "tone"), _LONGEST),
    )


def plain_profile(profile: AgentProfile) -> dict[str, Any]:
    """Return a profile as JSON has it."""
    return asdict(profile)


def _lines(texts: Sequence[str]) -> tuple[str, ...]:
    lines = (one_line(text, _LONGEST) for text in texts[:_MOST_CONSTRAINTS])
    return tuple(line for line in lines if line)
