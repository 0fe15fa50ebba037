"""Whatever stands in a file to import, a suite that loads is made of it, or an error says why."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import drawn
from kindlm.errors import Err, Ok
from kindlm.generate.suite_text import suite_text
from kindlm.generate.suites import Files, LeftOutError, format_named, read_part

ANSWER = "{{sample.output_text}}"
CHAT = [{"role": "developer", "content": [{"text": "Be {{item.l}}."}]}, {"role": "user"}]
SUITES: dict[str, dict[str, Any]] = {
    "promptfoo": {
        "prompts": ["{{q}}", {"id": "file://chat.json", "label": "c"}],
        "providers": [
            "openai:gpt-4o",
            {
                "id": "https",
                "label": "a",
                "config": {"url": "https://x.example", "body": {"q": "{{prompt}}"}},
            },
            {
                "id": "anthropic:messages:c",
                "config": {"max_tokens": 5, "stop": ["a"], "tools": [{"name": "t"}]},
            },
        ],
        "defaultTest": {
            "vars": {"q": "x", "context": "c"},
            "options": {"provider": {"id": "openai:gpt-4o-mini"}},
            "threshold": 1,
        },
        "tests": [
            "file://rows.csv",
            {
                "vars": {"q": ["a", "b"], "o": {"k": 1}},
                "assert": [
                    {"type": "contains-any", "value": ["a"]},
                    {"type": "is-json", "value": {"type": "object"}},
                    {"type": "llm-rubric", "value": "r {{q}}", "threshold": 0.5},
                    {"type": "trajectory:tool-used", "value": {"name": "a"}},
                    {"type": "trajectory:tool-sequence", "value": {"steps": ["a"]}},
                    {"type": "assert-set", "assert": [{"type": "regex", "value": "a"}]},
                    {"$ref": "#/assertionTemplates/t"},
                ],
                "metadata": {"a": ["x"]},
            },
        ],
        "assertionTemplates": {"t": {"type": "starts-with", "value": "a"}},
        "evaluateOptions": {"repeat": 2},
    },
    "openai-evals": {
        "testing_criteria": [
            {"type": "string_check", "input": ANSWER, "operation": "eq", "reference": "x"},
            {"type": "label_model", "input": CHAT[:1], "passing_labels": ["a"]},
            {"type": "score_model", "input": CHAT[:1], "range": [0, 5], "pass_threshold": 3},
            {"type": "text_similarity", "evaluation_metric": "cosine", "input": ANSWER}
            | {"reference": "{{item.l}}"},
        ],
        "data_source": {
            "model": "m",
            "sampling_params": {"temperature": 1},
            "input_messages": {"template": [CHAT[0], {"role": "user", "content": "{{item.l}}"}]},
            "source": {"type": "file_content", "content": [{"item": {"l": "b"}}]},
        },
    },
}
ODD: list[Any] = [
    None, True, -1, 1e300, 2**70, "", " ", "{{", "{{q}}", "file://rows.csv", "file://no", [], {},
    [[]], {"a": {}}, [1, "a", None], {"type": "x"}, "openai:", "\x00\x1b[31m", "(", "*",
    "file://**/*", "file://**a*", {"function": 1}, {"body": "[NaN]"}, {"body": "[" * 9999}, "json",
]  # fmt: skip


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the places of all values in a value."""
    found = dict(enumerate(value)) if isinstance(value, list) else value
    for key, item in found.items() if isinstance(found, dict) else ():
        yield (*path, key)
        yield from paths(item, (*path, key))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("prompts", 0), "file://a**b.txt"),
        (("providers", 2, "config", "tools", 0), {"function": 1}),
        (("providers", 1, "config", "body"), '{"q": "{{prompt}}", "n": NaN}'),
        (("providers", 1, "config", "body"), "[" * 99_999),
    ],
    ids=["pattern", "function", "NaN", "open"],
)
def test_a_part_that_cannot_be_read_is_left_out(
    place: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "{{q}}"}]')
    (tmp_path / "rows.csv").write_text("q,__expected\na,contains: b\n")
    document = copy.deepcopy(SUITES["promptfoo"])
    *before, last = place
    holder: Any = document
    for key in before:
        holder = holder[key]
    holder[last] = value
    part = read_part("suite.json", json.dumps(document).encode())
    assert isinstance(part, Ok)
    imported = format_named("promptfoo").read(part.value, Files(tmp_path))
    assert imported.left_out
    assert isinstance(suite_text(imported.document, tmp_path / "kindlm.yaml"), Ok)


@pytest.mark.parametrize("name", ["suite.json", "rows.jsonl"])
def test_a_value_that_is_nested_too_deeply_is_an_error(name: str) -> None:
    part = read_part(name, b"[" * 300 + b"]" * 300)
    assert isinstance(part, Err)
    assert "nested too deeply" in part.error.message


@pytest.mark.parametrize("name", SUITES)
@settings(max_examples=drawn(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_anywhere_makes_a_suite_or_an_error(
    name: str, data: st.DataObject, tmp_path: Path
) -> None:
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "{{q}}"}]')
    (tmp_path / "rows.csv").write_text("q,__expected\na,contains: b\n")
    document = copy.deepcopy(SUITES[name])
    *before, last = data.draw(st.sampled_from(list(paths(document))))
    holder: Any = document
    for key in before:
        holder = holder[key]
    holder[last] = data.draw(st.sampled_from(ODD))
    part = read_part("suite.json", json.dumps(document).encode())
    assert isinstance(part, Ok)
    form = format_named(name)
    try:
        imported = form.read(part.value, Files(tmp_path)) if form.reads(part.value) else None
    except LeftOutError:
        imported = None
    if imported is None:
        return
    text = suite_text(imported.document, tmp_path / "kindlm.yaml")
    assert isinstance(text, Ok), text
