"""What code in the process of an agent can know of the message that it is answering."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar

MESSAGE_HEADERS: ContextVar[Mapping[str, str]] = ContextVar("kindlm_message_headers")
"""`AgentRequest.headers` of the message that this task or thread answers; unset elsewhere.

Tasks have it that an agent starts, and threads that get a copy of its context, as those of
`asyncio.to_thread` do. A thread that an agent starts by itself does not.
"""
