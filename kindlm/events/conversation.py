"""Folds the events of a conversation into its transcript.

Live checks and rescored, replayed and cached runs use this one fold. Pages and reports do not: they
read the table `provider_calls`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kindlm.events.calls import (
    AgentReplied,
    AgentSent,
    ProviderRequested,
    ProviderResponded,
    ToolSimulated,
)
from kindlm.events.codec import Payload
from kindlm.events.execution import ExecutionStarted
from kindlm.transcript import Role, ToolUse, Transcript
from kindlm_store.new_event import scrub


@dataclass(eq=False)
class Conversation:
    """A conversation with the target under test, as its events come; calls to judges are not of it.

    `transcript` is what was said so far, as it can be stored.
    """

    transcript: Transcript = Transcript()
    _waiting: ProviderResponded | None = field(default=None, init=False)
    _uses: list[ToolUse] = field(default_factory=list, init=False)

    def add(self, event: Payload) -> None:
        """Take in the next event; one by which nothing is said changes nothing."""
        match event:
            # The first message of a scenario comes with its first call. What is tried again is not
            # said again.
            case ExecutionStarted() | ProviderRequested(attempt=1) | AgentSent(attempt=1):
                for message in event.messages:
                    if message.role is Role.USER:
                        self.transcript = self.transcript.with_turn(scrub(message.text))
                    elif message.role is Role.SYSTEM:
                        self.transcript = replace(self.transcript, system=scrub(message.text))
            # An answer of blanks was an error when it came, and no step.
            case ProviderResponded() | AgentReplied() if not (
                event.tool_calls or event.text.strip()
            ):
                self._waiting = None
            case AgentReplied() | ProviderResponded(tool_calls=()):
                self.transcript, self._waiting = self.transcript.with_step(event.step()), None
            case ProviderResponded():
                self._waiting, self._uses = event, []
            case ToolSimulated() if self._waiting is not None:
                asked = self._waiting
                call = asked.tool_calls[len(self._uses)]
                self._uses.append(ToolUse(call, event.response, event.rule, tuple(event.problems)))
                if len(self._uses) == len(asked.tool_calls):
                    self.transcript = self.transcript.with_step(asked.step(self._uses))
                    self._waiting = None
