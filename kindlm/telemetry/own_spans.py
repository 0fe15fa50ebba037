"""Takes spans of agents in this process from the SDK that makes them: no exporter is needed."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kindlm.telemetry.spans import Span, span_of
from kindlm.trace_context import MESSAGE_HEADERS

_takers: list[Callable[[Span], None]] = []
"""Who takes them: runs that go on in this process. They are called in the thread of the agent."""

_watched: list[Any] = []


def take_own_spans(take: Callable[[Span], None]) -> Callable[[], None]:
    """Hand the spans of watched providers to a function, until what is returned is called."""
    _takers.append(take)
    return lambda: _takers.remove(take)


def watch_own_spans() -> None:
    """Watch the spans that this process makes from now on, if it uses the SDK at all."""
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
                return  # it is of an agent that is not observed
            for take in _takers:
                take(_read(span))

    # A processor stays where it is added.
    _watched.append(provider)
    provider.add_span_processor(Handing())


def _read(span: Any) -> Span:
    context, scope = span.get_span_context(), span.instrumentation_scope
    return span_of(
        (
            f"{context.trace_id:032x}",
            f"{context.span_id:016x}",
            f"{span.parent.span_id:016x}" if span.parent else "",
        ),
        span.name,
        scope.name if scope else "",
        (span.start_time or 0, span.end_time or 0),
        _pairs(span.attributes),
        [(event.name, _pairs(event.attributes)) for event in span.events],
        (span.status.status_code.name == "ERROR", span.status.description or ""),
        span.kind.name in ("CLIENT", "PRODUCER"),
    )


def _pairs(attributes: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    return ((key, _plain(value)) for key, value in (attributes or {}).items())


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(_pairs(value))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
