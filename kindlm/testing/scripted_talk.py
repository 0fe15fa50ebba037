"""Requests and replies, independent of any wire format.

Each wire format (`openai_wire`, `responses_wire`, `anthropic_wire`) reads a `TalkRequest` from a
request, and writes an answer from a `Reply`. So one script plays the same agent in all formats.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal

from kindlm.dataclass import dataclass, replace
from kindlm.strict_json import json_or_text

if TYPE_CHECKING:
    from kindlm.testing.node import Node
    from kindlm.testing.script import Reply

Asks = Literal["agent", "judge", "drift"]

GRADED_QUESTION = "kindlm_graded"
JUDGE_QUESTIONS = ("kindlm_judgement", GRADED_QUESTION)
DRIFT_QUESTION = "kindlm_drift"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """An answered tool call; `result` is parsed if it is JSON."""

    name: str
    arguments: Any
    result: Any


@dataclass(slots=True)
class Turn:
    """User messages in succession, and the tool calls that followed them."""

    user: str
    calls: list[ToolCall]


@dataclass(frozen=True, slots=True)
class TalkRequest:
    """A request to a model.

    `offered` are the names of the tools that may be called, `parallel` whether several at once.
    `structured` is the name of the requested structured output, if any. The reply continues
    `prefill` and ends before a text of `stop`. `stream_usage` is whether a stream ends with its
    usage.
    """

    raw_body: bytes
    model: str
    system: str
    turns: Turns
    offered: tuple[str, ...]
    structured: str | None
    parallel: bool
    max_tokens: int | None
    stream: bool
    prefill: str = ""
    stop: tuple[str, ...] = ()
    stream_usage: bool = True

    @property
    def fingerprint(self) -> str:
        """A hash of the whole request, which ids are made from."""
        return hashlib.blake2b(self.raw_body, digest_size=16).hexdigest()

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
        """The purpose of the request, by its structured output."""
        if self.structured in JUDGE_QUESTIONS:
            return "judge"
        return "drift" if self.structured == DRIFT_QUESTION else "agent"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as reported."""

    input_tokens: int
    output_tokens: int


@dataclass(eq=False)
class Refusal(Exception):  # noqa: N818 - it names what the API does
    """An error response of an API; `param` is the place of the mistake, `code` is OpenAI's."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None


class Turns(list[Turn]):
    """The turns of a conversation, which are added message by message.

    A call waits for its result; raises `ScriptError` for a result without a call.
    """

    def __init__(self) -> None:
        self._is_answered = True
        self._waiting: dict[str, tuple[Node, str, Any]] = {}

    def add_user(self, text: str) -> None:
        """Add a user message; successive messages are one turn."""
        if self._is_answered:
            self.append(Turn(text, []))
        else:
            self[-1].user += f"\n{text}"
        self._is_answered = False

    def add_assistant(self) -> None:
        """Take note of an assistant's message: the next user message starts a turn."""
        self._is_answered = True

    def add_call(self, call: Node, call_id: str, name: str, arguments: Any) -> None:
        """Add a tool call of the assistant."""
        self._waiting[call_id] = call, name, arguments
        self._is_answered = True

    def add_result(self, result: Node, call_id: str, text: str) -> None:
        """Add the result of a call."""
        if call_id not in self._waiting:
            result.fail(f"no call with the id {call_id!r} waits for this tool result")
        _, name, arguments = self._waiting.pop(call_id)
        if not self:
            self.append(Turn("", []))
        self[-1].calls.append(ToolCall(name, arguments, json_or_text(text)))

    def check(self) -> None:
        """Refuse calls without a result."""
        for call, _, _ in self._waiting.values():
            call.fail(f"tool calls without a result right after them: {', '.join(self._waiting)}")


def estimate_tokens(text: str) -> int:
    """Return the estimated tokens of a text: four characters each, rounded up."""
    return (len(text) + 3) // 4


def usage_of(conversation: TalkRequest, reply: Reply, text: str | None) -> Usage | None:
    """Return the usage to report for a reply with this text; None to report none."""
    if reply.usage is not None:
        return None if reply.usage == "missing" else reply.usage
    calls = sum(estimate_tokens(call.name + call.arguments_text) for call in reply.calls)
    prompt = max(1, len(conversation.raw_body) // 4)
    return Usage(prompt, estimate_tokens(text or "") + calls)


def shape(reply: Reply, conversation: TalkRequest) -> tuple[str | None, Reply]:
    """Apply prefill, stop texts and length limit of a request to the text of a reply.

    Returns:
        The text to send, if any, and the reply with the reason why it ended.
    """
    text = reply.text
    if reply.structured is not None:
        text = json.dumps(reply.structured, ensure_ascii=False)
    if text is None:
        return None, reply
    if conversation.prefill and text.startswith(conversation.prefill):
        text = text[len(conversation.prefill) :]
    stops = [(text.find(stop), stop) for stop in conversation.stop if stop in text]
    if stops:
        position, stop = min(stops)
        text, reply = text[:position], replace(reply, finish="stop", stopped_at=stop)
    limit = conversation.max_tokens
    if limit is not None and len(text) > limit * 4:
        text, reply = text[: limit * 4], replace(reply, finish="length", stopped_at=None)
    return text, reply


def text_of(content: Node, kinds: Collection[str] = ("text",)) -> str:
    """Return the text of a message: its content, or its parts of some kinds joined by newlines."""
    if isinstance(content.value, str):
        return content.value
    parts = [(part.entry("type").text(), part) for part in content.items()]
    return "\n".join(
        part.entry("refusal" if kind == "refusal" else "text").text()
        for kind, part in parts
        if kind in kinds
    )


def words_of(text: str) -> list[str]:
    """Split a text into words with their white space, for a stream."""
    return re.findall(r"\s*\S+|\s+", text)


def halves(text: str) -> tuple[str, str]:
    """Return both halves of a text, for a stream."""
    middle = len(text) // 2
    return text[:middle], text[middle:]


def server_sent(data: dict[str, Any]) -> bytes:
    """Return a server-sent event with the `type` of its data as its name."""
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode("ascii")
