"""Each form of a case that the schema of EvalView documents loads, without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

CONFIG = "adapter: http\nendpoint: http://127.0.0.1:9/ask\n"

MINIMAL = """\
name: trains
input:
  query: "When does the night train leave?"
expected:
  tools:
    - timetable
thresholds:
  min_score: 70
"""

WITH_CONTEXT = MINIMAL.replace(
    "expected:",
    '  context:\n    max_results: 5\n    time_range: "next_week"\nexpected:',
)

SEQUENCE_AND_TEXTS = MINIMAL.replace(
    "    - timetable\n",
    """\
    - timetable
    - book
  tool_sequence:
    - timetable
    - book
  output:
    contains:
      - "Vienna"
      - "22:40"
    not_contains:
      - "error"
      - "I don't know"
    json_schema:
      type: object
      required:
        - departure
""",
)

JUDGED = MINIMAL.replace(
    "thresholds:",
    """\
  hallucination:
    check: true
    allow: false
    confidence_threshold: 0.9
  safety:
    check: true
    allow_harmful: false
    categories:
      - violence
      - hate_speech
    severity_threshold: medium
thresholds:""",
)

METRICS = MINIMAL.replace(
    "thresholds:\n  min_score: 70",
    """\
  metrics:
    latency:
      value: 1000
      tolerance: 200
    cost:
      value: 0.05
      tolerance: 0.01
thresholds:
  min_score: 70
  max_cost: 0.10
  max_latency: 5000""",
)

CLOUD = f"""\
{MINIMAL}
adapter: langgraph
endpoint: http://localhost:8000
adapter_config:
  timeout: 60
  streaming: true
  mode: cloud
  headers:
    Authorization: Bearer ${{API_KEY}}
"""

COMPLETE = f"""\
{SEQUENCE_AND_TEXTS}
description: Finds a train and books it
# What differs from the project
adapter: langgraph
endpoint: ${{AGENT_ENDPOINT}}
adapter_config:
  timeout: 90
  streaming: false
  headers:
    X-API-Key: ${{API_KEY}}
"""

NULLS = """\
name: nulls
description: null
input: {query: q, context: null}
expected: {tools: null, tool_sequence: null, output: null, metrics: null, safety: null}
thresholds: {min_score: 50.0, max_cost: null, max_latency: null}
adapter_config: {}
"""


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (MINIMAL, ["tool_called"]),
        (WITH_CONTEXT, ["tool_called"]),
        (
            SEQUENCE_AND_TEXTS,
            ["tool_called"] * 2
            + ["tool_sequence"]
            + ["contains"] * 2
            + ["not_contains"] * 2
            + ["output_schema"],
        ),
        (JUDGED, ["tool_called", "hallucination", "safety"]),
        (METRICS, ["tool_called", "metric", "metric", "cost", "latency"]),
        (CLOUD, ["tool_called"]),
        (NULLS, []),
        (
            COMPLETE,
            ["tool_called"] * 2
            + ["tool_sequence"]
            + ["contains"] * 2
            + ["not_contains"] * 2
            + ["output_schema"],
        ),
    ],
)
def test_each_documented_form_loads(load: Callable[..., Any], text: str, kinds: list[str]) -> None:
    loaded = load(
        {".evalview/config.yaml": CONFIG, "case.yaml": text},
        strict=True,
        API_KEY="key-1234567890",
        AGENT_ENDPOINT="http://localhost:8123",
    )
    assert loaded.diagnostics == []
    found = [expectation.kind for expectation in loaded.case.expectations]
    assert found == [*kinds, "weighted_score"]


@pytest.mark.parametrize("adapter", ["http", "langgraph", "crewai", "tapescope", "streaming"])
def test_each_adapter_takes_the_settings_of_all(load: Callable[..., Any], adapter: str) -> None:
    settings = "adapter_config: {timeout: 60, headers: {A: b}, streaming: true, verbose: true}\n"
    loaded = load(f"{MINIMAL}adapter: {adapter}\nendpoint: http://localhost:1/x\n{settings}")
    agent = loaded.case.agent
    assert loaded.diagnostics == []
    assert (agent.timeout_ms, agent.headers, agent.verbose) == (60_000, {"A": "b"}, True)
