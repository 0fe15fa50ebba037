"""The MCP servers whose tools a model calls in one conversation.

A server is an agent that takes a call as a message, and answers with its result. It is opened for
the first call of one of its tools, and closed with the conversation.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Self
from uuid import uuid4

from kindlm.errors import Err, KindlmError, Result
from kindlm.ports import Agent, AgentRequest
from kindlm.transcript import Message, Role, ToolCall


class ToolServerFailed(Exception):  # noqa: N818 - it names what became of it
    """A server gave no result: `error` says why."""

    def __init__(self, error: KindlmError) -> None:
        super().__init__(error.message)
        self.error = error


class ToolServers:
    """Calls tools on their servers.

    Args:
        open_server: returns the agent that is a server, by its id, and the seconds for one call.
    """

    def __init__(self, open_server: Callable[[str], tuple[Result[Agent], float]]) -> None:
        self._open_server = open_server
        self._stack = AsyncExitStack()
        self._opened: dict[str, tuple[Agent, float]] = {}
        self._conversation = ""

    async def __aenter__(self) -> Self:
        """Open nothing yet: most conversations call the tools of few servers."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close all servers that were opened."""
        await self._stack.aclose()

    async def call(self, server: str, call: ToolCall) -> Any:
        """Return the result of a call as JSON; raise `ToolServerFailed` if there is none."""
        self._conversation = self._conversation or uuid4().hex
        if server not in self._opened:
            opened, timeout_s = self._open_server(server)
            if isinstance(opened, Err):
                raise ToolServerFailed(opened.error)
            agent = await self._stack.enter_async_context(opened.value)
            self._opened[server] = agent, timeout_s
        agent, timeout_s = self._opened[server]
        text = json.dumps({"tool": call.name, "arguments": call.arguments}, ensure_ascii=False)
        request = AgentRequest(self._conversation, (Message(Role.USER, text),), timeout_s)
        answered = await agent.send(request)
        if isinstance(answered, Err):
            raise ToolServerFailed(answered.error)
        return answered.value.tool_uses[0].response
