"""The `mcp` adapter: MCP servers, whose tools kindlm calls one by one.

A message is a call as JSON, `{"tool", "arguments"}`; the answer is its result. A server that is a
program starts with the first call of a conversation and ends with the conversation. A server at an
address has a session for each conversation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from kindlm.agents.agent_failures import AgentFailure, Who
from kindlm.agents.http_request import last_user_text, request_warnings
from kindlm.agents.mcp_connection import HttpLink, McpConnection, ProgramLink
from kindlm.agents.sandbox import LocalSandbox, ProgramOptions, ProgramWho, program_secrets
from kindlm.agents.served import http_target
from kindlm.dataclass import replace
from kindlm.errors import Err, Ok, Result
from kindlm.ports import Agent, AgentReply, AgentRequest
from kindlm.spelling import Spelling
from kindlm.strict_json import read_json
from kindlm.suite import AgentTarget, ListedTools
from kindlm.transcript import ToolCall
from kindlm.values import check_url

_FORM = 'Write it like {"tool": "lookup_order", "arguments": {"order_id": "A1"}}'


class Mcp(ProgramOptions):
    """Options of MCP servers: programs (`command`), or addresses (`url`)."""

    system_text_hint: ClassVar[str] = "An MCP server takes tool calls, not messages: use `call`"

    @classmethod
    def check_endpoint(cls, endpoint: str) -> None:
        check_url(endpoint)

    def wants_endpoint(self) -> bool:
        return self.command is None

    @property
    def starts_program(self) -> bool:  # type: ignore[override]
        return self.command is not None

    def sends_system_text(self) -> bool:
        return False

    def without_meaning(
        self,
        spelling: Spelling,  # noqa: ARG002
    ) -> Iterator[tuple[str, str, str]]:
        where, keys = "a `url`", ["env", "cwd"]
        if self.command is not None:
            where, keys = "a `command`", ["endpoint", "url", "headers"]
        for key in keys:
            yield key, f"for an MCP server with {where}", "Remove it, or what it contradicts"

    def open(self, target: AgentTarget, environ: Mapping[str, str]) -> McpAgent | Err:
        if not self.words:
            server = http_target(target)
            return McpAgent(server.who, lambda: HttpLink(server))
        who = ProgramWho(target.id, program_secrets(self.env), tuple(self.words))
        folder = (Path(target.directory or ".") / self.cwd).resolve()
        sandbox = LocalSandbox(folder, {**environ, **self.env})
        return McpAgent(who, lambda: ProgramLink(who, sandbox))


class McpAgent(Agent):
    """Calls one tool for each message; `link` makes the link of a new connection."""

    def __init__(self, who: Who, link: Callable[[], ProgramLink | HttpLink]) -> None:
        self._who = who
        self._link = link
        self._connection: McpConnection | None = None
        self._calls = 0

    async def __aexit__(self, *exception: object) -> None:
        await self._close()

    async def send(self, request: AgentRequest) -> Result[AgentReply]:
        """Make one call; see `ports.Agent`.

        A server that did not handle the call keeps its session, for the next try. After another
        error, the next call connects anew.
        """
        match read_json(last_user_text(request)):
            case {"tool": str(tool), **rest} if not rest.keys() - {"arguments"}:
                arguments = rest.get("arguments", {})
            case _:
                arguments = None
        if not isinstance(arguments, dict):
            return Err(self._who.misconfigured("the message is not a tool call", _FORM))
        try:
            connection = await self._connected(request.timeout_s)
            call = ToolCall(f"call_{self._calls + 1}", tool, arguments)
            reply = await connection.call(call, request.headers, request.timeout_s)
        except AgentFailure as failed:
            is_kept = self._connection is not None and self._connection.is_open
            if not (is_kept and failed.error.details["retryable"]):
                await self._close()
            return Err(failed.error)
        self._calls += 1
        warnings = request_warnings(request, sends_system=False, sends_context=False)
        return Ok(replace(reply, warnings=warnings))

    async def list_tools(self, timeout_s: float) -> Result[ListedTools]:
        try:
            connection = await self._connected(timeout_s)
            listed = await connection.list_tools(timeout_s)
        except AgentFailure as failed:
            await self._close()
            return Err(failed.error)
        by_name = sorted(listed, key=lambda tool: str(tool["name"]))
        digest = hashlib.sha256(json.dumps(by_name, sort_keys=True).encode()).hexdigest()
        identity = connection.identity
        return Ok(ListedTools(self._who.name, identity, digest[:12], listed))

    async def _connected(self, timeout_s: float) -> McpConnection:
        if self._connection is None:
            self._connection = McpConnection(self._link())
            await self._connection.open(timeout_s)
        return self._connection

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()
