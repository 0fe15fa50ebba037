"""What a script is handed for one trial."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable
from typing import Protocol

from kindlm.errors import Result, SourceLocation
from kindlm.events import Payload
from kindlm.outcome import CheckResult
from kindlm.ports.agents import AgentReply
from kindlm.ports.checks import Question
from kindlm.ports.models import ModelReply
from kindlm.suite import Expectation

__all__ = ["Stage"]


class Stage(Protocol):
    """What one trial of a script has: an agent to talk to, and checks of what was said.

    Once the trial is over, methods raise `asyncio.CancelledError`, and coroutines never return.
    """

    @property
    def turns(self) -> int:
        """How many messages were sent so far."""
        ...

    async def send(self, text: str) -> Result[AgentReply]:
        """Send a message of the user to the agent under test, and return its answer.

        It is recorded, priced and tried again like any other. After an error the conversation is
        over, and whatever is sent gets the same error.
        """
        ...

    def evaluate(self, expectation: Expectation, *, now: bool = False) -> Future[CheckResult]:
        """Check what was said until now, and record what comes of it.

        What asks nobody and takes no time is done when this returns, with `now` also what takes
        time. The rest goes on beside the script, and is awaited before the trial ends.
        """
        ...

    def conclude(
        self, expectation: Expectation, finding: Awaitable[CheckResult] | CheckResult
    ) -> Future[CheckResult]:
        """Record what the script itself found out, now or once it knows."""
        ...

    def record_score(self, name: str, value: float, where: SourceLocation | None) -> None:
        """Record a number from 0 to 1, which decides nothing and is compared between runs."""
        ...

    async def ask(self, question: Question) -> Result[ModelReply]:
        """Put a question to a model on behalf of the script; recorded, priced and tried again."""
        ...

    def record(self, payload: Payload) -> None:
        """Record what else happened in this trial."""
        ...
