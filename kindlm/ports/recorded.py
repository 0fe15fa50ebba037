"""What earlier runs hold, to be looked at or given again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kindlm.errors import KindlmError, Result
from kindlm.plan import Execution
from kindlm.ports.agents import Agent
from kindlm.ports.models import ModelReply, ModelRequest, Purpose
from kindlm.transcript import Message, Transcript

__all__ = [
    "AnswerSource",
    "Asked",
    "HeldConversation",
    "NothingHeld",
    "RecordedAnswers",
    "TranscriptSource",
]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to a model as recorded ones are searched for: `fingerprint` is its identity.

    The texts of `request` hold no random boundary.
    """

    purpose: Purpose
    provider: str
    fingerprint: str
    request: ModelRequest


class RecordedAnswers(Protocol):
    """Gives one execution the answers of an earlier run; each of them at most once."""

    def answer(self, asked: Asked) -> Result[ModelReply] | None:
        """Return what was answered then, or why nothing was; None if the model is to be asked."""
        ...

    def agent(self) -> Agent | None:
        """Return an agent that answers as it did then; None if the real one is to be asked."""
        ...


AnswerSource = Callable[[Execution], RecordedAnswers]
"""Finds the recorded answers for an execution."""


@dataclass(frozen=True, slots=True)
class HeldConversation:
    """A conversation of an earlier run, as it is recorded.

    `source` names the attempt of the execution that held it, such as `k3f9x2ab-17.1`; `messages`
    are those it began with, `calls` is the number of its last call. `error` is what ended it.
    """

    source: str
    transcript: Transcript
    messages: tuple[Message, ...]
    error: KindlmError | None = None
    warnings: tuple[str, ...] = ()
    calls: int = 0
    bodies: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class NothingHeld:
    """That an earlier run holds no conversation for an execution, and why."""

    reason: str


class TranscriptSource(Protocol):
    """Knows the conversations of an earlier run."""

    def find(self, execution: Execution) -> HeldConversation | NothingHeld:
        """Return the conversation of the same test, target and repeat."""
        ...
