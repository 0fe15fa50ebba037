"""Requests and replies, apart from any wire format.

Each wire format (`openai_wire`, `responses_wire`, `anthropic_wire`) reads its requests into a
`TalkRequest` and writes its answers from a `Reply`, so one script plays the same agent through all
of them.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Literal

from kindlm.dataclass import dataclass, replace
from kindlm.strict_json import json_or_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kindlm.testing.node import Node
    from kindlm.testing.script import CallOut, ModelSpec

Asks = Literal["agent", "judge", "drift"]
Finish = Literal["stop", "length"]

GRADED_QUESTION = "kindlm_graded"
JUDGE_QUESTIONS = ("kindlm_judgement", GRADED_QUESTION)
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
class TalkRequest:
    """A request to a model.

    Attributes:
        raw_body: The whole request as received.
        model: The model's name as requested.
        system: System text, all parts joined by newlines.
        turns: User messages in order, each with the answered tool calls after it.
        offered: Names of the tools on offer.
        structured: Name of the structured output that is asked for, if one is.
        forced_tool: Name of the one tool that must be called, if one is.
        parallel: Whether several tool calls are welcome at once.
        max_tokens: Upper limit of the reply, if there is one.
        stream: Whether the reply is wanted as server-sent events.
        prefill: Beginning of the reply, to be continued.
        stop: Texts that end the reply.
        stream_usage: Whether a stream ends with its usage.
    """

    raw_body: bytes
    model: str
    system: str
    turns: tuple[Turn, ...]
    offered: tuple[str, ...]
    structured: str | None
    forced_tool: str | None
    parallel: bool
    max_tokens: int | None
    stream: bool
    prefill: str = ""
    stop: tuple[str, ...] = ()
    stream_usage: bool = True

    @property
    def fingerprint(self) -> str:
        """Hash of the whole request, from which ids are made."""
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
        """Whether the agent is spoken to, or a judge."""
        if self.structured in JUDGE_QUESTIONS:
            return "judge"
        return "drift" if self.structured == DRIFT_QUESTION else "agent"


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


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that an API answers with.

    Attributes:
        status: HTTP status.
        kind: The error's `type`.
        message: The error's message.
        param: The parameter at fault (Chat Completions only).
        code: The error's code (Chat Completions only).
    """

    status: int
    kind: str
    message: str
    param: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class WireFormat:
    """The format of one API.

    Attributes:
        key_of: Finds the key in a request's headers; None if there is none.
        auth_refusal: What a missing (None) or wrong key gets.
        unknown_model: What the name of a model that does not exist gets.
        status_refusal: The error that the real API sends with a status, for a model.
        error_body: An error in the format's shape, with the id of the request.
        headers: Headers of every answer: the id of the request, what is left of a limit.
        read: From headers, body and raw body: the conversation that a request to a model holds, or
            why it holds none.
        write: The parts of an answer's body: one, or the events of a stream.
    """

    key_of: Callable[[Mapping[str, str]], str | None]
    auth_refusal: Callable[[str | None], Refusal]
    unknown_model: Callable[[str], Refusal]
    status_refusal: Callable[[int, str], Refusal]
    error_body: Callable[[Refusal, str], dict[str, Any]]
    headers: Callable[[str], tuple[tuple[str, str], ...]]
    read: Callable[
        [Mapping[str, str], dict[str, Any], bytes, ModelSpec | None], TalkRequest | Refusal
    ]
    write: Callable[[TalkRequest, Reply], tuple[bytes, ...]]


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
        self._turns[-1][1].append(ToolCall(name, arguments, json_or_text(result)))

    def build(self) -> tuple[Turn, ...]:
        """The turns so far."""
        return tuple(Turn("\n".join(texts), tuple(calls)) for texts, calls in self._turns)


def estimate_tokens(text: str) -> int:
    """Estimated tokens of a text: four characters each, rounded up."""
    return (len(text) + 3) // 4


def usage_of(conversation: TalkRequest, reply: Reply, text: str) -> Usage:
    """The usage to report for a reply whose visible output is `text`."""
    if reply.usage is not None:
        return reply.usage
    calls = sum(estimate_tokens(call.name + call.arguments_text) for call in reply.calls)
    prompt = max(1, len(conversation.raw_body) // 4)
    return Usage(prompt, estimate_tokens(text) + calls)


def shape(reply: Reply, conversation: TalkRequest) -> tuple[str | None, Reply]:
    """Applies what the request asked for to the text of a reply: prefill, stop texts, length.

    Returns:
        The text to send, None for none, and the reply with the reason why it ended.
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


def text_of(content: Node) -> str:
    """The text of a message: its content, or the parts of it that are text, line by line."""
    if isinstance(content.value, str):
        return content.value
    parts = [part for part in content.items() if part.entry("type").text() == "text"]
    return "\n".join(part.entry("text").text() for part in parts)


def words_of(text: str) -> list[str]:
    """The text in parts of a word each, as a stream carries it; joined they are the text."""
    return re.findall(r"\s*\S+|\s+", text)


def server_sent(data: dict[str, Any]) -> bytes:
    """An event of a stream, named by its `type`."""
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode("ascii")
