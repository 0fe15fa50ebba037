"""Spans of real instrumentations of the OpenAI SDK, encoded as the real SDK exports them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import loaded_kindlm
import pytest

from kindlm.telemetry.dialects import CAPTURE_CONTENT
from kindlm.telemetry.spans import Span, read_protobuf
from kindlm.telemetry.trace_reading import read_trace

BOTH = ("openinference", "opentelemetry.instrumentation.openai")


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """Return what an agent with both instrumentations exported, by cases."""
    done = loaded_kindlm.run(
        [], cwd=Path(__file__).parent, env={}, timeout_s=60, module="instrumented_openai"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def spans_of(case: dict[str, Any], scopes: tuple[str, ...]) -> list[Span]:
    spans = read_protobuf(base64.b64decode(case["body"]))
    return [span for span in spans if span.scope.startswith(scopes)]


@pytest.mark.parametrize("case", ["whole", "stream"])
@pytest.mark.parametrize("scopes", [BOTH[:1], BOTH[1:], BOTH], ids=[*BOTH, "both"])
def test_calls_of_tools_and_models_are_read_once(recorded, scopes, case):
    spans = spans_of(recorded[case], scopes)
    assert len(spans) == 2 * len(scopes)
    reading = read_trace(spans)
    (use,) = reading.tool_uses
    assert (use.call.name, use.call.arguments) == ("lookup_order", {"order_id": "A1"})
    assert use.response == {"status": "delivered"}
    usages = [call.usage for call in reading.model_calls]
    tokens = [sum(u.input_tokens for u in usages), sum(u.output_tokens for u in usages)]
    assert (len(usages), tokens) == (2, recorded[case]["tokens"])
    assert reading.missing is None


@pytest.mark.parametrize("scope", BOTH)
def test_without_content_tool_calls_are_unknown(recorded, scope):
    reading = read_trace(spans_of(recorded["hidden"], (scope,)))
    assert reading.tool_uses == ()
    assert CAPTURE_CONTENT in (reading.missing or "")
