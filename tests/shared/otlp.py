"""Spans as the tests write them, and as OTLP has them in JSON."""

from __future__ import annotations

import json
from typing import Any

TRACE = "0af7651916cd43dd8448eb211c80319c"


def otlp_value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [otlp_value(each) for each in value]}}
        case dict():
            return {"kvlistValue": {"values": otlp_attributes(value)}}
    return {"stringValue": value}


def otlp_attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": otlp_value(value)} for key, value in values.items()]


def otlp_span(
    number: int,
    attributes: dict[str, Any] | None = None,
    *,
    parent: int | str = 0,
    trace: str = TRACE,
    times: tuple[int, int] | None = None,
    error: str | None = None,
    events: list[tuple[str, dict[str, Any]]] | None = None,
) -> dict[str, Any]:
    """Return span `number`; each starts and ends after the one before, unless times are given."""
    start, end = times or (number * 100, number * 100 + 50)
    return {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "parentSpanId": parent if isinstance(parent, str) else f"{parent:016x}" if parent else "",
        "name": f"span {number}",
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(end),
        "attributes": otlp_attributes(attributes or {}),
        "events": [
            {"name": name, "attributes": otlp_attributes(values)} for name, values in events or ()
        ],
        "status": {} if error is None else {"code": 2, "message": error},
    }


def otlp_request(*spans: dict[str, Any], scope: str = "a") -> bytes:
    request = {"resourceSpans": [{"scopeSpans": [{"scope": {"name": scope}, "spans": spans}]}]}
    return json.dumps(request).encode()
