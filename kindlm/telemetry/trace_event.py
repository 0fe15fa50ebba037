"""The event of a trace: what of its spans is recorded, to be shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kindlm.events import AgentTraced, TracedSpan
from kindlm.telemetry import dialects
from kindlm.telemetry.dialects import Kind
from kindlm.telemetry.spans import Span
from kindlm.telemetry.trace_reading import in_order

_MAX_SPANS = 500
_MAX_TEXT = 20_000
_LONGEST_NAME = 200
_LONGEST_MS = 7 * 24 * 3600 * 1000


def traced(call: int, spans: Sequence[Span]) -> AgentTraced:
    """Return the event of the spans of one message; of many, those of calls and agents first."""
    ordered = in_order(spans)
    if len(ordered) > _MAX_SPANS:
        chosen = sorted(ordered, key=lambda each: dialects.kind_of(each) is Kind.OTHER)
        kept = {span.id for span in chosen[:_MAX_SPANS]}
        ordered = [span for span in ordered if span.id in kept]
    ids, start = {span.id for span in ordered}, min(span.start_ns for span in spans)
    return AgentTraced(
        call=call,
        spans=[_traced(span, start, is_below=span.parent in ids) for span in ordered],
        more=len(spans) - len(ordered),
    )


def _traced(span: Span, start_ns: int, *, is_below: bool) -> TracedSpan:
    kind = dialects.kind_of(span)
    given, got, name = None, None, span.name
    if kind is Kind.TOOL:
        given, got = dialects.arguments(span), dialects.result(span)
        name = dialects.text_fact(span, "tool") or name
    elif kind is Kind.CHAT:
        got = dialects.said(span)
        name = dialects.text_fact(span, "model") or name
    return TracedSpan(
        id=span.id,
        parent=span.parent if is_below else None,
        kind=kind.value,
        name=name[:_LONGEST_NAME],
        start_ms=_ms(span.start_ns - start_ns),
        duration_ms=_ms(span.end_ns - span.start_ns),
        failed=span.is_error,
        message=span.status_message[:_MAX_TEXT] or None,
        input=_text(given),
        output=_text(got),
        input_tokens=dialects.tokens(span, "input tokens") if kind is Kind.CHAT else None,
        output_tokens=dialects.tokens(span, "output tokens") if kind is Kind.CHAT else None,
    )


def _ms(duration_ns: int) -> float:
    return round(min(max(duration_ns, 0) / 1e6, _LONGEST_MS), 3)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value and value[:_MAX_TEXT]
    return json.dumps(value, ensure_ascii=False)[:_MAX_TEXT]
