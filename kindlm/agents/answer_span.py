"""A span of OpenTelemetry around the answer of Python code that uses OpenTelemetry."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any


def answer_span(headers: Mapping[str, str]) -> AbstractContextManager[Any]:
    """Return a span in the trace that goes along with a message, if the code makes spans at all.

    Those that the code makes are below it, so that they are known to belong to the answer.
    """
    if "traceparent" not in headers or "opentelemetry.sdk.trace" not in sys.modules:
        return nullcontext()
    from opentelemetry import propagate, trace

    context = propagate.extract(headers)
    return trace.get_tracer("kindlm").start_as_current_span("answer", context=context)
