"""The conversation of a scenario with the agent under test: messages and replies."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import field
from typing import Any, TypeAlias, TypeVar

from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, ErrorCode, KindlmError, SourceLocation
from kindlm.ports import CUT_OFF, Stage
from kindlm.scenarios.function_thread import FunctionThread
from kindlm.transcript import Message as SaidMessage
from kindlm.transcript import Role, ToolCall, Usage
from kindlm.wording import shown
from kindlm_store import REDACTED

Place: TypeAlias = Callable[[], SourceLocation]
"""Returns the current line of the test."""

T = TypeVar("T")


class AgentError(Exception):
    """The agent under test gave no answer; the execution is errored even if a test catches this."""


@dataclass(frozen=True, slots=True)
class Persona:
    """A person who talks to the agent; only a simulated user uses more of it than the name."""

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
    """A message of a persona."""

    text: str
    persona: Persona


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the agent: its `text`, its `tool_calls`, and the `raw` body.

    Attributes:
        usage: `input_tokens` and `output_tokens`; None if the agent reported neither.
        latency_ms: the time until the answer, in milliseconds.
        turn: the number of the answer in the conversation, from 1.
    """

    _text: str
    _tool_calls: tuple[ToolCall, ...]
    usage: Usage | None
    latency_ms: float
    _raw: str | None = field(repr=False)
    turn: int
    _is_recorded: bool = field(repr=False)

    @property
    def text(self) -> str:
        """The text of the answer.

        Raises:
            LookupError: the answer is from a recorded run, which lacks a secret of the text.
        """
        self._refuse_redacted(self._text, "text")
        return self._text

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls for this answer, each with `name` and `arguments`.

        Raises:
            LookupError: the answer is from a recorded run, which lacks a secret of the calls.
        """
        for call in self._tool_calls:
            self._refuse_redacted(json.dumps([call.arguments, call.malformed]), "tool_calls")
        return self._tool_calls

    @property
    def raw(self) -> str:
        """The body as the agent sent it.

        Raises:
            LookupError: the answer is from a recorded run, which lacks the body or a secret of it.
        """
        if self._raw is None:
            raise LookupError(f"the body of this answer is no longer stored{_unavailable('raw')}")
        self._refuse_redacted(self._raw, "raw")
        return self._raw

    def mentions(self, text: str) -> bool:
        """Return whether the answer contains a text, in upper or lower case.

        Raises `ValueError` for an empty text, which every answer contains.
        """
        if not text:
            raise ValueError("the text of `mentions` is empty")
        return text.lower() in self.text.lower()

    def __str__(self) -> str:
        """Return the text of the answer."""
        return self.text

    def _refuse_redacted(self, text: str, name: str) -> None:
        if self._is_recorded and REDACTED in text:
            # With a placeholder in place of the secret, a check could turn out differently.
            lacks = "a secret was removed from this answer when it was recorded"
            raise LookupError(f"{lacks}{_unavailable(name)}")


def _unavailable(name: str) -> str:
    return f", so reply.{name} is unavailable. Run the scenario again: kindlm test"


class AgentUnderTest:
    """The agent that a scenario talks to, in the conversation of one trial."""

    def __init__(self, stage: Stage, place: Place) -> None:
        self._stage = stage
        self._place = place
        self._coroutines: list[tuple[str, SourceLocation, Coroutine[Any, Any, Any]]] = []
        """The tracked coroutines, each with its call and its place."""
        self._cut_off: SourceLocation | None = None
        """The place of a message that the test cut off before its answer, as with a timeout."""
        self.exchanges: list[tuple[str, str]] = []
        """The user's messages so far, each with the text of the agent's answer."""
        self.replies: list[Reply] = []
        """The agent's answers so far."""

    @property
    def messages(self) -> tuple[SaidMessage, ...]:
        """The messages so far; see `Trial.messages`."""
        return tuple(
            message
            for (text, _), reply in zip(self.exchanges, self.replies, strict=True)
            for message in (
                SaidMessage(Role.USER, text),
                SaidMessage(Role.ASSISTANT, reply.text, reply.tool_calls),
            )
        )

    def send(self, message: str | Message) -> Coroutine[Any, Any, Reply]:
        """Send a message of the user, once, and return what the agent answers.

        Raises:
            AgentError: the agent gave no answer, also when it was asked again; the trial is then
                errored.
        """
        return self.track("t.agent.send(…)", self._send(message, self._place()))

    def track(self, call: str, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Remember a coroutine, which has no effect if it is never awaited, and return it."""
        self._coroutines.append((call, self._place(), work))
        return work

    def unawaited(self) -> KindlmError | None:
        """Return the error of the first coroutine that was not awaited to its end.

        Those that never ran are closed. After a message without an answer, checks would read the
        wrong answers.
        """
        error, code = None, ErrorCode.ASSERTION_EVAL_ERROR
        if (at := self._cut_off) is not None:
            error = replace(CUT_OFF, where=at)
        for call, where, work in reversed(self._coroutines):
            state = inspect.getcoroutinestate(work)
            if state == inspect.CORO_CREATED:
                work.close()
                message = f"The scenario never awaited {call}, so it had no effect."
                hint = f"Write `await {call}` in line {where.line}."
                error = KindlmError(code, message, hint, where)
            elif state == inspect.CORO_SUSPENDED:
                message = f"The scenario ended while {call} still ran."
                error = KindlmError(code, message, "Wait for its end.", where)
        return error

    async def _send(self, message: str | Message, where: SourceLocation) -> Reply:
        text = message.text if isinstance(message, Message) else message
        if not isinstance(text, str):
            raise TypeError(f"send takes a text, or persona.says(text), not {text!r}")
        try:
            answer = await self._stage.send(text)
        except BaseException:
            self._cut_off = where
            raise
        if isinstance(answer, Err):
            raise AgentError(answer.error.message)
        step, body = answer.value
        is_known = {step.usage.input_tokens, step.usage.output_tokens} != {None}
        reply = Reply(
            _text=step.text,
            # Copies, since a test may change them, and checks read the originals.
            _tool_calls=tuple(
                replace(use.call, arguments=copy.deepcopy(use.call.arguments))
                for use in step.tool_uses
            ),
            usage=step.usage if is_known else None,
            latency_ms=step.latency_ms,
            _raw=body,
            turn=len(self.replies) + 1,
            _is_recorded=step.recorded,
        )
        self.exchanges.append((text, step.text))
        self.replies.append(reply)
        return reply

    def own_reply(self, reply: object) -> Reply:
        """Return the argument of a check, which must be an answer in this conversation.

        Checks read the recorded answer: their results would be wrong for a changed answer, or for
        an answer of another trial. Raises `TypeError` or `ValueError`.
        """
        if not isinstance(reply, Reply):
            hint = ": await it first" if inspect.isawaitable(reply) else ""
            given = shown(repr(reply))
            raise TypeError(f"this is about what t.agent.send returned, not {given}{hint}")
        if not any(reply is each for each in self.replies):
            message = "this answer does not belong to this run of the scenario"
            raise ValueError(f"{message}: check what t.agent.send returned in it, unchanged")
        return reply


class SyncAgentUnderTest:
    """The agent for a scenario that is not `async`."""

    def __init__(self, agent: AgentUnderTest, thread: FunctionThread) -> None:
        self._agent = agent
        self._thread = thread

    def send(self, message: str | Message) -> Reply:
        """Send a message of the user; see `AgentUnderTest.send`."""
        return self._thread.wait_for(self._agent.send(message))
