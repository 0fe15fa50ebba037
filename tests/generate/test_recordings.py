"""Traces in each dialect as recordings."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from otlp import TRACE, otlp_request, otlp_span
from traced_lookups import ARGUMENTS, DIALECTS, SCHEMA, SYSTEM, USER, chat_span, tool_span

from kindlm.errors import Err, Ok
from kindlm.generate.recordings import Recording, read_recordings


def recordings(data: bytes) -> list[Recording]:
    found = read_recordings(data, Path("trace.json"))
    assert isinstance(found, Ok)
    return found.value


@pytest.mark.parametrize("attributes", DIALECTS.values(), ids=DIALECTS)
def test_each_dialect_tells_the_conversation(attributes: dict[str, Any]) -> None:
    spans = (otlp_span(1, attributes), tool_span(2, ARGUMENTS, "sent"))
    (found,) = recordings(otlp_request(*spans))
    said = found.transcript
    assert (found.missing, found.failed) == (None, False)
    assert found.name == f"trace {TRACE[:8]}: lookup"
    assert (said.system, [turn.user for turn in said.turns]) == (SYSTEM, [USER])
    assert said.text == "Sent."
    assert [(use.call.arguments, use.response) for use in said.tool_uses] == [(ARGUMENTS, "sent")]
    assert [(t.name, t.description, t.parameters) for t in found.tools] == [
        ("lookup", "Looks up.", SCHEMA)
    ]
    assert ((found.provider or "").lower().partition(".")[0], found.model) == ("openai", "gpt-4o")


@pytest.mark.parametrize(
    ("value", "users"),
    [
        ("Hi", ["Hi"]),
        (json.dumps({"messages": [{"role": "user", "content": "Hi"}]}), ["Hi"]),
        (
            json.dumps({"messages": [[{"lc": 1, "kwargs": {"type": "human", "content": "Hi"}}]]}),
            ["Hi"],
        ),
        (json.dumps({"inputs": {"input": "Hi"}}), ["Hi"]),
        (json.dumps({"messages": [["human", "Hi"]]}), ["Hi"]),
        (json.dumps(["Hi", "And there?"]), ["Hi", "And there?"]),
    ],
)
def test_without_messages_of_models_the_input_of_the_agent_counts(
    value: str, users: list[str]
) -> None:
    agent = {"openinference.span.kind": "AGENT", "input.value": value}
    spans = (otlp_span(1, agent), tool_span(2, ARGUMENTS, "sent", parent=1))
    (found,) = recordings(otlp_request(*spans))
    assert [turn.user for turn in found.transcript.turns] == users


def test_each_trace_is_a_recording_also_in_one_session() -> None:
    session = {"also": {"session.id": "s-1"}}
    requests = [
        otlp_request(chat_span(1, "One", trace="1" * 32, **session)),
        otlp_request(chat_span(3, "One", "Two", trace="2" * 32, **session)),
    ]
    found = recordings(b"\n".join(requests))
    assert [[turn.user for turn in each.transcript.turns] for each in found] == [
        ["One"],
        ["One", "Two"],
    ]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\n", "it is empty"),
        (b"{}", "its format is unknown"),
        (otlp_request(chat_span(1, USER, trace="AAECAwQFBgcICQoLDA0ODw==")), "not Base64"),
        (b'{"resourceSpans": 1}', "it is broken"),
        (otlp_request({**chat_span(1), "endTimeUnixNano": "soon"}), "'soon' is not a whole number"),
        (b"{" * 100_000, "it is broken"),
        (b"\x00\xff", "its format is unknown"),
        (b" \n", "it is empty"),
        (gzip.compress(b"{}", mtime=0), "unpack it"),
        (b'{"resourceSpans": []}\n{"resourceSpans": [', "neither JSON nor JSON Lines"),
        (b'{\n  "resourceSpans": [\n', "neither JSON nor JSON Lines"),
    ],
)
def test_what_cannot_be_read_is_an_error(data: bytes, why: str) -> None:
    found = read_recordings(data, Path("trace.json"))
    assert isinstance(found, Err)
    assert why in found.error.message


@pytest.mark.parametrize(
    ("parents", "flags", "is_whole"),
    [
        (["", 1, 1], 0x100, True),
        ([8, 8, 8], 0x300, True),  # the caller's spans are in a file of its own
        ([8, 8, 8], 0, True),
        ([8, 8, 8], 0x100, False),  # the last span, the root, was cut off
        (["", 1, 8], 0, False),
        (["", 1, 8], 0x300, False),
        ([7, 7, 8], 0, False),
    ],
)
def test_a_trace_that_lacks_a_span_is_not_enough(
    parents: list[Any], flags: int, *, is_whole: bool
) -> None:
    chat, *tools = parents
    spans = [chat_span(1, USER, parent=chat)]
    spans += [tool_span(n, ARGUMENTS, 1, parent=each) for n, each in enumerate(tools, 2)]
    (found,) = recordings(otlp_request(*({**each, "flags": flags} for each in spans)))
    assert (found.missing is None) == is_whole
    assert is_whole or "Export the whole trace" in str(found.missing)


def test_a_broken_trace_does_not_harm_others() -> None:
    good = (chat_span(1, USER), tool_span(2, ARGUMENTS, "sent"))
    own_parent = chat_span(3, "loop", trace="2" * 32, parent=3)
    circle = [
        chat_span(4, "circle", trace="3" * 32),
        tool_span(5, ARGUMENTS, 1, trace="3" * 32),
        tool_span(6, ARGUMENTS, 1, trace="3" * 32, parent=7),
        tool_span(7, ARGUMENTS, 1, trace="3" * 32, parent=6),
    ]
    found = recordings(otlp_request(*good, own_parent, *circle))
    assert [(each.name, each.missing) for each in found] == [
        (f"trace {TRACE[:8]}: lookup", None),
        ("trace 22222222", "Some spans of the trace are below themselves."),
        ("trace 33333333", "Some spans of the trace are below themselves."),
    ]


def test_a_span_that_is_exported_again_counts_once() -> None:
    spans = (chat_span(1, USER), tool_span(2, ARGUMENTS, "sent", parent=1))
    data = otlp_request(*spans)
    assert recordings(b"\n".join([data, data])) == recordings(data)


@pytest.mark.parametrize("parent", [1, 2])
def test_a_trace_whose_spans_share_an_id_is_not_enough(parent: int) -> None:
    spans = (chat_span(1, USER), tool_span(2, ARGUMENTS, "sent", parent=1))
    (found,) = recordings(otlp_request(*spans, tool_span(2, {}, "lost", parent=parent)))
    assert found.missing == "Some spans of the trace have the same id."


def test_without_the_package_for_protobuf_other_files_are_not_said_to_be_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "opentelemetry.proto.collector.trace.v1.trace_service_pb2"
    monkeypatch.setitem(sys.modules, name, None)
    found = read_recordings(b"hello", Path("trace.txt"))
    assert isinstance(found, Err)
    assert "it is not JSON. To read protobuf, run pip install" in found.error.message


def test_a_file_with_a_byte_order_mark_is_read() -> None:
    text = otlp_request(chat_span(1, USER), tool_span(2, ARGUMENTS, "sent")).decode()
    (found,) = recordings(text.encode("utf-8-sig"))
    assert [turn.user for turn in found.transcript.turns] == [USER]
