"""The endpoint for spans: what it takes, and what it refuses without harm."""

from __future__ import annotations

import asyncio
import gzip
import math
import re
import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx
import pytest
from otlp import TRACE, otlp_request, otlp_span

from kindlm.telemetry.receiver import MAX_BODY_BYTES, receiving
from kindlm.telemetry.spans import (
    CLIENT,
    Span,
    as_json,
    as_protobuf,
    out_event,
    out_span,
    read_json,
    read_protobuf,
)

JSON, PROTOBUF = "application/json", "application/x-protobuf"


@dataclass
class Kept:
    spans: list[tuple[str, str]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    refused_places: list[str] = field(default_factory=list)

    def take(self, spans: Sequence[Span], place: str) -> None:
        self.spans += [(place, span.trace) for span in spans]

    def refused(self, why: str, place: str) -> None:
        self.refusals.append(why)
        self.refused_places.append(place)


def protobuf(value: bytes = b"", trace: str = TRACE) -> bytes:
    """Return a request with one span that has one attribute."""
    attribute = _field(1, b"a") + _field(2, value)
    span = _field(1, bytes.fromhex(trace)) + _field(2, b"\x01" * 8) + _field(9, attribute)
    return _field(1, _field(2, _field(2, span)))


def _field(number: int, content: bytes) -> bytes:
    """Return a field of bytes in protobuf."""
    length, size = b"", len(content)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def nested(depth: int) -> bytes:
    """Return the content of an AnyValue: lists in lists."""
    value = b""
    for _ in range(depth):
        value = _field(5, _field(1, value))
    return value


def test_a_span_is_the_same_in_protobuf_and_in_json() -> None:
    more = {"text": "ä", "empty": "", "yes": True, "number": 2**40, "part": 0.5, "list": ["a", 1]}
    span = out_span(
        (TRACE, "01" * 8, "02" * 8), "chat", CLIENT, (5, 2**60), more,
        is_error=True, message="no", events=[out_event("said", 7, more)],
    )  # fmt: skip
    (read,) = read_protobuf(as_protobuf([span], {}))
    assert [read] == read_json(as_json([span], {}))
    assert read.attributes == more
    (read,) = read_protobuf(protobuf(b"\x21" + struct.pack("<d", math.nan)))
    assert (read.parent, read.start_ns, read.end_ns) == ("", 0, 0)
    assert read.attributes == {"a": None}
    assert read_protobuf(b"") == []


async def post(url: str, body: bytes, kind: str, path: str = "/v1/traces", **headers: str):
    async with httpx.AsyncClient() as client:
        return await client.post(
            url + path, content=body, headers={"content-type": kind, **headers}
        )


GOOD = otlp_request(otlp_span(1))
REFUSED = {
    "garbage": (b"\xff\xff", PROTOBUF, {}, 400),
    "not JSON": (b"{", JSON, {}, 400),
    "no spans": (b"[1]", JSON, {}, 400),
    "deep JSON": (b"[" * 500_000, JSON, {}, 400),
    "deep value": (otlp_request(otlp_span(1)).replace(
        b'"attributes": []',
        b'"attributes": [{"key": "a", "value": ' + b'{"arrayValue": {"values": [' * 60 + b"{}"
        + b"]}}" * 60 + b"}]", 1), JSON, {}, 400),
    "deep protobuf": (protobuf(nested(200)), PROTOBUF, {}, 400),
    "a trace of zeros": (protobuf(trace="0" * 32), PROTOBUF, {}, 400),
    "too large": (b" " * (MAX_BODY_BYTES + 1), JSON, {}, 413),
    "bomb": (gzip.compress(b" " * 2 * MAX_BODY_BYTES, 1), JSON, {"content-encoding": "gzip"}, 413),
    "not gzip": (GOOD, JSON, {"content-encoding": "gzip"}, 400),
    "no header of gzip": (b"xx", JSON, {"content-encoding": "gzip"}, 400),
    "cut gzip": (gzip.compress(GOOD)[:-9], JSON, {"content-encoding": "gzip"}, 400),
    "two in one gzip": (gzip.compress(GOOD) * 2, JSON, {"content-encoding": "gzip"}, 400),
    "zstd": (GOOD, JSON, {"content-encoding": "zstd"}, 400),
    "snappy": (GOOD, PROTOBUF, {"content-encoding": "snappy"}, 400),
    "from a page": (GOOD, "text/plain", {}, 415),
}  # fmt: skip


def test_what_cannot_be_read_is_refused_and_the_next_request_is_taken(caplog):
    kept = Kept()

    async def run() -> None:
        async with receiving(kept) as url:
            for name, (body, kind, headers, status) in REFUSED.items():
                answer = await post(url, body, kind, **headers)
                assert answer.status_code == status, name
                assert kept.spans == [], name
            assert len(kept.refusals) == len(REFUSED)
            assert not re.search(r"Error|object", "".join(kept.refusals))
            assert all(record.name.startswith("kindlm.") for record in caplog.records)
            assert (await post(url, GOOD, JSON)).text == "{}"
            packed = gzip.compress(protobuf())
            answer = await post(
                url, packed, PROTOBUF, "/p1/v1/traces", **{"content-encoding": "gzip"}
            )
            assert (answer.status_code, answer.content) == (200, b"")
            assert kept.spans == [("", TRACE), ("p1", TRACE)]
            # The same exporters send these; without an answer they log errors.
            for path in ("/v1/metrics", "/p1/v1/logs"):
                assert (await post(url, b"\x00", PROTOBUF, path)).status_code == 200
            assert (await post(url, GOOD, JSON, "/other")).status_code == 404
            assert (await post(url, b"{", JSON, "/p1/v1/traces")).status_code == 400
            assert len(kept.refusals) == len(REFUSED) + 1
            assert kept.refused_places == [*[""] * len(REFUSED), "p1"]
        assert url.startswith("http://127.0.0.1:")

    asyncio.run(run())


async def begin(url: str, packing: str, length: int, *pieces: bytes):
    """Open a connection, and send a request whose body may come later or never."""
    head = f"POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-type: {JSON}\r\n"
    head += f"content-encoding: {packing}\r\ncontent-length: {length}\r\n\r\n"
    reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
    first, *others = pieces
    for data in (head.encode() + first, *others):
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(0.05 * len(others))
    return reader, writer


@pytest.mark.parametrize(
    ("packing", "body"), [("deflate", zlib.compress(GOOD)[:-5]), ("br", GOOD), ("", GOOD[:-1])]
)
@pytest.mark.parametrize("is_at_once", [True, False])
def test_a_request_is_refused_however_its_bytes_arrive(packing, body, is_at_once):
    """What is refused without a trace could hold the call that a test forbids."""
    kept = Kept()

    async def run() -> None:
        async with receiving(kept) as url:
            length = len(body) if packing else len(body) + 1
            pieces = (body,) if is_at_once else (b"", body)
            reader, writer = await begin(url, packing, length, *pieces)
            if packing:
                assert b" 400 " in await reader.readline()
            writer.close()
            await writer.wait_closed()
            while not kept.refusals:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 20))
    assert (len(kept.refusals), kept.spans) == (1, [])


def test_a_request_that_stalls_does_not_delay_the_end():
    async def run() -> None:
        async with receiving(Kept()) as url:
            _, writer = await begin(url, "", 100, b"{", b"")
        writer.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_without_the_package_protobuf_is_refused_by_name_and_json_is_read(monkeypatch):
    module = "opentelemetry.proto.collector.trace.v1.trace_service_pb2"
    monkeypatch.setitem(sys.modules, module, None)
    kept = Kept()

    async def run() -> None:
        async with receiving(kept) as url:
            refused = await post(url, protobuf(), PROTOBUF)
            assert (refused.status_code, "kindlm[otel]" in refused.text) == (415, True)
            assert (await post(url, GOOD, JSON)).status_code == 200
        assert "kindlm[otel]" in kept.refusals[0]

    asyncio.run(run())
