"""Writes projects with any number of simple tests, which have three checks for each call.

Tests are rows of a CSV file, since a suite's file has a size limit.
"""

from __future__ import annotations

from pathlib import Path

KEY = "sk-benchmark-0123456789abcdef"
"""The value of OPENAI_API_KEY, which is only sent to a loopback address."""

CHECKS = 3
"""The number of assertions for each answer."""

SCENARIO_TURNS = 2
"""The number of messages of each scenario."""

_HEAD = """\
kindlm: 1
project: benchmark
suite: {{ name: simple }}
providers: {{ openai: {{ apiKeyEnv: OPENAI_API_KEY, baseUrl: "{url}/v1" }} }}
models: [{{ id: gpt, provider: openai, model: gpt-4o, params: {{ temperature: 0.2 }} }}]
prompts:
  ask:
    system: "You are a customer support agent for ACME Corp. Always look up the order first."
    user: "Where is my order {{{{order}}}}? I have been waiting for it since last week."
defaults: {{ concurrency: {concurrency} }}
tests:
"""

_AGENT_HEAD = """\
kindlm: 1
project: benchmark
suite: {{ name: simple }}
agents: [{{ id: shop, adapter: http, endpoint: "{url}/chat" }}]
prompts: {{ ask: {{ user: "Where is my order {{{{order}}}}? I wait for it since last week." }} }}
defaults: {{ concurrency: {concurrency} }}
tests:
"""

_SCENARIOS = """\
import pytest
from kindlm import Trial, scenario


@scenario("order")
@pytest.mark.parametrize("order", range({tests}))
async def test_order(t: Trial, order: int) -> None:
    for _ in range({turns}):
        reply = await t.agent.send(f"Where is my order {{order}}? I wait for it since last week.")
        t.check(reply).contains("shipped").not_contains("refund").token_usage(500)
"""

_SCENARIO_CONFIG = """\
project = "benchmark"
agent = {{ type = "http", url = "{url}/chat" }}
eval = {{ parallelism = {concurrency} }}
"""

_EXPECT = """\
    expect:
      output: { contains: ["shipped"], notContains: ["refund"], maxLength: 500 }
"""


def write_project(folder: Path, *, tests: int, url: str, concurrency: int = 32) -> Path:
    """Write a suite with its tests in a CSV file; return its path."""
    head = _HEAD.format(url=url, concurrency=concurrency)
    return _write(folder, head + _write_rows(folder, tests))


def write_agent_project(folder: Path, *, tests: int, url: str, concurrency: int = 32) -> Path:
    """Write a suite like that of `write_project` that asks an agent; return its path."""
    head = _AGENT_HEAD.format(url=url, concurrency=concurrency)
    return _write(folder, head + _write_rows(folder, tests))


def write_scenarios(folder: Path, *, tests: int, url: str, concurrency: int = 32) -> Path:
    """Write scenarios that ask the same agent, `SCENARIO_TURNS` times each; return their path."""
    config = _SCENARIO_CONFIG.format(url=url, concurrency=concurrency)
    folder.joinpath("kindlm.toml").write_text(config, encoding="utf-8")
    path = folder / "test_orders.py"
    path.write_text(_SCENARIOS.format(tests=tests, turns=SCENARIO_TURNS), encoding="utf-8")
    return path


def write_tests(folder: Path, *, tests: int) -> Path:
    """Write a suite with all tests in its own file, for `validate`; return its path."""
    body = "".join(
        f"  - name: order {number}\n    prompt: ask\n    vars: {{ order: A{number:06} }}\n{_EXPECT}"
        for number in range(1, tests + 1)
    )
    return _write(folder, _HEAD.format(url="http://127.0.0.1:9", concurrency=32) + body)


def _write_rows(folder: Path, tests: int) -> str:
    lines = ["id,order", *(f"{number},A{number:06}" for number in range(1, tests + 1))]
    folder.joinpath("orders.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"  - name: order\n    prompt: ask\n    varsFrom: orders.csv\n{_EXPECT}"


def _write(folder: Path, text: str) -> Path:
    path = folder / "kindlm.yaml"
    path.write_text(text, encoding="utf-8")
    return path
