"""Receives spans: at an OTLP endpoint on loopback, or directly from the SDK in this process."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from kindlm.telemetry.spans import (
    CLIENT,
    INTERNAL,
    NoProtobuf,
    Span,
    out_event,
    out_span,
    read_json,
    read_protobuf,
    span_of,
)
from kindlm.trace_context import MESSAGE_HEADERS

if TYPE_CHECKING:
    from aiohttp import web

    from kindlm.telemetry.otlp_observer import OtlpObserver

MAX_BODY_BYTES = 10_000_000
_TOO_LARGE = f"more than {MAX_BODY_BYTES // 1_000_000} MB"
_READERS = {"application/x-protobuf": read_protobuf, "application/json": read_json}
_NOT_PRINTABLE = re.compile(r"[^ -~]+")


@asynccontextmanager
async def receiving(observer: OtlpObserver) -> AsyncIterator[str]:
    """Receive spans while the context is open; yield the URL for exporters.

    An exporter may put the place of its spans before `/v1/traces` in the path. A request may have
    10 MB, also after decompression. A request that cannot be read is refused with a reason. aiohttp
    would refuse some compressed bodies, depending on how their bytes arrive, without a call here.
    """
    from aiohttp import web

    async def traces(request: web.Request) -> web.Response:
        place = request.match_info.get("place", "")

        def refuse(status: int, why: str) -> web.Response:
            why = _NOT_PRINTABLE.sub(" ", why)[:300]
            observer.refused(why, place)
            return web.Response(status=status, text=why)

        read = _READERS.get(request.content_type)
        if read is None:
            return refuse(415, f"the content type {request.content_type} is not OTLP")
        try:
            packing = request.headers.get("content-encoding", "").lower()
            # In a thread, since a body can be large.
            body = await asyncio.to_thread(_unpacked, await request.read(), packing)
            if len(body) > MAX_BODY_BYTES:
                return refuse(413, _TOO_LARGE)
            spans = await asyncio.to_thread(read, body)
        except web.HTTPRequestEntityTooLarge:
            return refuse(413, _TOO_LARGE)
        except NoProtobuf as missing:
            return refuse(415, f"{missing.error.message} {missing.error.hint}")
        except OSError:
            return refuse(400, "the connection broke off")
        except (web.RequestPayloadError, ValueError, OverflowError) as error:
            return refuse(400, str(error))
        observer.take(spans, place)
        is_json = request.content_type == "application/json"
        return web.Response(body=b"{}" if is_json else b"", content_type=request.content_type)

    async def discard(request: web.Request) -> web.Response:
        return web.Response(content_type=request.content_type)

    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/traces", traces)
    app.router.add_post("/{place}/v1/traces", traces)
    # Programs also export metrics and logs to this address, and would log errors.
    app.router.add_post("/{path:.*v1/(?:metrics|logs)}", discard)
    logger = logging.getLogger(__name__)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=logger,
        auto_decompress=False,
        shutdown_timeout=0.1,  # for 0, aiohttp waits without a limit
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _unpacked(body: bytes, packing: str) -> bytes:
    """Return a body after decompression, only the beginning of one that exceeds the limit.

    Raises `ValueError` if it cannot be read.
    """
    if packing in ("", "identity"):
        return body
    if packing not in ("gzip", "deflate"):
        raise ValueError(f"its content encoding is {packing}, neither gzip nor deflate")
    unpacking = zlib.decompressobj(47)  # takes either
    try:
        whole = unpacking.decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error:
        raise ValueError(f"its body is not {packing}") from None
    if len(whole) <= MAX_BODY_BYTES and (not unpacking.eof or unpacking.unused_data):
        raise ValueError(f"its body is only a part in {packing}")
    return whole


_takers: list[Callable[[Span], None]] = []
"""Functions of the runs in this process, called in the thread of the agent."""

_watched: list[Any] = []


def take_own_spans(take: Callable[[Span], None]) -> Callable[[], None]:
    """Pass the spans of watched providers to `take`; return a function that ends this."""
    _takers.append(take)
    return lambda: _takers.remove(take)


def watch_own_spans() -> None:
    """Watch the spans of this process from now on, if it has loaded OpenTelemetry's SDK."""
    if "opentelemetry.sdk.trace" not in sys.modules:
        return
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider) or provider in _watched:
        return

    class Handing(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            about = MESSAGE_HEADERS.get()
            if about is not None and "traceparent" not in about:
                return  # the agent is not observed
            for take in _takers:
                take(_read(span))

    # Providers cannot remove a processor.
    _watched.append(provider)
    provider.add_span_processor(Handing())


def _read(span: Any) -> Span:
    context, scope = span.get_span_context(), span.instrumentation_scope
    dropped = [span.dropped_attributes, span.dropped_events]
    dropped += [event.dropped_attributes for event in span.events]
    out = out_span(
        (
            f"{context.trace_id:032x}",
            f"{context.span_id:016x}",
            f"{span.parent.span_id:016x}" if span.parent else None,
        ),
        span.name,
        CLIENT if span.kind.name in ("CLIENT", "PRODUCER") else INTERNAL,
        (span.start_time or 0, span.end_time or 0),
        span.attributes or {},
        is_error=span.status.status_code.name == "ERROR",
        message=span.status.description,
        events=[out_event(each.name, 0, each.attributes or {}) for each in span.events],
    )
    return span_of(out | {"droppedAttributesCount": sum(dropped)}, scope.name if scope else "")
