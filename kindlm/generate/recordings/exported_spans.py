"""Reads exports of observability tools: Langfuse, LangSmith and Phoenix.

Observations of Langfuse and runs of LangSmith become spans of the GenAI conventions. Spans of
Phoenix keep their attributes of OpenInference. So one reader of traces serves all sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from kindlm.strict_json import read_json
from kindlm.telemetry.dialects import Kind
from kindlm.telemetry.messages import unwrapped
from kindlm.telemetry.spans import Span
from kindlm.wires import object_or_empty, objects

_Object = Mapping[str, Any]


def spans_in_export(document: list[Any]) -> tuple[list[Span], list[str]] | None:
    """Return the spans in the JSON values of a file, and the names of traces without spans.

    None stands for a file of another format.
    """
    if traces := list(_langfuse_traces(document)):
        spans = [span for trace, seen in traces if seen for span in _langfuse_spans(trace, seen)]
        empty = [trace for trace, seen in traces if trace is not None and not seen]
        return spans, [str(trace.get("name") or trace.get("id")) for trace in empty]
    spans = list(map(_langsmith_span, _langsmith_runs(document)))
    spans = spans or [_phoenix_span(row, at) for at, row in enumerate(_phoenix_rows(document))]
    return (spans, []) if spans else None


# Langfuse: a trace with `observations`, such as of its API, `{"trace": …, "observations": […]}` of
# its user interface, or observations: a list, one a line, or in `data`.
#
# Keys are in camel case; in exports to buckets, in snake case. Inputs and outputs are JSON, also as
# strings.


def _langfuse_traces(values: list[Any]) -> Iterator[tuple[_Object | None, list[_Object]]]:
    """Yield traces with their observations, and observations without a trace."""
    for value in values:
        listed = value.get("data") if isinstance(value, dict) else value
        for each in objects(listed if isinstance(listed, list) else [value]):
            if isinstance(each.get("observations"), list):
                within = [it for it in objects(each["observations"]) if _is_observation(it)]
                yield object_or_empty(each.get("trace")) or each, within
            elif _is_observation(each):
                yield None, [each]


def _is_observation(value: _Object) -> bool:
    kind = value.get("type")
    return isinstance(kind, str) and kind.isupper() and _get(value, "traceId") is not None


_LANGFUSE = {"GENERATION": Kind.CHAT, "TOOL": Kind.TOOL}


def _langfuse_spans(trace: _Object | None, observations: list[_Object]) -> Iterator[Span]:
    """Yield the spans of observations, below a span of their trace if it is known."""
    root = ""
    if trace is not None:
        key, begun = trace.get("id"), trace.get("timestamp")
        root = f"trace {key}"
        ids, given = (key, root, ""), trace.get("input")
        # A trace has no level of its own.
        top = [each for each in observations if not _get(each, "parentObservationId")]
        error = next(filter(None, map(_langfuse_error, top)), None)
        name = trace.get("name") or key
        attributes = _attributes(Kind.AGENT, name, given, None, {})
        yield _span(ids, name, (begun, begun), attributes, error)
    for each in observations:
        name = each.get("name") or _get(each, "traceName")
        kind = _LANGFUSE.get(each["type"], Kind.AGENT)
        model = {"gen_ai.request.model": each.get("model") or _get(each, "providedModelName")}
        yield _span(
            (_get(each, "traceId"), each.get("id"), _get(each, "parentObservationId") or root),
            name,
            (_get(each, "startTime"), _get(each, "endTime")),
            _attributes(kind, name, each.get("input"), each.get("output"), model),
            _langfuse_error(each),
        )


def _langfuse_error(observation: _Object) -> Any:
    """Return the error of an observation; a false value if it has none."""
    return observation.get("level") == "ERROR" and (_get(observation, "statusMessage") or "failed")


def _get(value: _Object, key: str) -> Any:
    """Return the value of a key in camel or snake case."""
    return value.get(key, value.get(re.sub("[A-Z]", lambda it: f"_{it[0].lower()}", key)))


# LangSmith: runs as its SDK and API list them, one a line or in `runs`, or nested below a root.
#
# Model calls are runs of type `llm`, tool calls of type `tool`. Messages have the form of
# LangChain, plain or serialised (`lc`), or that of the called API.


def _langsmith_runs(value: Any) -> Iterator[_Object]:
    if isinstance(value, list):
        for each in value:
            yield from _langsmith_runs(each)
    elif isinstance(value, dict):
        is_run = isinstance(value.get("run_type"), str) and "id" in value
        if is_run:
            yield value
        yield from _langsmith_runs(value.get("child_runs" if is_run else "runs"))


_LANGSMITH = {"llm": Kind.CHAT, "tool": Kind.TOOL}


def _langsmith_span(run: _Object) -> Span:
    # The dotted order of a run contains the ids of all its ancestors:
    # "20261123T155404Z<root>.….<run>".
    above = [part.rpartition("Z")[2] for part in str(run.get("dotted_order") or "").split(".")]
    extra, given, said = object_or_empty(run.get("extra")), run.get("inputs"), run.get("outputs")
    metadata = object_or_empty(extra.get("metadata"))
    parameters = object_or_empty(extra.get("invocation_params"))
    kind = _LANGSMITH.get(run["run_type"], Kind.AGENT)
    if kind is Kind.CHAT:
        given = {"tools": parameters.get("tools"), **object_or_empty(given)}
    elif kind is Kind.TOOL:
        # LangChain sends arguments as a string, and LangSmith's decorator results, below a key.
        given, said = _alone(given, "input"), _alone(said, "output")
    model = parameters.get("model") or parameters.get("model_name")
    facts = {
        "gen_ai.provider.name": metadata.get("ls_provider"),
        "gen_ai.request.model": metadata.get("ls_model_name") or model,
        "gen_ai.tool.call.id": extra.get("tool_call_id"),
    }
    parent = run.get("parent_run_id") or (above[-2] if len(above) > 1 else "")
    return _span(
        (run.get("trace_id") or above[0] or run["id"], run["id"], parent),
        run.get("name"),
        (run.get("start_time"), run.get("end_time")),
        _attributes(kind, run.get("name"), given, said, facts),
        run.get("error"),
    )


def _alone(value: Any, key: str) -> Any:
    """Return the value of a key if it is the only one."""
    return value[key] if isinstance(value, dict) and value.keys() == {key} else value


# Phoenix: spans from its client and `GET /v1/projects/{name}/spans`, and data frames as JSON.
#
# The attributes of the spans are flat or nested. A data frame has one column for each attribute,
# such as `attributes.llm.input_messages`; `to_json` writes it by columns or by records.

_TRACE, _ID = "context.trace_id", "context.span_id"


def _phoenix_rows(values: list[Any]) -> Iterator[_Object]:
    """Yield the spans, with nested values under keys with dots."""
    for value in values:
        listed = value.get("data") if isinstance(value, dict) else value
        if isinstance(listed, list):
            yield from _phoenix_rows([each for each in listed if isinstance(each, dict)])
        elif isinstance(value, dict) and isinstance(value.get(_TRACE), dict):
            for key in value[_TRACE]:
                cells = {name: of.get(key) for name, of in value.items() if isinstance(of, dict)}
                yield from _phoenix_rows([{_ID: key, **cells}])
        elif isinstance(value, dict):
            row = dict(_flat(value))
            if isinstance(row.get(_TRACE), str) and "span_kind" in row:
                yield row


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in a value by their paths; a list without objects is one value."""
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        parts = value.items()
    elif objects(value):
        parts = enumerate(value)
    elif value is not None:
        yield path, value
    for key, part in parts:
        yield from _flat(part, f"{path}.{key}" if path else str(key))


def _phoenix_span(row: _Object, number: int) -> Span:
    prefix, kind = "attributes.", row["span_kind"]
    own = {name.removeprefix(prefix): row[name] for name in row if name.startswith(prefix)}
    name = {"tool.name": row.get("name")} if kind == "TOOL" else {}
    return _span(
        (row[_TRACE], row.get(_ID) or row.get("span_id") or f"row {number}", row.get("parent_id")),
        row.get("name"),
        (row.get("start_time"), row.get("end_time")),
        {"openinference.span.kind": kind, **name, **own},
        row.get("status_code") == "ERROR" and (row.get("status_message") or "failed"),
    )


_OPERATIONS = {Kind.CHAT: "chat", Kind.TOOL: "execute_tool", Kind.AGENT: "invoke_agent"}


def _attributes(kind: Kind, name: Any, given: Any, said: Any, facts: _Object) -> dict[str, Any]:
    """Return attributes of the GenAI conventions; input and output may be JSON in a string."""
    attributes: dict[str, Any] = {"gen_ai.operation.name": _OPERATIONS[kind]}
    given, said = _read(given), _read(said)
    if kind is Kind.TOOL:
        message = unwrapped(said)
        if isinstance(message, dict) and {"tool_call_id", "content"} <= message.keys():
            attributes["gen_ai.tool.call.id"], said = message["tool_call_id"], message["content"]
        attributes["gen_ai.tool.name"] = name
        attributes["gen_ai.tool.call.arguments"] = given
        attributes["gen_ai.tool.call.result"] = said
    else:
        if kind is Kind.AGENT and isinstance(given, dict) and len(given) == 1:
            (given,) = given.values()  # such as {"customer": "…"}
        # Langfuse appends the tools that LangChain gives to a model to its messages.
        listed = objects(given.get("messages") if isinstance(given, dict) else given)
        tools = [each["content"] for each in listed if isinstance(each.get("content"), dict)]
        attributes["gen_ai.tool.definitions"] = [*tools, object_or_empty(given).get("tools")]
        attributes["gen_ai.input.messages"] = [given]
        attributes["gen_ai.output.messages"] = [said]
    known = {key: value for key, value in facts.items() if value not in (None, "")}
    return attributes | known


def _span(
    ids: tuple[Any, Any, Any], name: Any, times: tuple[Any, Any], attributes: _Object, error: Any
) -> Span:
    """Return a span; `ids` are those of its trace, itself, and its parent."""
    trace, own, parent, shown = (str(each or "") for each in (*ids, name))
    start, end = map(_nanoseconds, times)
    is_error, message = bool(error), str(error or "")
    return Span(trace, own, parent, shown, "", start, end, attributes, (), is_error, message)


def _read(value: Any) -> Any:
    """Return the object or list in a string; any other value as it is."""
    read = read_json(value)
    return read if isinstance(read, dict | list) else value


def _nanoseconds(value: Any) -> int:
    """Return a time in ns since 1970; 0 for an unknown form. Numbers are milliseconds."""
    if isinstance(value, int | float) and 0 <= value < 2**50:
        return int(value * 1_000_000)
    try:
        read = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return 0
    return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1e9)
