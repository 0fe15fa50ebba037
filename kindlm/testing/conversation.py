"""What a request asks and what is replied, apart from any wire format.

Both wire formats are read into a `Conversation` and written from a `Reply`, so that one script
plays the same agent through both.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

WireName = Literal["openai", "anthropic"]
Asks = Literal["agent", "judge", "drift"]
Finish = Literal["stop", "length", "content_filter"]

JUDGE_QUESTION = "kindlm_judgement"
DRIFT_QUESTION = "kindlm_drift"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that was made and answered; `result` is parsed where it is JSON."""

    name: str
    arguments: Any
    result: Any


@dataclass(frozen=True, slots=True)
class Turn:
    """A user message and the tool calls that followed it."""

    user: str
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request to a model.

    Attributes:
        wire: The format it came in.
        model: The model's name as requested.
        system: System text, all parts joined by newlines.
        turns: User messages in order, each with the answered tool calls after it.
        offered: Names of the tools on offer.
        structured: Name of the structured output that is asked for, if one is.
        forced_tool: Name of the one tool that must be called, if one is.
        prefill: Beginning of the reply, to be continued.
        parallel: Whether several tool calls are welcome at once.
        max_tokens: Upper limit of the reply, if there is one.
        stop: Texts that end the reply.
        stream: Whether the reply is wanted as server-sent events.
        stream_usage: Whether a stream ends with its usage.
        fingerprint: Hash of the whole request, from which ids are made.
        prompt_tokens: Estimate of what the request would be billed as.
    """

    wire: WireName
    model: str
    system: str
    turns: tuple[Turn, ...]
    offered: tuple[str, ...]
    structured: str | None
    forced_tool: str | None
    prefill: str
    parallel: bool
    max_tokens: int | None
    stop: tuple[str, ...]
    stream: bool
    stream_usage: bool
    fingerprint: str
    prompt_tokens: int

    @property
    def user(self) -> str:
        """The last user message."""
        return self.turns[-1].user if self.turns else ""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All answered tool calls, oldest first."""
        return tuple(call for turn in self.turns for call in turn.calls)

    @property
    def asks(self) -> Asks:
        """Whether the agent is spoken to, or a judge."""
        if self.structured == JUDGE_QUESTION:
            return "judge"
        return "drift" if self.structured == DRIFT_QUESTION else "agent"


@dataclass(frozen=True, slots=True)
class CallOut:
    """A tool call to make. `raw_arguments` replaces the arguments by a text that may be no JSON."""

    name: str
    arguments: Any
    raw_arguments: str | None = None

    @property
    def arguments_text(self) -> str:
        """The arguments as the Chat Completions format carries them."""
        if self.raw_arguments is not None:
            return self.raw_arguments
        return json.dumps(self.arguments)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as reported."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What the agent says and does next.

    Attributes:
        text: Text of the reply, None for none.
        calls: Tool calls to make.
        structured: A JSON object instead of text.
        finish: Why the reply ended, where that is not plain from the rest.
        stopped_at: The stop text that ended the reply.
        usage: Token counts to report instead of the estimate.
        reports_usage: False leaves the usage out of the response.
    """

    text: str | None = None
    calls: tuple[CallOut, ...] = ()
    structured: dict[str, Any] | None = None
    finish: Finish | None = None
    stopped_at: str | None = None
    usage: Usage | None = None
    reports_usage: bool = True


class TurnsBuilder:
    """Collects turns while a wire format's messages are read in order."""

    def __init__(self) -> None:
        self._turns: list[tuple[list[str], list[ToolCall]]] = []
        self._answered = True

    def add_user(self, text: str) -> None:
        """A user message; messages in a row are one turn."""
        if self._answered:
            self._turns.append(([], []))
        self._turns[-1][0].append(text)
        self._answered = False

    def add_assistant(self) -> None:
        """The assistant said something: the next user message starts a turn."""
        self._answered = True

    def add_call(self, name: str, arguments: Any, result: str) -> None:
        """An answered tool call."""
        if not self._turns:
            self._turns.append(([], []))
        self._turns[-1][1].append(ToolCall(name, arguments, parse_or_text(result)))

    def build(self) -> tuple[Turn, ...]:
        """The turns so far."""
        return tuple(Turn("\n".join(texts), tuple(calls)) for texts, calls in self._turns)


def parse_or_text(text: str) -> Any:
    """The JSON value a text holds, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def fingerprint_of(raw_body: bytes) -> tuple[str, int]:
    """A hash of the request, and an estimate of its tokens (four bytes each)."""
    digest = hashlib.blake2b(raw_body, digest_size=16).hexdigest()
    return digest, max(1, len(raw_body) // 4)


def estimate_tokens(text: str) -> int:
    """Estimated tokens of a text: four characters each, rounded up."""
    return (len(text) + 3) // 4


def usage_of(conversation: Conversation, reply: Reply, text: str) -> Usage:
    """The usage to report for a reply whose visible output is `text`."""
    if reply.usage is not None:
        return reply.usage
    calls = sum(estimate_tokens(call.name + call.arguments_text) for call in reply.calls)
    return Usage(conversation.prompt_tokens, estimate_tokens(text) + calls)
