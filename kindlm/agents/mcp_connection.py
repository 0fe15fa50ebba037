"""A connection to an MCP server, held by a task of its own.

So a caller may be cut off at any moment. The package `mcp` (the extra `kindlm[mcp]`) speaks
the protocol. Whatever a server does, an exchange ends in time: with what it answered, or with an
error that says what it did instead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from kindlm.agents.http_exchange import HttpTarget
from kindlm.agents.mcp_links import HttpLink, ProgramLink, StartedServer
from kindlm.agents.sandbox import MAX_OUTPUT_BYTES
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result

MAX_TOOLS = 1000
"""Tools that a server may list: providers take far fewer, and all of them are recorded."""

# What the package logs of answers holds what they hold: errors say it, without secrets.
logging.getLogger("mcp").addHandler(logging.NullHandler())

_CLOSE_S = 5.0
_KEPT = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_INSTALL = "Install it: pip install 'kindlm[mcp]'"


@dataclass(frozen=True, slots=True)
class Called:
    """What came back from a call: the result as the protocol has it, or `error`, its refusal."""

    result: Mapping[str, Any]
    latency_ms: float
    error: str | None = None


class McpConnection:
    """One connection; `open` comes first, `aclose` last, and after an error nothing but that.

    Args:
        server: the program or the address.
    """

    def __init__(self, server: StartedServer | HttpTarget) -> None:
        self._server = server
        self._session: Any = None
        self._holding: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._failed = False
        self._link: ProgramLink | HttpLink | None = None

    async def open(self, timeout_s: float) -> KindlmError | None:
        """Connect, and agree on a version of the protocol; return the error if that fails."""
        if find_spec("mcp") is None:
            message = f"{self._server.who.title} needs the package mcp, which is not installed"
            return KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, _INSTALL)
        server = self._server
        self._link = ProgramLink(server) if isinstance(server, StartedServer) else HttpLink(server)
        opened = asyncio.get_running_loop().create_future()
        self._holding = asyncio.create_task(self._hold(self._link, opened))
        connected = await self._answered(lambda: asyncio.shield(opened), timeout_s)
        return connected.error if isinstance(connected, Err) else None

    async def _hold(self, link: ProgramLink | HttpLink, opened: asyncio.Future[None]) -> None:
        """Hold the connection until it is closed. How it ends concerns those who wait alone."""
        from mcp import Client
        from mcp_types import Implementation

        client_info = Implementation(name="kindlm", version=version("kindlm"))
        try:
            async with Client(link.streams(), client_info=client_info, cache=None) as client:
                self._session = client.session
                opened.set_result(None)
                await self._closing.wait()
        except BaseException as raised:  # noqa: BLE001 - also groups that hold what was cancelled
            if not opened.done():
                opened.set_exception(_first(raised))
                opened.exception()

    @property
    def identity(self) -> str | None:
        """The name and version of the server, as it says itself."""
        info = self._session.server_info
        return None if info is None else f"{info.name} {info.version}"

    async def list_tools(self, timeout_s: float) -> Result[list[dict[str, Any]]]:
        """Return all tools that the server lists, page by page."""

        async def pages() -> list[Mapping[str, Any]] | None:
            from mcp_types import ListToolsRequest, ListToolsResult, PaginatedRequestParams

            found: list[Mapping[str, Any]] = []
            size, cursor = 0, None
            while True:
                asked = ListToolsRequest(params=PaginatedRequestParams(cursor=cursor))
                page = await self._session.send_request(asked, ListToolsResult)
                found += [_as_json(tool) for tool in page.tools]
                cursor, size = page.next_cursor, size + len(page.model_dump_json())
                if len(found) > MAX_TOOLS or size > MAX_OUTPUT_BYTES:
                    return None
                if not cursor:
                    return found

        listed = await self._answered(pages, timeout_s)
        if isinstance(listed, Err):
            return listed
        if listed.value is None:
            most = f"{MAX_TOOLS:,} tools, or {MAX_OUTPUT_BYTES // 1_000_000} MB"
            return self._refused(f"lists more than {most}")
        tools = [{key: tool[key] for key in _KEPT if key in tool} for tool in listed.value]
        if len({tool["name"] for tool in tools}) < len(tools):
            return self._refused("lists two tools with the same name")
        return Ok(tools)

    def send_along(self, headers: Mapping[str, str]) -> None:
        """Send headers with all requests from now on, where there are requests."""
        if isinstance(self._link, HttpLink):
            self._link.send_along(headers)

    async def call(
        self, tool: str, arguments: Mapping[str, Any], timeout_s: float
    ) -> Result[Called]:
        """Call a tool. That the server refuses the call is an answer, too."""

        async def answer() -> tuple[Mapping[str, Any], str | None]:
            from mcp import MCPError
            from mcp_types import (
                CONNECTION_CLOSED,
                CallToolRequest,
                CallToolRequestParams,
                CallToolResult,
            )

            params = CallToolRequestParams(name=tool, arguments=dict(arguments))
            asked = CallToolRequest(params=params)
            try:
                return _as_json(await self._session.send_request(asked, CallToolResult)), None
            except MCPError as refused:
                if refused.code == CONNECTION_CLOSED or self._link is None or self._link.is_over:
                    raise
                return {"code": refused.code, "message": refused.message}, refused.message

        begun = time.perf_counter()
        answered = await self._answered(answer, timeout_s)
        if isinstance(answered, Err):
            return answered
        result, error = answered.value
        return Ok(Called(result, (time.perf_counter() - begun) * 1000, error))

    async def _answered(self, ask: Callable[[], Awaitable[Any]], timeout_s: float) -> Result[Any]:
        """Wait for an answer for so long; return the error of what came in its place."""
        try:
            async with asyncio.timeout(timeout_s):
                return Ok(await ask())
        except Exception as raised:  # noqa: BLE001 - whatever a server makes the package raise
            assert self._link is not None, "an answer comes from a server"
            self._failed = True
            return Err(self._link.error(_first(raised), timeout_s))

    def _refused(self, what: str) -> Err:
        message = f"{self._server.who.title} {what}"
        hint = "Models are sent all tools with each request, and tell them apart by name"
        return Err(KindlmError(ErrorCode.PROVIDER_API_ERROR, message, hint))

    async def aclose(self) -> None:
        """End the connection, and the program with all that it started; at once after an error."""
        holding = self._holding
        if holding is None:
            return
        self._closing.set()
        try:
            if self._session is not None and not self._failed:
                await asyncio.wait({holding}, timeout=_CLOSE_S)
        finally:
            holding.cancel()
            await asyncio.wait({holding})


def _as_json(value: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {key: item for key, item in found.items() if key != "_meta"}


def _first(raised: BaseException) -> BaseException:
    """Return what was raised, out of the groups that it comes in."""
    while isinstance(raised, BaseExceptionGroup):
        raised = raised.exceptions[0]
    return raised
