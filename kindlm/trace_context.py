"""Headers of messages to agents, by which kindlm assigns calls and spans to a message."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextvars import ContextVar

EXECUTION_HEADER = "x-kindlm-execution"
"""The header with the attempt of an execution, such as `17.1`."""

MESSAGE_HEADERS: ContextVar[Mapping[str, str] | None] = ContextVar("message_headers", default=None)
"""The headers of the message that an agent in this process is answering.

They are empty or None for work of kindlm or a test itself. Tasks that the agent starts inherit
them, and so do threads with a copy of its context, such as those of `asyncio.to_thread`.
"""


UNTRACED = {"traceparent": f"00-{1:032x}-{1:016x}-00"}
"""Headers for requests that are no messages: programs do not record spans for them."""

_FORM = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


def trace_id(run: str, subject: str) -> str:
    """Return the trace id of an attempt: 32 hexadecimal digits, the same each time."""
    return _digest(f"{run}-{subject}", 32)


def traceparent(run: str, subject: str) -> str:
    """Return the header `traceparent` of an attempt, which requests that spans are recorded."""
    return f"00-{trace_id(run, subject)}-{_digest(f'{run}-{subject}/span', 16)}-01"


def trace_of(header: str) -> str | None:
    """Return the trace id in a header `traceparent`, None if it has none."""
    found = _FORM.fullmatch(header.strip().lower())
    return None if found is None else found[1]


def _digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
