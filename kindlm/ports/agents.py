"""Agents under test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from kindlm.errors import KindlmError, Result
from kindlm.ports.models import Provenance
from kindlm.ports.tools import AnswerTool
from kindlm.suite import AgentTarget, Command
from kindlm.transcript import Message, ToolUse, Usage

__all__ = ["Agent", "AgentFactory", "AgentReply", "AgentRequest", "ConversationSpoilt"]


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One message to an agent under test.

    `messages` is the whole conversation with the new message at its end, once. `conversation`
    identifies it to agents that remember. `timeout_s` covers the whole exchange. `context` is what
    the test sends along with the new message. `answer_tool` answers a tool call of an agent that
    has its tools run by the caller; it is None where the test simulates no tools. What it answered
    is in the reply's `tool_uses`, too.
    """

    conversation: str
    messages: tuple[Message, ...]
    timeout_s: float
    context: Mapping[str, Any] | None = None
    answer_tool: AnswerTool | None = None


@dataclass(frozen=True, slots=True)
class AgentReply:
    """What an agent answered: its text, the tools it says it called, and the body as received.

    `reported` are numbers that it tells of its answer, by name. `recorded` is set if the answer is
    one of an earlier run; `raw` is then None unless a script may ask for it, and it is still kept.
    `reports_tools` is whether the form of the answer has a place for tool calls, even if it is
    empty. With None, an answer shows that by a call that it holds.
    """

    text: str
    raw: str | None
    latency_ms: float
    tool_uses: tuple[ToolUse, ...] = ()
    usage: Usage = Usage()
    reported_cost_usd: float | None = None
    model: str | None = None
    warnings: tuple[str, ...] = ()
    recorded: Provenance | None = None
    reported: Mapping[str, float] = field(default_factory=dict)
    reports_tools: bool | None = None


class ConversationSpoilt(Exception):  # noqa: N818 - it names what became of it
    """Tells, at the end of a conversation, that its answers can't be trusted: `error` says why."""

    def __init__(self, error: KindlmError) -> None:
        super().__init__(error.message)
        self.error = error


class Agent(Protocol):
    """An agent under test; one instance holds one conversation, as `async with`."""

    async def __aenter__(self) -> Self:
        """Open what a conversation needs."""
        ...

    async def __aexit__(self, *exception: object) -> None:
        """Close it; nothing stays open or running, however the conversation ended.

        Raises `ConversationSpoilt` if it turns out only now that answers were none.
        """
        ...

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Send one message and wait for the answer.

        Errors have the 2xx codes and the `details` of `ModelClient.complete`.
        """
        ...


AgentFactory = Callable[[AgentTarget | Command], Result[Agent]]
"""Makes an agent for one conversation, or says why it can't: an unknown adapter, a bad option."""
