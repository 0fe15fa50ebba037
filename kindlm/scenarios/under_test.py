"""The conversation of a scenario with the agent under test: messages and replies."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import field
from typing import Any, TypeAlias, TypeVar

from kindlm.dataclass import dataclass, replace
from kindlm.errors import Err, SourceLocation
from kindlm.ports import Stage
from kindlm.scenarios.function_thread import FunctionThread
from kindlm.transcript import Message as SaidMessage
from kindlm.transcript import Role, Step, ToolCall, Usage
from kindlm.wording import shown
from kindlm_store import REDACTED

Place: TypeAlias = Callable[[], SourceLocation]
"""Tells where the test is that asks for something."""


class AgentError(Exception):
    """The agent under test gave no answer; the execution is errored even if a test catches this."""


@dataclass(frozen=True, slots=True)
class Persona:
    """A person who talks to the agent. Only a simulated user sees more of it than its name."""

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


T = TypeVar("T")


@dataclass(slots=True)
class Begun:
    """The coroutines that a scenario was given, each with its call and its place.

    Python only prints a warning for a coroutine that is never awaited: a test whose message was
    never sent would pass.
    """

    _handed_out: list[tuple[str, SourceLocation, Coroutine[Any, Any, Any]]] = field(
        default_factory=list
    )

    def hand_out(
        self, what: str, where: SourceLocation, work: Coroutine[Any, Any, T]
    ) -> Coroutine[Any, Any, T]:
        """Return a coroutine, and remember it."""
        self._handed_out.append((what, where, work))
        return work

    def forgotten(self) -> tuple[str, SourceLocation] | None:
        """Return the call and place of the first that was not awaited; close all that were not."""
        waiting = [
            (what, where, work)
            for what, where, work in self._handed_out
            if inspect.getcoroutinestate(work) == inspect.CORO_CREATED
        ]
        for _, _, work in waiting:
            work.close()
        return waiting[0][:2] if waiting else None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the agent: its `text`, the `tool_calls` that it made, and the `raw` body.

    Attributes:
        usage: `input_tokens` and `output_tokens`; None if it reported neither.
        latency_ms: how long it took, in milliseconds.
        turn: which answer of the conversation it is, from 1.
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
        """What it said.

        Raises:
            LookupError: a recorded run is looked at again, and a secret was taken out of this.
        """
        self._refuse_what_lacks(self._text, "text")
        return self._text

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tools that it called for this answer, each with `name` and `arguments`.

        Raises:
            LookupError: a recorded run is looked at again, and a secret was taken out of these.
        """
        for call in self._tool_calls:
            written = json.dumps([call.arguments, call.malformed])
            self._refuse_what_lacks(written, "tool_calls")
        return self._tool_calls

    @property
    def raw(self) -> str:
        """The body as it was received.

        Raises:
            LookupError: a recorded run is looked at again, and the body is not kept there any more,
                or a secret was taken out of it.
        """
        if self._raw is None:
            raise LookupError(
                "the body of this answer is no longer stored, so reply.raw is unavailable. Run "
                "the scenario again: kindlm test"
            )
        self._refuse_what_lacks(self._raw, "raw")
        return self._raw

    def mentions(self, text: str) -> bool:
        """Return whether the answer contains a text, whatever its case."""
        return text.lower() in self.text.lower()

    def __str__(self) -> str:
        """Return what it said."""
        return self.text

    def _refuse_what_lacks(self, written: str, name: str) -> None:
        if self._is_recorded and REDACTED in written:
            # What is written of it instead would turn the findings of a test round.
            raise LookupError(
                f"a secret was removed from this answer when it was recorded, so reply.{name} "
                "is unavailable. Run the scenario again: kindlm test"
            )


def reply_of(answer: Step, raw: str | None, turn: int) -> Reply:
    """Return an answer of the agent as a test sees it."""
    usage = answer.usage
    is_known = usage.input_tokens is not None or usage.output_tokens is not None
    return Reply(
        _text=answer.text,
        # Copies: what a test does to them changes nothing of what is checked.
        _tool_calls=tuple(
            replace(use.call, arguments=copy.deepcopy(use.call.arguments))
            for use in answer.tool_uses
        ),
        usage=usage if is_known else None,
        latency_ms=answer.latency_ms,
        _raw=raw,
        turn=turn,
        _is_recorded=answer.recorded,
    )


class AgentUnderTest:
    """The agent that a scenario talks to; every trial has a conversation of its own."""

    def __init__(self, stage: Stage, place: Place, begun: Begun) -> None:
        self._stage = stage
        self._place = place
        self._begun = begun
        self.said: list[tuple[str, str]] = []
        """The messages of the user so far, each with what the agent answered."""
        self.replies: list[Reply] = []
        """What it answered so far."""

    @property
    def messages(self) -> tuple[SaidMessage, ...]:
        """What the user and the agent said so far; see `Trial.messages`."""
        return tuple(
            message
            for (text, _), reply in zip(self.said, self.replies, strict=True)
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
        return self._begun.hand_out("t.agent.send(…)", self._place(), self._send(message))

    async def _send(self, message: str | Message) -> Reply:
        text = message.text if isinstance(message, Message) else message
        if not isinstance(text, str):
            raise TypeError(f"send takes a text, or persona.says(text), not {text!r}")
        answer = await self._stage.send(text)
        if isinstance(answer, Err):
            raise AgentError(answer.error.message)
        step, body = answer.value
        self.said.append((text, step.text))
        reply = reply_of(step, body, self._stage.turns)
        self.replies.append(reply)
        return reply

    def answered(self, reply: object) -> Reply:
        """Return what a check is asked for about, which has to be an answer in this conversation.

        Checks look at what was recorded: of a changed answer, or of one of another trial, they
        would say something that is not true.

        Raises:
            TypeError: it is no answer.
            ValueError: it is no answer in this conversation.
        """
        if not isinstance(reply, Reply):
            hint = ": await it first" if inspect.isawaitable(reply) else ""
            given = shown(repr(reply))
            raise TypeError(f"this is about what t.agent.send returned, not {given}{hint}")
        if not any(reply is each for each in self.replies):
            raise ValueError(
                "this answer does not belong to this run of the scenario: check what"
                " t.agent.send returned in it, unchanged"
            )
        return reply


class SyncAgentUnderTest:
    """The agent as a scenario that is not `async` sees it."""

    def __init__(self, agent: AgentUnderTest, thread: FunctionThread) -> None:
        self._agent = agent
        self._thread = thread

    def send(self, message: str | Message) -> Reply:
        """Send a message of the user, once, and return what the agent answers.

        Raises:
            AgentError: the agent gave no answer, also when it was asked again; the trial is then
                errored.
        """
        return self._thread.wait_for(self._agent.send(message))
