"""An endpoint for OTLP over HTTP on a loopback address: POST /v1/traces."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from kindlm.telemetry.spans import NoProtobuf, Span, read_json, read_protobuf

if TYPE_CHECKING:
    from aiohttp import web

MAX_BODY_BYTES = 10_000_000
_READERS = {"application/x-protobuf": read_protobuf, "application/json": read_json}
_NOT_PRINTABLE = re.compile(r"[^ -~]+")


class Sink(Protocol):
    """Takes what the receiver gets."""

    def take(self, spans: Sequence[Span], place: str) -> None:
        """Take spans; `place` is what comes before `/v1/traces` in the path, mostly nothing."""
        ...

    def refused(self, why: str) -> None:
        """Take note of a request that could not be read."""
        ...


@asynccontextmanager
async def receiving(sink: Sink) -> AsyncIterator[str]:
    """Receive while the context is open; yield the URL that exporters send to.

    A request may have 10 MB, also unpacked. What cannot be read is refused with a reason, and
    changes nothing else.
    """
    from aiohttp import web

    async def traces(request: web.Request) -> web.Response:
        read = _READERS.get(request.content_type)
        if read is None:
            return refuse(415, f"the content type {request.content_type} is not OTLP")
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return refuse(413, f"more than {MAX_BODY_BYTES // 1_000_000} MB")
        except (web.RequestPayloadError, ValueError) as error:
            return refuse(400, f"the body cannot be unpacked: {error}")
        try:
            # Others go on meanwhile.
            spans = await asyncio.to_thread(read, body)
        except NoProtobuf as missing:
            return refuse(415, f"{missing.error.message} {missing.error.hint}")
        except (ValueError, OverflowError) as error:
            return refuse(400, str(error))
        sink.take(spans, request.match_info.get("place", ""))
        is_json = request.content_type == "application/json"
        return web.Response(body=b"{}" if is_json else b"", content_type=request.content_type)

    async def discard(request: web.Request) -> web.Response:
        return web.Response(content_type=request.content_type)

    def refuse(status: int, why: str) -> web.Response:
        why = _NOT_PRINTABLE.sub(" ", why)[:300]
        sink.refused(why)
        return web.Response(status=status, text=why)

    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/traces", traces)
    app.router.add_post("/{place}/v1/traces", traces)
    # Programs export these to the same address; without an answer they log errors.
    app.router.add_post("/{path:.*v1/(?:metrics|logs)}", discard)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
