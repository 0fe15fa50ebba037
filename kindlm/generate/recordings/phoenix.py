"""Spans of Phoenix: from its client and `GET /v1/projects/{name}/spans`, and data frames as JSON.

The spans hold attributes of OpenInference, flat or nested. A data frame has one column for each
attribute, such as `attributes.llm.input_messages`; `to_json` writes it by columns or by records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kindlm.generate.recordings import Document, Recording
from kindlm.generate.recordings.exported_spans import exported_span, with_attributes
from kindlm.generate.recordings.otlp import recordings_of
from kindlm.telemetry.spans import Span

_TRACE, _ID = "context.trace_id", "context.span_id"
_MAX_DEPTH = 20
_Object = Mapping[str, Any]


def read(document: Document) -> Iterator[Recording] | None:
    """Return a recording for each trace; None for a document without spans of Phoenix."""
    spans = [_span(row, number) for number, row in enumerate(_rows(document))]
    return recordings_of(spans) if spans else None


def _rows(values: list[Any]) -> Iterator[_Object]:
    """Yield the spans, each with all that is nested in it under keys with dots."""
    for value in values:
        listed = value.get("data") if isinstance(value, dict) else value
        if isinstance(listed, list):
            yield from _rows([each for each in listed if isinstance(each, dict)])
        elif isinstance(value, dict) and isinstance(value.get(_TRACE), dict):
            for key in value[_TRACE]:
                cells = {name: of.get(key) for name, of in value.items() if isinstance(of, dict)}
                yield from _rows([{_ID: key, **cells}])
        elif isinstance(value, dict):
            row = dict(_flat(value))
            if isinstance(row.get(_TRACE), str) and "span_kind" in row:
                yield row


def _flat(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield what is in a value by its path; lists count only if they hold objects."""
    if isinstance(value, dict):
        parts: list[tuple[Any, Any]] = list(value.items())
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        parts = list(enumerate(value))
    else:
        parts = []
        if value is not None:
            yield path, value
    if depth < _MAX_DEPTH:
        for key, part in parts:
            yield from _flat(part, f"{path}.{key}" if path else str(key), depth + 1)


def _span(row: _Object, number: int) -> Span:
    prefix, kind = "attributes.", row["span_kind"]
    own = {name.removeprefix(prefix): row[name] for name in row if name.startswith(prefix)}
    name = {"tool.name": row.get("name")} if kind == "TOOL" else {}
    is_error = row.get("status_code") == "ERROR"
    span = exported_span(
        str(row[_TRACE]),
        str(row.get(_ID) or row.get("span_id") or number),
        str(row.get("parent_id") or ""),
        str(row.get("name") or ""),
        (row.get("start_time"), row.get("end_time")),
        error=str(row.get("status_message") or "failed") if is_error else None,
    )
    return with_attributes(span, {"openinference.span.kind": kind, **name, **own})
