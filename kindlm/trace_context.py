"""The W3C trace context that goes along with the messages to an agent under test."""

from __future__ import annotations

import hashlib
import re

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
