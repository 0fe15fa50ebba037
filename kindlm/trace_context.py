"""Headers of messages to agents, by which kindlm assigns what an agent does to a message."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextvars import ContextVar

EXECUTION_HEADER = "x-kindlm-execution"
"""Names the attempt of an execution within its run, such as `17.1`."""

MESSAGE_HEADERS: ContextVar[Mapping[str, str] | None] = ContextVar("message_headers", default=None)
"""The headers of the message that this task or thread answers, as an agent in this process.

They are empty where kindlm or a test does something itself. Tasks have them that the agent starts,
and threads that get a copy of its context, as those of `asyncio.to_thread` do. A thread that an
agent starts by itself does not.
"""


UNTRACED = {"traceparent": f"00-{1:032x}-{1:016x}-00"}
"""Goes along with what is not a message: a program that follows it makes no spans of it."""

_FORM = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


def trace_id(run: str, subject: str) -> str:
    """Return the id of the trace of one attempt: 32 hexadecimal digits, the same each time."""
    return _digest(f"{run}-{subject}", 32)


def traceparent(run: str, subject: str) -> str:
    """Return the header `traceparent` of one attempt; what it is sent with is sampled."""
    return f"00-{trace_id(run, subject)}-{_digest(f'{run}-{subject}/span', 16)}-01"


def trace_of(header: str) -> str | None:
    """Return the trace id in a header `traceparent`; None if it holds none."""
    found = _FORM.fullmatch(header.strip().lower())
    return None if found is None else found[1]


def _digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
