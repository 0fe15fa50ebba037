"""Runs of LangSmith: as its SDK and API list them, one a line or in `runs`, or nested below a root.

Model calls are runs of type `llm`, tool calls of type `tool`. Messages are those of LangChain, as
they are or serialised (`lc`), or those of the API that was called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from kindlm.wires import objects

_Object = Mapping[str, Any]


def read(document: Document) -> Iterator[Recording] | None:
    """Return a recording for each trace; None for a document without runs of LangSmith."""
    spans = [_span(run) for run in _runs(document)]
    return recordings_of(spans) if spans else None


def _runs(values: list[Any]) -> Iterator[_Object]:
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


def _span(run: _Object) -> Span:
    # The dotted order of a run names all runs above it: "20261123T155404Z<root>.….<run>".
    above = [part.rpartition("Z")[2] for part in str(run.get("dotted_order") or "").split(".")]
    extra = _object(run.get("extra"))
    metadata = _object(extra.get("metadata"))
    threads = (metadata.get(key) for key in ("thread_id", "session_id", "conversation_id"))
    span = exported_span(
        str(run.get("trace_id") or above[0] or run["id"]),
        str(run["id"]),
        str(run.get("parent_run_id") or (above[-2] if len(above) > 1 else "")),
        str(run.get("name") or ""),
        (run.get("start_time"), run.get("end_time")),
        error=str(run["error"]) if run.get("error") else None,
        session=next(filter(None, threads), None),
    )
    given, said = run.get("inputs"), run.get("outputs")
    match run["run_type"]:
        case "llm":
            parameters = _object(extra.get("invocation_params"))
            asked = {"tools": parameters.get("tools"), **_object(given)}
            model = parameters.get("model") or parameters.get("model_name")
            facts = {
                "gen_ai.provider.name": metadata.get("ls_provider"),
                "gen_ai.request.model": metadata.get("ls_model_name") or model,
                "gen_ai.usage.input_tokens": run.get("prompt_tokens"),
                "gen_ai.usage.output_tokens": run.get("completion_tokens"),
            }
            return chat_span(span, asked, said, facts)
        case "tool":
            # LangChain sends arguments as text, and LangSmith's decorator a result by this key.
            call_id = extra.get("tool_call_id")
            return tool_span(span, _alone(given, "input"), _alone(said, "output"), call_id)
        case _:
            return agent_span(span, given, said)


def _alone(value: Any, key: str) -> Any:
    """Return the value of a key if it is the only one."""
    return value[key] if isinstance(value, dict) and value.keys() == {key} else value


def _object(value: Any) -> _Object:
    return value if isinstance(value, dict) else {}
