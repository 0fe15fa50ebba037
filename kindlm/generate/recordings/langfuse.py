"""Exports of Langfuse: traces with their observations, and observations alone.

| document | from |
|---|---|
| a trace with `observations` | `GET /api/public/traces/{id}`, and older downloads |
| `{"trace": …, "observations": […]}` | Download JSON in the user interface |
| observations: a list, one a line, or `data` | tables, buckets, `GET /api/public/v2/observations` |

Keys are in camel case, in exports to buckets in snake case. Inputs and outputs are JSON or its
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from kindlm.generate.recordings import Document, Recording
from kindlm.generate.recordings.exported_spans import (
    agent_span,
    chat_span,
    exported_span,
    tool_span,
)
from kindlm.generate.recordings.otlp import recordings_of
from kindlm.telemetry.spans import Span
from kindlm.transcript import Transcript
from kindlm.wires import objects

_Object = Mapping[str, Any]


def read(document: Document) -> Iterator[Recording] | None:
    """Return a recording for each trace; None for a document without any of Langfuse."""
    found = list(_found(document))
    missing = "The file does not contain its observations: export the trace by itself."
    empty = [
        Recording(str(trace.get("name") or trace.get("id")), Transcript(), missing=missing)
        for trace, observations in found
        if trace is not None and not observations
    ]
    spans = [span for trace, seen in found if seen for span in _spans(trace, seen)]
    return chain(empty, recordings_of(spans)) if found else None


def _found(values: list[Any]) -> Iterator[tuple[_Object | None, list[_Object]]]:
    """Yield traces with their observations, and observations alone."""
    for value in values:
        listed = value.get("data") if isinstance(value, dict) else value
        for each in objects(listed) if isinstance(listed, list) else objects([value]):
            within = each.get("observations")
            if isinstance(within, list):
                nested = each.get("trace")
                yield (
                    nested if isinstance(nested, dict) else each,
                    [*filter(_is_observation, within)],
                )
            elif _is_observation(each):
                yield None, [each]


def _is_observation(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("type"), str)
        and value["type"].isupper()
        and _get(value, "traceId") is not None
    )


def _spans(trace: _Object | None, observations: list[_Object]) -> Iterator[Span]:
    """Yield the spans of observations, below one of the trace if it is known."""
    root = ""
    if trace is not None:
        key = str(trace.get("id"))
        root = f"trace {key}"
        name = str(trace.get("name") or key)
        begun, session = trace.get("timestamp"), _get(trace, "sessionId")
        span = exported_span(key, root, "", name, (begun, begun), session=session)
        yield agent_span(span, trace.get("input"), trace.get("output"))
    for each in observations:
        span = exported_span(
            str(_get(each, "traceId")),
            str(each.get("id")),
            str(_get(each, "parentObservationId") or root),
            str(each.get("name") or _get(each, "traceName") or ""),
            (_get(each, "startTime"), _get(each, "endTime")),
            error=str(_get(each, "statusMessage") or "failed")
            if each.get("level") == "ERROR"
            else None,
            session=_get(each, "sessionId"),
        )
        given, said = each.get("input"), each.get("output")
        match each["type"]:
            case "GENERATION":
                used = _get(each, "usageDetails") or each.get("usage")
                usage = used if isinstance(used, dict) else {}
                facts = {
                    "gen_ai.request.model": each.get("model") or _get(each, "providedModelName"),
                    "gen_ai.usage.input_tokens": usage.get("input"),
                    "gen_ai.usage.output_tokens": usage.get("output"),
                }
                yield chat_span(span, given, said, facts)
            case "TOOL":
                yield tool_span(span, given, said)
            case _:
                yield agent_span(span, given, said)


def _get(value: _Object, key: str) -> Any:
    """Return the value of a key in camel or snake case."""
    return value.get(key, value.get(re.sub("[A-Z]", lambda it: f"_{it[0].lower()}", key)))
