"""Who talks to the agent in a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Persona:
    """Somebody who talks to the agent. Only a simulated user sees more of it than its name."""

    role: str
    name: str | None = None
    tone: str | None = None
    backstory: str | None = None
    context: Mapping[str, Any] | None = None

    def says(self, text: str) -> Message:
        """Return a message of this person, for `t.agent.send`."""
        return Message(text, self)


@dataclass(frozen=True, slots=True)
class Message:
    """What a persona says."""

    text: str
    persona: Persona
