"""A connection to an MCP server, in its own task, so that callers can be cancelled.

The package `mcp` (the extra `kindlm[mcp]`) speaks the protocol. A link connects it to the server:
by lines of a program, or by HTTP requests. Every exchange has a time limit.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from kindlm.agents.agent_failures import AgentFailure, Who
from kindlm.agents.sandbox import (
    MAX_OUTPUT_BYTES,
    TOO_MUCH,
    LocalProgram,
    LocalSandbox,
    ProgramWho,
    TooMuchOutput,
)
from kindlm.agents.served import EVENT_STREAM, MAX_BODY_BYTES, HttpTarget, is_page
from kindlm.dataclass import replace
from kindlm.errors import ErrorCode, KindlmError
from kindlm.ports import AgentReply
from kindlm.transcript import ToolCall, ToolUse

if TYPE_CHECKING:
    import httpx2

MAX_TOOLS = 1000
"""The most tools that a server may list; providers accept far fewer."""

# The package logs the content of answers. kindlm's errors have the same content without secrets.
logging.getLogger("mcp").addHandler(logging.NullHandler())

_CLOSE_S = 5.0
_KEPT = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_INSTALL = "Install it: pip install 'kindlm[mcp]'"


class McpConnection:
    """One connection by a `link`: `open` it first, and `aclose` it last or after an error."""

    def __init__(self, link: ProgramLink | HttpLink) -> None:
        self._link = link
        self._session: Any = None
        self._holding: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._failed = False
        self._ended: BaseException | None = None

    async def open(self, timeout_s: float) -> None:
        """Connect, and agree on a version of the protocol; raises `AgentFailure` if that fails."""
        if find_spec("mcp") is None:
            message = f"{self._link.who.title} needs the package mcp, which is not installed"
            raise AgentFailure(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, _INSTALL))
        opened = asyncio.get_running_loop().create_future()
        self._holding = asyncio.create_task(self._hold(opened))
        async with self._answering(timeout_s):
            await asyncio.shield(opened)

    async def _hold(self, opened: asyncio.Future[None]) -> None:
        """Hold the connection until `aclose`; only waiting calls report an earlier end."""
        from mcp import Client
        from mcp_types import Implementation

        client_info = Implementation(name="kindlm", version=version("kindlm"))
        try:
            async with Client(self._link.streams(), client_info=client_info, cache=None) as client:
                self._session = client.session
                opened.set_result(None)
                await self._closing.wait()
        except BaseException as raised:  # noqa: BLE001 - also groups with a cancellation
            self._ended = _first(raised)
            if not opened.done():
                opened.set_exception(self._ended)
                opened.exception()

    @property
    def is_open(self) -> bool:
        """Whether the session goes on, even if the last call failed."""
        return self._session is not None and self._ended is None

    @property
    def identity(self) -> str | None:
        info = self._session.server_info
        return None if info is None else f"{info.name} {info.version}"

    async def list_tools(self, timeout_s: float) -> list[dict[str, Any]]:
        """Return all tools that the server lists; raises `AgentFailure` if that fails."""
        from mcp_types import ListToolsRequest, ListToolsResult, PaginatedRequestParams

        found, size, cursor, is_first = list[Mapping[str, Any]](), 0, None, True
        async with self._answering(timeout_s):
            while is_first or cursor:
                request = ListToolsRequest(params=PaginatedRequestParams(cursor=cursor))
                page = await self._session.send_request(request, ListToolsResult)
                found += [_as_json(tool) for tool in page.tools]
                cursor, is_first = page.next_cursor, False
                size += len(page.model_dump_json())
                if len(found) > MAX_TOOLS or size > MAX_OUTPUT_BYTES:
                    break
        names = {tool["name"] for tool in found}
        if len(found) > MAX_TOOLS or size > MAX_OUTPUT_BYTES or len(names) < len(found):
            most = f"{MAX_TOOLS:,} tools, more than {MAX_OUTPUT_BYTES // 1_000_000} MB"
            message = f"{self._link.who.title} lists more than {most}, or two of the same name"
            hint = "Models are sent all tools with each request, and tell them apart by name"
            raise AgentFailure(KindlmError(ErrorCode.PROVIDER_API_ERROR, message, hint))
        return [{key: tool[key] for key in _KEPT if key in tool} for tool in found]

    async def call(
        self, call: ToolCall, headers: Mapping[str, str], timeout_s: float
    ) -> AgentReply:
        """Call a tool; raises `AgentFailure` without a result or a refusal of the server.

        All requests from now on have the `headers`, if the transport has requests.
        """
        from mcp import MCPError
        from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

        params = CallToolRequestParams(name=call.name, arguments=dict(call.arguments))
        request, error = CallToolRequest(params=params), None
        if isinstance(self._link, HttpLink) and self._link.client is not None:
            self._link.client.headers.update(headers)
        begun = time.perf_counter()
        async with self._answering(timeout_s):
            try:
                result = _as_json(await self._session.send_request(request, CallToolResult))
            except MCPError as refused:
                if self._link.is_over or _is_of_package(refused):
                    raise
                result, error = {"code": refused.code, "message": refused.message}, refused.message
        latency_ms = (time.perf_counter() - begun) * 1000
        # The answer is the structured content, else the texts.
        text = "\n".join(map(_text, result.get("content", ())))
        response: Any = result.get("structuredContent", text)
        if error is not None or result.get("isError"):
            text = error or text
            response = {"error": text}
        elif not isinstance(response, str):
            text = json.dumps(response, ensure_ascii=False)
        raw, uses = json.dumps(result, ensure_ascii=False), (ToolUse(call, response),)
        return AgentReply(text, raw, latency_ms, uses, reports_tools=True)

    @asynccontextmanager
    async def _answering(self, timeout_s: float) -> AsyncIterator[None]:
        """Limit the time of an exchange, and turn its exceptions into `AgentFailure`."""
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except Exception as raised:
            self._failed, cause = True, _first(raised)
            if str(cause) == _CLOSED and self._holding is not None:
                # Only the task that holds the connection learns why it ended.
                await asyncio.wait({self._holding}, timeout=_CLOSE_S)
                cause = self._ended or cause
            raise AgentFailure(self._link.error(cause, timeout_s)) from raised
        self._failed = False

    async def aclose(self) -> None:
        """End the connection and the program; after an error without waiting for an orderly end."""
        holding = self._holding
        if holding is None:
            return
        self._closing.set()
        try:
            if self._session is not None and not self._failed:
                await asyncio.wait({holding}, timeout=_CLOSE_S)
        finally:
            while not holding.done():
                # Cancelled once, it still tells a server at an address that the session ends.
                holding.cancel()
                await asyncio.wait({holding}, timeout=_CLOSE_S)


def _text(part: Mapping[str, Any]) -> str:
    """Return a part of a result as text: for images, sounds and files, their type and address."""
    resource = part.get("resource") or part
    if isinstance(text := resource.get("text"), str):
        return text
    names = (part["type"], resource.get("mimeType"), resource.get("uri"))
    return f"[{' '.join(filter(None, names))}]"


def _as_json(value: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {key: item for key, item in found.items() if key != "_meta"}


def _first(raised: BaseException) -> BaseException:
    """Return the first exception inside exception groups."""
    while isinstance(raised, BaseExceptionGroup):
        raised = raised.exceptions[0]
    return raised


_CLOSED = "Connection closed"
_OF_PACKAGE = (_CLOSED, "SSE stream ", "Failed to parse SSE message: ")
"""The beginnings of errors that the package reports as if the server had sent them."""


def _is_of_package(error: Exception) -> bool:
    """Return whether the package made an error, because no readable answer arrived.

    Its codes do not show that: the protocol leaves -32000 to -32019 to servers.
    """
    return str(error).startswith(_OF_PACKAGE)


_OUTPUT = "Standard output is for MCP messages only, one per line. Write logs to standard error"
_ADDRESS = "Check that its URL is that of an MCP server (streamable HTTP)"
_CALL = "tools/call"


class ProgramLink:
    """Connects a session to the lines of a program, which runs in a sandbox."""

    def __init__(self, who: ProgramWho, sandbox: LocalSandbox) -> None:
        self.who = who
        self._sandbox = sandbox
        self._program: LocalProgram | None = None
        self._fault: str | None = None

    @property
    def is_over(self) -> bool:
        return self._fault is not None

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, Any]]:
        """Start the program, and end it; yields streams like the package's own clients."""
        import anyio

        async with self._sandbox.start(self.who.words, None, MAX_OUTPUT_BYTES) as program:
            self._program = program
            to_session, read = anyio.create_memory_object_stream[Any](0)
            write, from_session = anyio.create_memory_object_stream[Any](0)
            with to_session, read, write, from_session:
                tasks = [
                    asyncio.create_task(self._read(program, to_session)),
                    asyncio.create_task(self._write(program, from_session)),
                ]
                try:
                    yield read, write
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.wait(tasks)
            await program.leave()

    async def _read(self, program: LocalProgram, to_session: Any) -> None:
        """Read all output, and note why it ended."""
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        with to_session:
            try:
                while line := await program.read_line():
                    if line.strip():
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                        await to_session.send(SessionMessage(message))
                self._fault = f"{await program.ending()} without an answer"
            except TooMuchOutput:
                self._fault = TOO_MUCH
            except ValueError:
                quoted = self.who.quote(line.decode("utf-8", "replace"))
                self._fault = f"printed something that is not an MCP message: {quoted}"

    async def _write(self, program: LocalProgram, from_session: Any) -> None:
        async for message in from_session:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await program.write_line(text.encode())

    def error(self, raised: BaseException, timeout_s: float) -> KindlmError:
        who, program = self.who, self._program
        log = "" if program is None else program.log
        if self._fault is not None:
            error = who.program_failure(self._fault, log)
            return replace(error, hint=_OUTPUT) if self._fault.startswith("printed") else error
        if program is None or isinstance(raised, TimeoutError):
            known = raised if isinstance(raised, OSError) else ValueError(str(raised))
            return who.broke_off(known, log, timeout_s)
        return who.program_failure(_words(who, raised), log)


class HttpLink:
    """Connects a session to an address; keeps the error of an answer that is not a message."""

    def __init__(self, server: HttpTarget) -> None:
        self.who = server.who
        self._server = server
        self._failed: KindlmError | None = None
        self._has_called = False  # whether the server may have got a tool call
        self.client: httpx2.AsyncClient | None = None

    @property
    def is_over(self) -> bool:
        return self._failed is not None

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, Any]]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        from kindlm.http_client import THIS_MACHINE

        async with (
            httpx2.AsyncClient(
                headers=self._server.headers,
                timeout=None,  # callers bound the whole exchange
                mounts=THIS_MACHINE,
                event_hooks={"request": [self._look_at_request], "response": [self._look_at]},
            ) as self.client,
            streamable_http_client(
                self._server.endpoint, http_client=self.client, max_sse_event_size=MAX_BODY_BYTES
            ) as streams,
        ):
            yield streams[0], streams[1]

    async def _look_at_request(self, request: Any) -> None:
        self._has_called = self._has_called or _message_in(request).get("method") == _CALL

    async def _look_at(self, response: Any) -> None:
        """Check the type and the length of an answer before the package reads it."""
        who, status, headers = self.who, response.status_code, response.headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.request.method != "POST":
            return
        self._failed, message = None, _message_in(response.request)
        if kind == EVENT_STREAM and response.is_success:
            return
        data = bytearray()
        async for piece in response.aiter_bytes():
            data += piece
            if len(data) > MAX_BODY_BYTES:
                most = f"more than {MAX_BODY_BYTES // 1_000_000} MB"
                self._failed = who.unreadable(most, "", status, _ADDRESS)
                raise TooMuchOutput
        response._content = bytes(data)  # noqa: SLF001 - as `aread` does, which has no limit
        body = data.decode("utf-8", "replace")
        answer = _message(body) if kind == "application/json" else None
        # An error without an id is that of the HTTP server, not the answer to a message.
        if answer is not None and (response.is_success or getattr(answer, "id", None) is not None):
            return
        if not response.is_success:
            is_call = message.get("method") == _CALL
            self._failed = who.refused(status, headers, body, is_call=is_call)
        elif is_page(body):
            self._failed = who.sent_page(body, status)
        elif body or {"id", "method"} <= message.keys():
            # Notifications, and answers to requests of the server, need no answer.
            self._failed = who.unreadable("not an MCP message", body, status, _ADDRESS)

    def error(self, raised: BaseException, timeout_s: float) -> KindlmError:
        import httpx2

        who = self.who
        if self._failed is not None:
            return self._failed
        # The server may have run a tool: a retry would run it again.
        if isinstance(raised, TimeoutError):
            return who.timed_out(timeout_s, retryable=not self._has_called)
        if isinstance(raised, httpx2.TransportError):
            return who.unreachable(self._server.endpoint, raised, retryable=not self._has_called)
        return who.failed(f"{who.title} {_words(who, raised)}", _ADDRESS)


def _message_in(request: Any) -> Mapping[str, Any]:
    """Return the MCP message that a request sends; empty for a GET or DELETE."""
    message: Mapping[str, Any] = json.loads(request.content) if request.method == "POST" else {}
    return message


def _message(body: str) -> Any | None:
    from mcp_types import jsonrpc_message_adapter

    try:
        return jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValueError:
        return None


def _words(who: Who, raised: BaseException) -> str:
    """Return what a server did, by the exception, as the end of a sentence."""
    return f"gave no result: {who.quote(str(raised)) or type(raised).__name__}"
