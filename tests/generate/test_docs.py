"""The page about generation: its example is what is written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from otlp import otlp_request, otlp_span
from planned_shop import RECORDED

from kindlm.cli.app import run
from kindlm.generate.test_plan import CATEGORIES, Order, ReadPlan, rendered

SCHEMA = {"type": "object", "properties": {"order_id": {"type": "string"}}}
TRACE = [
    otlp_span(
        1,
        {
            "openinference.span.kind": "LLM",
            "llm.provider": "openai",
            "llm.model_name": "gpt-4o",
            "llm.input_messages.0.message.role": "system",
            "llm.input_messages.0.message.content": "Look every order up before you refund it.",
            "llm.input_messages.1.message.role": "user",
            "llm.input_messages.1.message.content": "Refund my order A1. I am ann@shop.org.",
            "llm.tools.0.tool.json_schema": json.dumps(
                {"name": "lookup_order", "description": "Finds an order.", "parameters": SCHEMA}
            ),
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "It is refunded.",
        },
    ),
    *(
        otlp_span(
            number,
            {
                "openinference.span.kind": "TOOL",
                "tool.name": name,
                "input.value": '{"order_id": "A1"}',
                "output.value": result,
            },
        )
        for number, name, result in (
            (2, "lookup_order", '{"status": "delivered"}'),
            (3, "issue_refund", '{"ok": true}'),
        )
    ),
]

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "generate.md").read_text("utf-8")


def test_the_example_is_what_is_written(tmp_path: Path) -> None:
    found = re.search(r"<!-- generated: as written -->\n```python\n(.*?)```\n", PAGE, re.DOTALL)
    assert found is not None
    plan = ReadPlan()
    plan.read(json.dumps(RECORDED["plan"]), CATEGORIES, ["lookup_order", "issue_refund"])
    order = Order(1, tuple(CATEGORIES), "python", tmp_path, tmp_path)
    assert found[1] in [rendered(each, order)[1] for each in plan.scenarios]


def test_a_trace_becomes_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = dict(re.findall(r"<!-- recorded: ([\w ]+) -->\n```yaml\n(.*?)```\n", PAGE, re.DOTALL))
    monkeypatch.chdir(tmp_path)
    Path("trace.json").write_bytes(otlp_request(*TRACE))
    for name, options in {"as written": [], "failed": ["--failed"]}.items():
        assert run(["gen", "--from-trace", "trace.json", "--output", ".", "--force", *options]) == 0
        made = Path("trace.yaml").read_text("utf-8")
        assert blocks[name] == made if name == "as written" else blocks[name] in made


def test_all_categories_are_there() -> None:
    assert re.findall(r"^\| `([\w-]+)` \|", PAGE, re.MULTILINE) == list(CATEGORIES)
