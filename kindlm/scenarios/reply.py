"""What the agent answered, as a test sees it."""

from __future__ import annotations

from dataclasses import dataclass

from kindlm.ports import AgentReply
from kindlm.transcript import ToolCall, Usage

__all__ = ["Reply"]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the agent.

    Attributes:
        text: what it said.
        tool_calls: the tools that it called for this answer, each with `name` and `arguments`.
        usage: `input_tokens` and `output_tokens`; None if it reported neither.
        latency_ms: how long it took, in milliseconds.
        raw: the body as it was received; empty where a recorded run is checked again.
        turn: which answer of the conversation it is, from 1.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage | None
    latency_ms: float
    raw: str
    turn: int

    def mentions(self, text: str) -> bool:
        """Tell whether the answer contains a text, whatever its case."""
        return text.lower() in self.text.lower()

    def __str__(self) -> str:
        """Return what it said."""
        return self.text


def reply_of(answer: AgentReply, turn: int) -> Reply:
    """Return an answer of the agent as a test sees it."""
    usage = answer.usage
    is_known = usage.input_tokens is not None or usage.output_tokens is not None
    return Reply(
        text=answer.text,
        tool_calls=tuple(use.call for use in answer.tool_uses),
        usage=usage if is_known else None,
        latency_ms=answer.latency_ms,
        raw=answer.raw,
        turn=turn,
    )
