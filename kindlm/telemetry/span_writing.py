"""Spans to be exported, in the two forms of OTLP: JSON and protobuf."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from kindlm.telemetry.spans import ERROR, IDS

OutSpan = dict[str, Any]
"""A span as it stands in OTLP's JSON."""

INTERNAL, CLIENT = 1, 3
"""Kinds of spans: work of the process itself, and a request to another one."""

_MOST_SPANS = 500
_MOST_BYTES = 2_000_000


def out_span(
    ids: tuple[str, str, str | None],
    name: str,
    kind: int,
    times: tuple[int, int],
    attributes: Mapping[str, Any],
    *,
    is_error: bool = False,
    message: str | None = None,
    events: Sequence[dict[str, Any]] = (),
    links: Sequence[tuple[str, str]] = (),
) -> OutSpan:
    """Return a span; attributes that are None are left out.

    Args:
        ids: Of the trace, its own, and that of its parent, in hex.
        name: Its name.
        kind: `INTERNAL` or `CLIENT`.
        times: Start and end, in ns since 1970.
        attributes: By their names.
        is_error: Whether its status is an error.
        message: What the error is.
        events: See `out_event`.
        links: Other spans, each by the ids of its trace and its own.
    """
    trace, own, parent = ids
    span: OutSpan = {"traceId": trace, "spanId": own}
    if parent is not None:
        span["parentSpanId"] = parent
    span |= {
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(times[0]),
        "endTimeUnixNano": str(times[1]),
        "attributes": _attributes(attributes),
    }
    if events:
        span["events"] = list(events)
    if links:
        span["links"] = [{"traceId": other, "spanId": linked} for other, linked in links]
    if is_error:
        span["status"] = {"code": ERROR} | ({"message": message} if message else {})
    return span


def out_event(name: str, at_ns: int, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event of a span."""
    return {"timeUnixNano": str(at_ns), "name": name, "attributes": _attributes(attributes)}


def batches(spans: Iterable[OutSpan]) -> Iterator[list[OutSpan]]:
    """Yield spans in parts of up to 500, and of about 2 MB."""
    batch, size = list[OutSpan](), 0
    for span in spans:
        taken = len(_dumps(span))
        if batch and (len(batch) == _MOST_SPANS or size + taken > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(span)
        size += taken
    if batch:
        yield batch


def read_pairs(written: str) -> dict[str, str] | None:
    """Read `NAME=VALUE,NAME=VALUE`, as variables of OpenTelemetry have it; None if it is not so."""
    items = [item.partition("=") for item in written.split(",") if item.strip()]
    if not all(name.strip() and sign for name, sign, _ in items):
        return None
    return {name.strip(): unquote(value.strip()) for name, _, value in items}


def as_json(spans: Sequence[OutSpan], resource: Mapping[str, str]) -> bytes:
    """Return an ExportTraceServiceRequest as JSON, in one line."""
    return _dumps(_request(spans, resource)).encode()


def as_protobuf(spans: Sequence[OutSpan], resource: Mapping[str, str]) -> bytes:
    """Return an ExportTraceServiceRequest as protobuf; its package has to be installed."""
    from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    # Bytes are base64 in JSON, but OTLP has its ids in hex.
    with_ids = [
        span | _encoded(span) | {"links": [link | _encoded(link) for link in span.get("links", ())]}
        for span in spans
    ]
    message = ParseDict(_request(with_ids, resource), ExportTraceServiceRequest())
    return bytes(message.SerializeToString())


def rejected_of(content_type: str, body: bytes) -> tuple[int, str]:
    """Return how many spans a receiver did not take, as its answer says, and what it says of it."""
    try:
        if "json" in content_type:
            told = json.loads(body or b"{}").get("partialSuccess") or {}
            return max(0, int(told.get("rejectedSpans") or 0)), str(told.get("errorMessage") or "")
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceResponse,
        )

        partial = ExportTraceServiceResponse.FromString(body).partial_success
    except Exception:  # noqa: BLE001 - it took the spans, whatever it answers
        return 0, ""
    return max(0, partial.rejected_spans), partial.error_message


def _request(spans: Sequence[OutSpan], resource: Mapping[str, str]) -> dict[str, Any]:
    of_scope = {"scope": {"name": "kindlm"}, "spans": list(spans)}
    return {
        "resourceSpans": [
            {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [of_scope]}
        ]
    }


def _encoded(span: Mapping[str, Any]) -> dict[str, str]:
    ids = ((name, bytes.fromhex(span[name])) for name in IDS if name in span)
    return {name: base64.b64encode(each).decode() for name, each in ids}


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": _value(value)} for name, value in values.items() if value is not None
    ]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int() if -(2**63) <= value < 2**63:  # what OTLP has; others go as text
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": str(value)}


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
