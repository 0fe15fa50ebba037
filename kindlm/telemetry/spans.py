"""Reads spans of agents, and writes spans of runs, as OTLP in protobuf or JSON."""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from kindlm.dataclass import dataclass
from kindlm.errors import ErrorCode, KindlmError
from kindlm.strict_json import parse_json

_MAX_DEPTH = 40
_NO_REQUEST = "it is no ExportTraceServiceRequest of OTLP"
_HEX = frozenset(string.hexdigits)
_IDS = ("traceId", "spanId", "parentSpanId")
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
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

    `is_outgoing` means that it is a request to another service. `events` has the attributes of the
    span's events by name. `size` is roughly its bytes. `has_local_parent` means that the parent is
    known to be a span of the same process. `is_cut` means that attributes or events were dropped,
    since there were too many.
    """

    trace: str
    id: str
    parent: str
    name: str
    scope: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    events: Mapping[str, Sequence[Mapping[str, Any]]]
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


def spans_in(request: Any, broken: dict[str, str] | None = None) -> list[Span]:
    """Return the spans of an ExportTraceServiceRequest, given as a JSON value.

    With `broken`, an unreadable span is skipped, and `broken` gets the id of its trace and why.

    Raises:
        ValueError: The value is no such request, or a span cannot be read.
    """
    try:
        found = list(_spans_with_scope(request))
    except (AttributeError, KeyError, TypeError):
        raise ValueError(_NO_REQUEST) from None
    spans = list[Span]()
    for span, scope in found:
        try:
            spans.append(_span_of_json(span, scope))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            why = "a span, or a part of one, is not as in OTLP"
            if isinstance(error, ValueError):
                why = str(error)
            trace = span.get("traceId") if isinstance(span, dict) else None
            if broken is None or not isinstance(trace, str) or len(trace) != 32:
                raise ValueError(why) from None
            broken[trace.lower()] = why
    return spans


def _spans_with_scope(request: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the spans of a request, each with the name of its scope."""
    for resource in request["resourceSpans"]:
        for scope in resource.get("scopeSpans") or ():
            for span in scope.get("spans") or ():
                yield span, (scope.get("scope") or {}).get("name", "")


def _span_of_json(span: Any, scope: Any) -> Span:
    status, events = span.get("status") or {}, span.get("events") or ()
    dropped = [each.get("droppedAttributesCount") for each in (span, *events)]
    dropped.append(span.get("droppedEventsCount"))
    return span_of(
        (span["traceId"], span["spanId"], span.get("parentSpanId") or ""),
        span.get("name", ""),
        scope,
        (_whole(span["startTimeUnixNano"]), _whole(span["endTimeUnixNano"])),
        _of_json(span.get("attributes")),
        [(event.get("name", ""), _of_json(event.get("attributes"))) for event in events],
        (status.get("code") in (_ERROR, "STATUS_CODE_ERROR"), status.get("message") or ""),
        span.get("kind") in _OUTGOING,
        _whole(span.get("flags") or 0) & _ORIGIN == _LOCAL,
        any(_whole(number or 0) for number in dropped),
    )


def _whole(value: Any) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a whole number"[:100]) from None


def span_of(
    ids: tuple[str, str, str],
    name: Any,
    scope: Any,
    times: tuple[int, int],
    attributes: Iterator[tuple[str, Any]],
    events: Iterable[tuple[str, Iterator[tuple[str, Any]]]],
    status: tuple[bool, Any],
    is_outgoing: bool,
    has_local_parent: bool = False,
    is_cut: bool = False,
) -> Span:
    """Return a span; `ids` are the ids of its trace, itself, and its parent.

    Raises:
        ValueError: An id or a time is invalid, or a name is not a string.
    """
    trace, span, parent = (each.lower() for each in ids)
    # Some exporters write a parent of zeros for a root.
    parent = parent.strip("0") and parent
    if not (_is_id(trace, 32) and _is_id(span, 16) and (not parent or _is_id(parent, 16))):
        form = "they have to be hexadecimal, 32 digits for a trace and 16 for a span, not Base64"
        raise ValueError(f"a span has the ids {ids!r}"[:200] + f"; {form}")
    if not isinstance(name, str) or not isinstance(scope, str) or not isinstance(status[1], str):
        raise ValueError("a name or a status message is not a string")  # noqa: TRY004
    if not all(0 <= each < 2**64 for each in times):
        raise ValueError("a span has an invalid time")
    values = dict(attributes)
    named: dict[str, list[Mapping[str, Any]]] = {}
    for event, more in events:
        named.setdefault(str(event), []).append(dict(more))
    size = 500 + _size(values) + _size(named)
    content = (*times, values, named, *status, is_outgoing, size, has_local_parent, is_cut)
    return Span(trace, span, parent, name, scope, *content)


def _is_id(text: str, length: int) -> bool:
    return len(text) == length and _HEX.issuperset(text) and bool(text.strip("0"))


def _of_json(pairs: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    for pair in pairs or ():
        yield str(pair.get("key", "")), _json_value(pair.get("value"), depth)


def _json_value(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError("an attribute is nested too deeply")
    if not isinstance(value, dict) or not value:
        return None
    kind, found = next(iter(value.items()))
    match kind:
        case "arrayValue":
            return [_json_value(each, depth + 1) for each in found.get("values") or ()]
        case "kvlistValue":
            return dict(_of_json(found.get("values"), depth + 1))
        case "intValue":
            return _whole(found)
        case "doubleValue":
            return None if found in _NOT_FINITE else found
        case "stringValue" | "boolValue" | "bytesValue":
            return found
    return None


def _size(value: Any) -> int:
    if isinstance(value, str):
        return 50 + len(value)
    if isinstance(value, Mapping):
        return 50 + sum(len(key) + _size(each) for key, each in value.items())
    if isinstance(value, list):
        return 50 + sum(map(_size, value))
    return 50


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

    Args:
        ids: The ids of its trace, itself, and its parent, in hex.
        name: Its name.
        kind: `INTERNAL` or `CLIENT`.
        times: Start and end, in ns since 1970.
        attributes: Values by name.
        is_error: Whether its status is an error.
        message: The error message.
        events: Made by `out_event`.
        links: Other spans, each by the ids of its trace and itself.
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
        case bool():
            return {"boolValue": value}
        case int() if -(2**63) <= value < 2**63:  # the integers of OTLP; others become text
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_value(each) for each in value]}}
    return {"stringValue": str(value)}


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
