"""What the agent answered, as a test sees it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

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
        turn: which answer of the conversation it is, from 1.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage | None
    latency_ms: float
    _raw: str | None = field(repr=False)
    turn: int

    @property
    def raw(self) -> str:
        """The body as it was received.

        Raises:
            LookupError: a recorded run is looked at again, and the body is not kept there any more.
        """
        if self._raw is None:
            raise LookupError(
                "the body of this answer is not kept any more, so that reply.raw is not known:"
                " run the scenario again: kindlm test"
            )
        return self._raw

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
        # Copies: what a test does to them changes nothing of what is checked.
        tool_calls=tuple(
            replace(use.call, arguments=copy.deepcopy(use.call.arguments))
            for use in answer.tool_uses
        ),
        usage=usage if is_known else None,
        latency_ms=answer.latency_ms,
        _raw=answer.raw,
        turn=turn,
    )
