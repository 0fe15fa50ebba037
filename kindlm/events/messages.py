"""Messages of a conversation as they are recorded."""

from __future__ import annotations

from kindlm.events.base import Authored, Data
from kindlm.transcript import Role

__all__ = [
    "MessageData",
    "ToolCallData",
]


class ToolCallData(Data):
    """A tool call that a model asked for. `arguments` is JSON, or the text that was no JSON."""

    id: str
    name: str
    arguments: Authored
    malformed: bool = False


class MessageData(Data):
    """One message that was sent."""

    role: Role
    text: Authored
    tool_calls: list[ToolCallData] = []
    tool_call_id: str | None = None
    prefill: bool = False
