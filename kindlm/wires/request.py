"""What a request to a model says, in any of the wire formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.transcript import Message, Role
from kindlm.wires.answer import content_text

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}


@dataclass(frozen=True, slots=True)
class WireRequest:
    """What a request says.

    Attributes:
        messages: what was said before, the system text first. In the text of a message, parts that
            are not text stand as `[image]` and the like.
        tool_results: the results of tool calls, by the ids of the calls: JSON values, or texts that
            are not JSON. Of a tool that failed, an object with `error`.
        tools: the names of the tools on offer.
        continues: the id of the answer that this continues, where the provider remembers it.
    """

    messages: tuple[Message, ...] = ()
    tool_results: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    continues: str | None = None


def role_of(value: Any) -> Role:
    """Return whose message it is; what is not known is the user's."""
    return _ROLES.get(value, Role.USER) if isinstance(value, str) else Role.USER


def said_text(content: Any) -> str:
    """Return the text of what was said, in which parts without a text show their types."""
    return content_text(content, shows_others=True)
