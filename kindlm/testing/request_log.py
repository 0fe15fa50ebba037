"""What the server was asked and answered: in memory, and as JSON Lines if wanted.

A line is on its way to the file before the first byte of the answer is: whatever a client has
seen is in the log, also if the client is killed the next moment. Keys are never written, only
whether one was there and whether it was accepted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KeyState = Literal["missing", "accepted", "refused"]

_LOGGED_HEADERS = frozenset(
    (
        "accept",
        "anthropic-beta",
        "anthropic-version",
        "content-length",
        "content-type",
        "expect",
        "host",
        "openai-organization",
        "openai-project",
        "transfer-encoding",
        "user-agent",
        "x-stainless-retry-count",
    )
)


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request and how it was answered.

    Attributes:
        number: Order of arrival, from 1.
        at: When it arrived.
        method: HTTP method.
        path: Route.
        model: Model asked for, None if unreadable.
        asks: Its purpose: agent, judge or drift; None for other routes and refused requests.
        key: Whether a key came with it, and whether it was accepted.
        headers: Harmless headers.
        raw_body: The body as received.
        status: Status of the answer, also where a fault then cut it off.
        rule: Name of the script's rule that replied, None if none did.
        fault: The fault that was played, None for none.
    """

    number: int
    at: datetime
    method: str
    path: str
    model: str | None
    asks: str | None
    key: KeyState
    headers: Mapping[str, str]
    raw_body: bytes
    status: int
    rule: str | None
    fault: str | None

    @property
    def body(self) -> Any:
        """The body as JSON, or as text if it is none."""
        try:
            return json.loads(self.raw_body)
        except (ValueError, RecursionError):
            return self.raw_body.decode("utf-8", "replace")

    def as_dict(self) -> dict[str, Any]:
        """The entry as plain data."""
        return {
            "number": self.number,
            "at": self.at.isoformat(),
            "method": self.method,
            "path": self.path,
            "model": self.model,
            "asks": self.asks,
            "key": self.key,
            "headers": dict(self.headers),
            "body": self.body,
            "status": self.status,
            "rule": self.rule,
            "fault": self.fault,
        }


class RequestLog:
    """All requests so far. Written by the server's thread, readable from any."""

    def __init__(self, path: Path | None = None) -> None:
        self._entries: list[LoggedRequest] = []
        self._file = path.open("a", encoding="utf-8") if path is not None else None

    def next_number(self) -> int:
        """The number of the next request."""
        return len(self._entries) + 1

    def add(self, entry: LoggedRequest) -> None:
        """Keeps an entry; it has reached the operating system when this returns."""
        self._entries.append(entry)
        if self._file is not None:
            self._file.write(json.dumps(entry.as_dict()) + "\n")
            self._file.flush()

    def entries(self) -> tuple[LoggedRequest, ...]:
        """The requests so far, in order of arrival."""
        return tuple(self._entries)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()


def harmless(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that may be logged."""
    return {name: value for name, value in headers.items() if name in _LOGGED_HEADERS}


def now() -> datetime:
    """The time of arrival."""
    return datetime.now(UTC)
