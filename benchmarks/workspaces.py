"""Projects to run kindlm in: suites of any number of simple tests, one call and three checks each.

More tests than a file may hold are rows of a CSV file.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["CHECKS", "KEY", "write_project", "write_tests"]

KEY = "sk-benchmark-0123456789abcdef"
"""Given as OPENAI_API_KEY: never leaves the machine, since the base URL is a loopback address."""

CHECKS = 3
"""Assertions of each test."""

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

_EXPECT = """\
    expect:
      output: { contains: ["shipped"], notContains: ["refund"], maxLength: 500 }
"""


def write_project(folder: Path, *, tests: int, url: str, concurrency: int = 32) -> Path:
    """Write a suite whose tests are rows of a file beside it; return its path."""
    lines = ["id,order", *(f"{number},A{number:06}" for number in range(1, tests + 1))]
    folder.joinpath("orders.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    one = f"  - name: order\n    prompt: ask\n    varsFrom: orders.csv\n{_EXPECT}"
    return _write(folder, _HEAD.format(url=url, concurrency=concurrency) + one)


def write_tests(folder: Path, *, tests: int) -> Path:
    """Write a suite with every test in the file itself, for `validate`; return its path."""
    body = "".join(
        f"  - name: order {number}\n    prompt: ask\n    vars: {{ order: A{number:06} }}\n{_EXPECT}"
        for number in range(1, tests + 1)
    )
    return _write(folder, _HEAD.format(url="http://127.0.0.1:9", concurrency=32) + body)


def _write(folder: Path, text: str) -> Path:
    path = folder / "kindlm.yaml"
    path.write_text(text, encoding="utf-8")
    return path
