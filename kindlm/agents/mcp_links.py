"""What lies between an MCP server and the package `mcp`: a program's lines, or HTTP requests.

Programs are started, read and ended as those of other agents are. What comes in place of messages
is kept, so that an error can say it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kindlm.agents import agent_failures
from kindlm.agents.agent_failures import Who
from kindlm.agents.http_exchange import EVENT_STREAM, MAX_BODY_BYTES, HttpTarget, is_page
from kindlm.agents.process_group import TooMuchOutput, how_it_ended
from kindlm.agents.sandbox import (
    MAX_OUTPUT_BYTES,
    TOO_MUCH,
    LocalProgram,
    LocalSandbox,
    of_exchange,
    of_program,
)
from kindlm.errors import ErrorCode, KindlmError

if TYPE_CHECKING:
    import httpx2

_OUTPUT = "Standard output is for MCP messages only, one per line. Write logs to standard error"
_PACKED = "its body is compressed, which kindlm did not request"
_TOO_LONG = f"more than {MAX_BODY_BYTES // 1_000_000} MB"
_ADDRESS = "Check that its `url` is the address of an MCP server (streamable HTTP)"


@dataclass(frozen=True, slots=True)
class StartedServer:
    """A server that is a program: its words, and where it runs with which environment."""

    who: Who
    words: tuple[str, ...]
    sandbox: LocalSandbox


class ProgramLink:
    """The lines of a program, as the messages that a session reads and writes."""

    def __init__(self, server: StartedServer) -> None:
        self._server = server
        self._program: LocalProgram | None = None
        self._fault: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether no more will come from it."""
        return self._fault is not None

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, Any]]:
        """Start the program, and end it; the streams are as the package has those of its own."""
        import anyio

        sandbox, words = self._server.sandbox, self._server.words
        async with sandbox.start(words, None, MAX_OUTPUT_BYTES) as program:
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
        with to_session:
            self._fault = await self._read_on(program, to_session)

    async def _read_on(self, program: LocalProgram, to_session: Any) -> str:
        """Read all that is printed; return why that ended."""
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        try:
            while (line := await program.read_line()) is not None:
                if not line.strip():
                    continue
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    said = self._server.who.quote(line.decode("utf-8", "replace"))
                    return f"printed something that is not an MCP message: {said}"
                await to_session.send(SessionMessage(message))
        except TooMuchOutput:
            return TOO_MUCH
        code = await program.exit_code()
        ended = "closed its output" if code is None else how_it_ended(code)
        return f"{ended} without an answer"

    async def _write(self, program: LocalProgram, from_session: Any) -> None:
        async for message in from_session:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await program.write_line(text.encode())

    def error(self, raised: BaseException, timeout_s: float) -> KindlmError:
        """Return the error of an exchange that something was raised in."""
        who, words, program = self._server.who, self._server.words, self._program
        log = "" if program is None else program.log
        if self._fault is not None:
            error = of_program(who, words, self._fault, log)
            return replace(error, hint=_OUTPUT) if self._fault.startswith("printed") else error
        if program is None or isinstance(raised, TimeoutError):
            known = raised if isinstance(raised, OSError) else ValueError(str(raised))
            return of_exchange(who, words, known, log, timeout_s)
        return of_program(who, words, _words(who, raised), log)


class HttpLink:
    """The requests to an address; what came in place of a message is kept."""

    def __init__(self, server: HttpTarget) -> None:
        self._server = server
        self._failed: KindlmError | None = None
        self._client: httpx2.AsyncClient | None = None

    def send_along(self, headers: Mapping[str, str]) -> None:
        """Send headers with all requests from now on."""
        if self._client is not None:
            self._client.headers.update(headers)

    @property
    def is_over(self) -> bool:
        """Whether something came in place of a message."""
        return self._failed is not None

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, Any]]:
        """Open the client; the streams are those of the package."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        # What is packed could be unpacked to any size.
        headers = {"accept-encoding": "identity", **self._server.headers}
        async with (
            httpx2.AsyncClient(
                headers=headers,
                timeout=None,  # callers bound the whole exchange
                event_hooks={"response": [self._look_at]},
            ) as self._client,
            streamable_http_client(
                self._server.endpoint, http_client=self._client, max_sse_event_size=MAX_BODY_BYTES
            ) as streams,
        ):
            yield streams[0], streams[1]

    async def _look_at(self, response: Any) -> None:
        """Look at an answer before the package does: whether it is one, and how long it is."""
        who, status, headers = self._server.who, response.status_code, response.headers
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.request.method != "POST":
            return
        self._failed = None
        if headers.get("content-encoding", "identity") != "identity":
            self._failed = agent_failures.of_reply(who, _PACKED, "", status, _ADDRESS)
            raise TooMuchOutput
        if kind == EVENT_STREAM and response.is_success:
            return
        response.stream = _bounded(response.stream)
        try:
            body = (await response.aread()).decode("utf-8", "replace")
        except TooMuchOutput:
            self._failed = agent_failures.of_reply(who, _TOO_LONG, "", status, _ADDRESS)
            raise
        if kind == "application/json" and _is_message(body):
            return
        if not response.is_success:
            self._failed = agent_failures.of_status(who, status, headers, body)
        elif is_page(body):
            self._failed = agent_failures.of_page(who, body, status)
        elif body or "id" in json.loads(response.request.content):
            # What is no request, and has no id, is answered with nothing.
            self._failed = agent_failures.of_reply(
                who, "not an MCP message", body, status, _ADDRESS
            )

    def error(self, raised: BaseException, timeout_s: float) -> KindlmError:
        """Return the error of an exchange that something was raised in."""
        import httpx2

        who = self._server.who
        if self._failed is not None:
            return self._failed
        if isinstance(raised, TimeoutError):
            return agent_failures.of_timeout(who, timeout_s)
        if isinstance(raised, httpx2.TransportError):
            return agent_failures.of_network(who, self._server.endpoint, raised)
        message = f"{who.title} {_words(who, raised)}"
        return agent_failures.failed(who, ErrorCode.PROVIDER_API_ERROR, message, _ADDRESS)


def _is_message(body: str) -> bool:
    from mcp_types import jsonrpc_message_adapter

    try:
        jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValueError:
        return False
    return True


def _bounded(stream: Any) -> Any:
    """Return the stream of a body that raises `TooMuchOutput` where the body is too long."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in stream:
                size += len(piece)
                if size > MAX_BODY_BYTES:
                    raise TooMuchOutput
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


def _words(who: Who, raised: BaseException) -> str:
    """Say what a server did that something was raised by: a sentence goes on with it."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    said = who.quote(str(raised)) or type(raised).__name__
    if not isinstance(raised, MCPError):
        return f"sent something that is not an MCP response: {said}"
    return f"{'sent no answer' if raised.code == CONNECTION_CLOSED else 'refused'}: {said}"
