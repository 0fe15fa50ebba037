"""Reads spans of agents, and writes spans of runs, as OTLP in protobuf or JSON."""

from __future__ import annotations

import base64
import json
import math
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from kindlm.dataclass import dataclass
from kindlm.errors import ErrorCode, KindlmError
from kindlm.strict_json import parse_json

_MAX_DEPTH = 40
_NO_REQUEST = "it is no ExportTraceServiceRequest of OTLP, or a part of it is not as in OTLP"
_HEX = frozenset(string.hexdigits)
_IDS = ("traceId", "spanId", "parentSpanId")
_ORIGIN, _LOCAL = 0x300, 0x100
"""The bits of `flags` about the origin of the parent, and their value for a local parent."""

INTERNAL, CLIENT = 1, 3
"""Kinds of spans: work of the process itself, and a request to another process."""

_OUTGOING = (CLIENT, 4, "SPAN_KIND_CLIENT", "SPAN_KIND_PRODUCER")
_ERROR = 2
_MOST_SPANS = 500
_MOST_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Ids are lower-case hex, `parent` is empty for a root; times are ns since 1970.

    `is_outgoing` means that it is a request to another service. `events` has the names and the
    attributes of the span's events, in their order. `size` is roughly its bytes. `has_local_parent`
    means that the parent is known to be a span of the same process. `is_cut` means that attributes
    or events were dropped, since there were too many.
    """

    trace: str
    id: str
    parent: str
    name: str
    scope: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    events: Sequence[tuple[str, Mapping[str, Any]]]
    is_error: bool
    status_message: str
    is_outgoing: bool = False
    size: int = 0
    has_local_parent: bool = False
    is_cut: bool = False


class NoProtobuf(Exception):  # noqa: N818 - it names what is missing
    """The package that reads protobuf is not installed."""

    error = KindlmError(
        ErrorCode.PROVIDER_NOT_FOUND,
        "Spans in protobuf, as exporters send them, cannot be read: opentelemetry-proto is not "
        "installed.",
        "Install it: pip install 'kindlm[otel]'; or let the agent export http/json.",
        details={"reason": "no_protobuf"},
    )


def reads_protobuf() -> bool:
    """Return whether `read_protobuf` works here."""
    from importlib.util import find_spec

    try:
        return find_spec("opentelemetry.proto.collector.trace.v1") is not None
    except ModuleNotFoundError:
        return False


def read_protobuf(body: bytes) -> list[Span]:
    """Read an ExportTraceServiceRequest.

    Raises:
        NoProtobuf: The package for protobuf is missing.
        ValueError: The body is no such request, or an id in it is invalid.
    """
    try:
        from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )
    except ImportError:
        raise NoProtobuf from None
    try:
        request = MessageToDict(ExportTraceServiceRequest.FromString(body))
    except DecodeError:
        raise ValueError(_NO_REQUEST) from None
    request.setdefault("resourceSpans", [])
    for span, _ in _spans_with_scope(request):
        # `MessageToDict` makes base64 of ids, which OTLP's JSON has in hex, and omits a time of 0.
        ids = {name: base64.b64decode(span.get(name, "")).hex() for name in _IDS}
        span |= {"startTimeUnixNano": 0, "endTimeUnixNano": 0, **span, **ids}
    return spans_in(request)


def read_json(body: bytes) -> list[Span]:
    """Read an ExportTraceServiceRequest as JSON; raise `ValueError` if it is none."""
    return spans_in(parse_json(body.decode("utf-8")))


def spans_in(request: Any) -> list[Span]:
    """Return the spans of an ExportTraceServiceRequest, given as a JSON value.

    Raises:
        ValueError: The value is no such request, or a span cannot be read.
    """
    try:
        return [span_of(span, scope) for span, scope in _spans_with_scope(request)]
    except (AttributeError, KeyError, TypeError):
        raise ValueError(_NO_REQUEST) from None


def _spans_with_scope(request: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the spans of a request, each with the name of its scope."""
    for resource in request["resourceSpans"]:
        for scope in resource.get("scopeSpans") or ():
            for span in scope.get("spans") or ():
                yield span, (scope.get("scope") or {}).get("name", "")


def span_of(span: Any, scope: Any) -> Span:
    """Return a span from OTLP's JSON; `scope` is the name of its scope.

    Raises:
        ValueError: An id, a time or a value is invalid, or a name is not a string.
        AttributeError, KeyError, TypeError: Another part is not as in OTLP.
    """
    trace, own = span["traceId"].lower(), span["spanId"].lower()
    # Some exporters write a parent of zeros for a root.
    parent = (span.get("parentSpanId") or "").lower()
    parent = parent if parent.strip("0") else ""
    if not (_is_id(trace, 32) and _is_id(own, 16) and (not parent or _is_id(parent, 16))):
        form = "they have to be hexadecimal, 32 digits for a trace and 16 for a span, not Base64"
        raise ValueError(f"a span has the ids {(trace, own, parent)!r}"[:200] + f"; {form}")
    status, events = span.get("status") or {}, span.get("events") or ()
    name, message = span.get("name", ""), status.get("message") or ""
    if not (isinstance(name, str) and isinstance(scope, str) and isinstance(message, str)):
        raise TypeError
    times = _whole(span["startTimeUnixNano"]), _whole(span["endTimeUnixNano"])
    if not all(0 <= each < 2**64 for each in times):
        raise ValueError("a span has an invalid time")
    attributes = _of_json(span.get("attributes"))
    named = [(str(it.get("name", "")), _of_json(it.get("attributes"))) for it in events]
    dropped = [each.get("droppedAttributesCount") for each in (span, *events)]
    dropped.append(span.get("droppedEventsCount"))
    return Span(
        trace,
        own,
        parent,
        name,
        scope,
        *times,
        attributes,
        named,
        is_error=status.get("code") in (_ERROR, "STATUS_CODE_ERROR"),
        status_message=message,
        is_outgoing=span.get("kind") in _OUTGOING,
        size=500 + len(str(attributes)) + len(str(named)),
        has_local_parent=_whole(span.get("flags") or 0) & _ORIGIN == _LOCAL,
        is_cut=any(_whole(number or 0) for number in dropped),
    )


def _whole(value: Any) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a whole number"[:100]) from None


def _is_id(text: str, length: int) -> bool:
    return len(text) == length and _HEX.issuperset(text) and bool(text.strip("0"))


def _of_json(pairs: Any, depth: int = 0) -> dict[str, Any]:
    return {str(each.get("key", "")): _read(each.get("value"), depth) for each in pairs or ()}


def _read(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError("an attribute is nested too deeply")
    if not isinstance(value, dict) or not value:
        return None
    kind, found = next(iter(value.items()))
    match kind:
        case "arrayValue":
            return [_read(each, depth + 1) for each in found.get("values") or ()]
        case "kvlistValue":
            return _of_json(found.get("values"), depth + 1)
        case "intValue":
            return _whole(found)
        case "doubleValue":
            # JSON has no NaN and no infinity: they are texts.
            return found if isinstance(found, int | float) and math.isfinite(found) else None
        case "stringValue" | "boolValue" | "bytesValue":
            return found
    return None


OutSpan = dict[str, Any]
"""A span as it stands in OTLP's JSON."""


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

    `ids` are those of its trace, itself, and its parent, in hex. `times` are its start and end, in
    ns since 1970. `links` are other spans, each by the ids of its trace and itself.
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
        span["status"] = {"code": _ERROR} | ({"message": message} if message else {})
    return span


def out_event(name: str, at_ns: int, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event of a span."""
    return {"timeUnixNano": str(at_ns), "name": name, "attributes": _attributes(attributes)}


def batches(spans: Iterable[OutSpan]) -> Iterator[list[OutSpan]]:
    """Yield spans in batches of up to 500 spans and about 2 MB."""
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
    """Read `NAME=VALUE,NAME=VALUE` of OpenTelemetry's variables; None if the form is another."""
    items = [item.partition("=") for item in written.split(",") if item.strip()]
    if not all(name.strip() and sign for name, sign, _ in items):
        return None
    return {name.strip(): unquote(value.strip()) for name, _, value in items}


def as_json(spans: Sequence[OutSpan], resource: Mapping[str, str]) -> bytes:
    """Return an ExportTraceServiceRequest as one line of JSON."""
    return _dumps(_request(spans, resource)).encode()


def as_protobuf(spans: Sequence[OutSpan], resource: Mapping[str, str]) -> bytes:
    """Return an ExportTraceServiceRequest as protobuf; requires `opentelemetry-proto`."""
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    # `ParseDict` reads ids as base64, but OTLP's JSON has them in hex.
    with_ids = [
        span | _encoded(span) | {"links": [link | _encoded(link) for link in span.get("links", ())]}
        for span in spans
    ]
    message = ParseDict(_request(with_ids, resource), ExportTraceServiceRequest())
    return bytes(message.SerializeToString())


def rejected_of(content_type: str, body: bytes) -> tuple[int, str]:
    """Return the number of spans that a receiver refused, and its message, from its answer."""
    try:
        if "json" in content_type:
            part = json.loads(body or b"{}").get("partialSuccess") or {}
            return max(0, int(part.get("rejectedSpans") or 0)), str(part.get("errorMessage") or "")
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceResponse,
        )

        partial = ExportTraceServiceResponse.FromString(body).partial_success
    except Exception:  # noqa: BLE001 - the status said that it took the spans
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
    ids = ((name, bytes.fromhex(span[name])) for name in _IDS if name in span)
    return {name: base64.urlsafe_b64encode(each).decode() for name, each in ids}


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": _value(value)} for name, value in values.items() if value is not None
    ]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case None:
            return {}
        case bool():
            return {"boolValue": value}
        case int() if -(2**63) <= value < 2**63:  # the integers of OTLP; others become text
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case bytes():
            return {"bytesValue": base64.b64encode(value).decode()}
        case list() | tuple():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
        case Mapping():
            return {"kvlistValue": {"values": _attributes(value)}}
    return {"stringValue": str(value)}


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
