"""The agent that a scenario talks to."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Sequence
from typing import Any

from kindlm.errors import Err
from kindlm.ports import Stage
from kindlm.scenarios.persona import Message
from kindlm.scenarios.place import Place
from kindlm.scenarios.reply import Reply, reply_of
from kindlm.scenarios.simulated_user import Exchange
from kindlm.scenarios.stopping import AgentError
from kindlm.scenarios.thread_desk import ThreadDesk
from kindlm.scenarios.unawaited import Begun


class AgentUnderTest:
    """The agent that a scenario talks to; every trial has a conversation of its own."""

    def __init__(self, stage: Stage, place: Place, begun: Begun) -> None:
        self._stage = stage
        self._place = place
        self._begun = begun
        self._said: list[Exchange] = []
        self._replies: list[Reply] = []

    @property
    def said(self) -> Sequence[Exchange]:
        """What was said so far."""
        return self._said

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
        self._said.append(Exchange(text, step.text))
        reply = reply_of(step, body, self._stage.turns)
        self._replies.append(reply)
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
            raise TypeError(f"checks are of what t.agent.send returned, not of {reply!r}{hint}")
        if not any(reply is each for each in self._replies):
            raise ValueError(
                "this is no answer in this run of the scenario: check what t.agent.send returned"
                " in it, unchanged"
            )
        return reply


class SyncAgentUnderTest:
    """The agent that a scenario talks to which is no `async` function."""

    def __init__(self, agent: AgentUnderTest, thread: ThreadDesk) -> None:
        self._agent = agent
        self._thread = thread

    def send(self, message: str | Message) -> Reply:
        """Send a message of the user, once, and return what the agent answers.

        Raises:
            AgentError: the agent gave no answer, also when it was asked again; the trial is then
                errored.
        """
        return self._thread.wait_for(self._agent.send(message))


class AgentInThread:
    """An agent for what is written for the event loop, and runs in the thread of a scenario."""

    def __init__(self, agent: AgentUnderTest, thread: ThreadDesk) -> None:
        self._agent = agent
        self._thread = thread

    @property
    def said(self) -> Sequence[Exchange]:
        """What was said so far."""
        return self._agent.said

    async def send(self, message: str | Message) -> Reply:
        """Send a message of the user, and block until there is an answer."""
        return self._thread.wait_for(self._agent.send(message))
