"""Reads exports of observability tools: Langfuse, LangSmith and Phoenix.

Observations of Langfuse and runs of LangSmith become spans of the GenAI conventions. Spans of
Phoenix keep their attributes of OpenInference. So one reader of traces serves all sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from kindlm.dataclass import replace
from kindlm.strict_json import read_json
from kindlm.telemetry import dialects
from kindlm.telemetry.spans import Span
from kindlm.wires import objects

_MAX_DEPTH = 20
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


# Langfuse
#
# | document | source |
# |---|---|
# | a trace with `observations` | `GET /api/public/traces/{id}`, and older downloads |
# | `{"trace": …, "observations": […]}` | Download JSON in the user interface |
# | observations: a list, one a line, or `data` | tables, buckets, `…/api/public/v2/observations` |
#
# Keys are in camel case; in exports to buckets, in snake case. Inputs and outputs are JSON, also as
# strings.


def _langfuse_traces(values: list[Any]) -> Iterator[tuple[_Object | None, list[_Object]]]:
    """Yield traces with their observations, and observations without a trace."""
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


def _langfuse_spans(trace: _Object | None, observations: list[_Object]) -> Iterator[Span]:
    """Yield the spans of observations, below a span of their trace if it is known."""
    root = ""
    if trace is not None:
        key = str(trace.get("id"))
        root = f"trace {key}"
        name = str(trace.get("name") or key)
        begun, session = trace.get("timestamp"), _get(trace, "sessionId")
        span = _exported_span(key, root, "", name, (begun, begun), session=session)
        yield _agent_span(span, trace.get("input"), trace.get("output"))
    for each in observations:
        span = _exported_span(
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
        inputs, outputs = each.get("input"), each.get("output")
        match each["type"]:
            case "GENERATION":
                usage = _object(_get(each, "usageDetails") or each.get("usage"))
                facts = {
                    "gen_ai.request.model": each.get("model") or _get(each, "providedModelName"),
                    "gen_ai.usage.input_tokens": usage.get("input"),
                    "gen_ai.usage.output_tokens": usage.get("output"),
                }
                yield _chat_span(span, inputs, outputs, facts)
            case "TOOL":
                yield _tool_span(span, inputs, outputs)
            case _:
                yield _agent_span(span, inputs, outputs)


def _get(value: _Object, key: str) -> Any:
    """Return the value of a key in camel or snake case."""
    return value.get(key, value.get(re.sub("[A-Z]", lambda it: f"_{it[0].lower()}", key)))


# LangSmith: runs as its SDK and API list them, one a line or in `runs`, or nested below a root.
#
# Model calls are runs of type `llm`, tool calls of type `tool`. Messages have the form of
# LangChain, plain or serialised (`lc`), or that of the called API.


def _langsmith_runs(values: list[Any]) -> Iterator[_Object]:
    waiting = list(reversed(values))
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += reversed(value)
        elif isinstance(value, dict) and isinstance(value.get("run_type"), str) and "id" in value:
            yield value
            waiting += reversed(objects(value.get("child_runs")))
        elif isinstance(value, dict):
            waiting += reversed(objects(value.get("runs")))


def _langsmith_span(run: _Object) -> Span:
    # The dotted order of a run contains the ids of all its ancestors:
    # "20261123T155404Z<root>.….<run>".
    above = [part.rpartition("Z")[2] for part in str(run.get("dotted_order") or "").split(".")]
    extra = _object(run.get("extra"))
    metadata = _object(extra.get("metadata"))
    threads = (metadata.get(key) for key in ("thread_id", "session_id", "conversation_id"))
    span = _exported_span(
        str(run.get("trace_id") or above[0] or run["id"]),
        str(run["id"]),
        str(run.get("parent_run_id") or (above[-2] if len(above) > 1 else "")),
        str(run.get("name") or ""),
        (run.get("start_time"), run.get("end_time")),
        error=str(run["error"]) if run.get("error") else None,
        session=next(filter(None, threads), None),
    )
    inputs, outputs = run.get("inputs"), run.get("outputs")
    match run["run_type"]:
        case "llm":
            parameters = _object(extra.get("invocation_params"))
            with_tools = {"tools": parameters.get("tools"), **_object(inputs)}
            model = parameters.get("model") or parameters.get("model_name")
            facts = {
                "gen_ai.provider.name": metadata.get("ls_provider"),
                "gen_ai.request.model": metadata.get("ls_model_name") or model,
                "gen_ai.usage.input_tokens": run.get("prompt_tokens"),
                "gen_ai.usage.output_tokens": run.get("completion_tokens"),
            }
            return _chat_span(span, with_tools, outputs, facts)
        case "tool":
            # LangChain sends arguments as a string, and LangSmith's decorator results, below a key.
            call_id = extra.get("tool_call_id")
            return _tool_span(span, _alone(inputs, "input"), _alone(outputs, "output"), call_id)
        case _:
            return _agent_span(span, inputs, outputs)


def _alone(value: Any, key: str) -> Any:
    """Return the value of a key if it is the only one."""
    return value[key] if isinstance(value, dict) and value.keys() == {key} else value


def _object(value: Any) -> _Object:
    return value if isinstance(value, dict) else {}


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


def _flat(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the values in a value by their paths; a list without objects is one value."""
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


def _phoenix_span(row: _Object, number: int) -> Span:
    prefix, kind = "attributes.", row["span_kind"]
    own = {name.removeprefix(prefix): row[name] for name in row if name.startswith(prefix)}
    name = {"tool.name": row.get("name")} if kind == "TOOL" else {}
    is_error = row.get("status_code") == "ERROR"
    span = _exported_span(
        str(row[_TRACE]),
        str(row.get(_ID) or row.get("span_id") or number),
        str(row.get("parent_id") or ""),
        str(row.get("name") or ""),
        (row.get("start_time"), row.get("end_time")),
        error=str(row.get("status_message") or "failed") if is_error else None,
    )
    return _with_attributes(span, {"openinference.span.kind": kind, **name, **own})


# Spans of the GenAI conventions

_HOLDERS = ("messages", "generations", "choices", "message", "output", "outputs", "input", "inputs")
"""Keys that hold messages in inputs and outputs, in the order in which they are tried."""


def _exported_span(
    trace: str,
    key: str,
    parent: str,
    name: str,
    times: tuple[Any, Any],
    *,
    error: str | None = None,
    session: Any = None,
) -> Span:
    """Return a span with no attribute but the session; `times` are as exported."""
    start, end = map(_nanoseconds, times)
    known, is_error = {"session.id": session}, error is not None
    return Span(trace, key, parent, name, "", start, end, known, {}, is_error, error or "")


def _chat_span(span: Span, inputs: Any, outputs: Any, facts: Mapping[str, Any]) -> Span:
    given = read_json(inputs) if isinstance(inputs, str) else inputs
    messages = _messages_of(given, "user")
    # Langfuse appends the tools that LangChain gives to a model to its messages.
    tools = [each["content"] for each in messages if isinstance(each.get("content"), dict)]
    if isinstance(given, dict):
        tools.append(given.get("tools"))
    return _known(
        span,
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": [
                each for each in messages if not isinstance(each.get("content"), dict)
            ],
            "gen_ai.output.messages": _messages_of(outputs, "assistant"),
            "gen_ai.tool.definitions": tools,
            **facts,
        },
    )


def _tool_span(span: Span, arguments: Any, result: Any, call_id: Any = None) -> Span:
    """Return the span of a tool call; arguments and result may be JSON in a string."""
    given = read_json(arguments) if isinstance(arguments, str) else arguments
    value = read_json(result) if isinstance(result, str) else result
    message = dialects.unwrapped(value)
    if isinstance(message, dict) and "tool_call_id" in message and "content" in message:
        call_id = call_id or message["tool_call_id"]
        value = message["content"]
    if span.is_error and value is None:
        value = {"error": span.status_message}
    return _known(
        span,
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": span.name,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.call.arguments": given,
            "gen_ai.tool.call.result": value,
        },
    )


def _agent_span(span: Span, inputs: Any, outputs: Any) -> Span:
    """Return the span of any other observation or run."""
    return _known(
        span,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.input.messages": _messages_of(inputs, "user"),
            "gen_ai.output.messages": _messages_of(outputs, "assistant"),
        },
    )


def _known(span: Span, attributes: Mapping[str, Any]) -> Span:
    known = {name: value for name, value in attributes.items() if value not in (None, [], "")}
    return _with_attributes(span, known)


def _with_attributes(span: Span, attributes: Mapping[str, Any]) -> Span:
    return replace(span, attributes={**span.attributes, **attributes})


def _messages_of(value: Any, role: str) -> list[dict[str, Any]]:
    """Return the messages in an input or output, each with a `role`.

    The forms are those of OpenAI, Anthropic and LangChain, also as JSON in a string. A plain text
    is a message of `role`.
    """
    return list(_messages(value, role, 0))


def _messages(value: Any, role: str, depth: int) -> Iterator[dict[str, Any]]:
    if depth > _MAX_DEPTH or value is None:
        return
    if isinstance(value, str):
        parsed = read_json(value)
        if isinstance(parsed, dict | list):
            yield from _messages(parsed, role, depth + 1)
        elif value:
            yield {"role": role, "content": value}
    elif isinstance(value, list):
        if len(value) == 2 and all(isinstance(part, str) for part in value):
            yield {"role": value[0], "content": value[1]}  # a form of LangChain
            return
        for each in value:
            yield from _messages(each, role, depth + 1)
    elif isinstance(value, dict):
        yield from _of_object(dialects.unwrapped(value), role, depth)


def _of_object(value: dict[str, Any], role: str, depth: int) -> Iterator[dict[str, Any]]:
    kind = value.get("type")
    if not {"content", "tool_calls", "parts"}.isdisjoint(value):
        # In LangChain, `type` stands for the role.
        yield value if "role" in value or isinstance(kind, str) else {"role": role, **value}
        return
    if isinstance(kind, str) and kind.startswith("function_call"):
        yield {"role": role, **value}  # an item of OpenAI's Responses
        return
    for key in ("system", "instructions"):
        if isinstance(value.get(key), str | list):
            yield {"role": "system", "content": value[key]}
    holder = next((key for key in _HOLDERS if value.get(key)), None)
    if holder is not None:
        yield from _messages(value[holder], role, depth + 1)
    elif isinstance(value.get("text"), str):
        yield {"role": role, "content": value["text"]}
    elif len(texts := [each for each in value.values() if isinstance(each, str)]) == 1:
        yield {"role": role, "content": texts[0]}  # such as {"question": "…"}


def _nanoseconds(value: Any) -> int:
    """Return a time in ns since 1970; 0 for an unknown form. Numbers are milliseconds."""
    if isinstance(value, int | float) and 0 <= value < 2**50:
        return int(value * 1_000_000)
    try:
        read = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return 0
    return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1e9)
