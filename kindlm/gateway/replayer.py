"""What the gateway asks instead of a provider while a run replays agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """A whole answer of a provider; `body` is not packed. `call` is where it is recorded.

    That is execution, attempt and number, such as `k3f9x2ab-17.1/3`. `cost_usd` is what it cost
    then, None if that is not known; `latency_ms` is what it took.
    """

    status: int
    content_type: str
    body: bytes
    call: str
    cost_usd: float | None = None
    latency_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Miss:
    """Why there is no recorded answer to a request, and what differs from those that were made."""

    text: str


class Replayer(Protocol):
    """Answers the calls that agents make of models with what was recorded."""

    def answer(self, subject: str, path: str, body: Any) -> RecordedAnswer | Miss:
        """Return the recorded answer to a request, or why there is none.

        Args:
            subject: the attempt that asks now, as in `CallDesk.subject`: `k3f9x2ab-17.1`.
            path: the provider and its path, as recorded: `openai/chat/completions`,
                `openai/responses`, `anthropic/messages`; never with `v1/`.
            body: the JSON value of the request; None if it is no JSON.
        """
        ...
