"""Scenarios in YAML: the same as functions, with each error at its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_project import run_inside
from scenario_project import Project

from examples import examples
from kindlm.cli.app import run
from kindlm.pytest_plugin.session_request import holds_scenarios
from kindlm.scenarios.yaml_form import CHECKS, read_scenarios

REFUND = """\
name: angry customer
persona: {role: customer, name: Karen, tone: furious, backstory: late, context: {order: A1}}
tags: [refund]
repeats: 2
turns:
  - says: I want a refund.
    expect:
      - contains: REFUND
      - not_contains: calm down
  - says: Today!
    expect: {latency: 60000, matches: "^You"}
assertions:
  - contains: tomorrow
    weight: 3
  - sentiment: empathetic
"""


def test_a_scenario_in_yaml_is_run_like_one_in_python(project: Project) -> None:
    project.agent.judge = lambda _: {"conveyed": True, "quote": "", "reasoning": "warm"}
    project.write("tests/refund.yaml", REFUND)
    assert project.test("-j", "1") == 1
    assert project.agent.said == ["I want a refund.", "Today!"] * 2
    assert project.checks()[:6] == [
        ("contains", "REFUND", "passed", 8),
        ("not_contains", "calm down", "passed", 9),
        ("latency", "turn 2: 60000 ms", "passed", 11),
        ("matches", "turn 2: ^You", "passed", 11),
        ("contains", "turn 2: tomorrow", "failed", 13),
        ("sentiment", "turn 2: empathetic", "passed", 15),
    ]
    assert project.rows("SELECT DISTINCT test, tags, score FROM executions") == [
        ("tests/refund.yaml::angry customer", '["refund"]', pytest.approx(5 / 8))
    ]


def test_every_check_can_be_written_short_and_at_length(project: Project) -> None:
    project.agent.judge = lambda data: (
        {"score": 5, "reasoning": ""}
        if "criteria" in data
        else {"conveyed": True, "kept": True, "factual": True, "quote": "", "reasoning": ""}
    )
    project.agent.answer = lambda _: {
        "message": '{"id": 1}',
        "tool_calls": [{"name": "look", "arguments": {"id": 1}}],
        "usage": {"input_tokens": 1, "output_tokens": 1},
        "cost": 0.02,
    }
    short: list[dict[str, Any]] = [
        {"contains": "id"},
        {"contains_any": ["no", "id"]},
        {"equals": '{"id": 1}'},
        {"starts_with": "{"},
        {"cost": 0.02},
        {"not_contains": "no"},
        {"matches": "id"},
        {"not_matches": "no"},
        {"json_schema": {"type": "object"}},
        {"latency": 60000},
        {"token_usage": 2},
        {"tool_called": "look"},
        {"tool_not_called": "leap"},
        {"sentiment": "calm"},
        {"judge": "good?"},
        {"guardrail": {"must": "answer"}},
        {"factuality": "the id is 1"},
    ]
    long: list[dict[str, Any]] = [
        {"json_schema": {"schema": {"type": "object"}}},
        {"latency": {"max_ms": 60000.5}},
        {"tool_called": {"tool": "look", "arguments": {"id": 1}}},
        {"judge": {"criteria": "good?", "threshold": 4, "scale": 5}},
        {"guardrail": {"must": ["answer"], "must_not": ["lie"]}},
        {"factuality": {"ground_truth": "the id is 1", "context": "as told"}},
    ]
    assert {name for check in short for name in check} == set(CHECKS)
    scenario = {"name": "all", "turns": [{"says": "hi", "expect": short}], "assertions": long}
    project.write("tests/all.yaml", json.dumps(scenario))
    assert project.test() == 0
    assert len(project.checks()) == len(short) + len(long) + 1


def test_a_file_holds_several_documents_or_a_list(project: Project) -> None:
    project.write(
        "tests/many.yaml",
        "name: one\nturns: [{says: a, expect: {contains: a}}]\n---\n"
        "- {name: two, turns: [{says: b, expect: {contains: b}}]}\n"
        "- {name: three, turns: [{says: c, expect: {contains: c}}]}\n",
    )
    assert project.test("-j", "1") == 0
    assert project.agent.said == ["a", "b", "c"]


def test_a_scenario_in_yaml_that_checks_nothing_fails(project: Project) -> None:
    project.write("tests/x.yaml", "name: x\nturns: [{says: hi}]\n")
    assert project.test() == 1
    assert project.checks() == [("checked", "something is checked", "failed", 1)]


HELD = "name: x\nturns:\n  - says: hi\n    expect: {contains: hi}\nassertions:\n"
"""A scenario that would pass without its assertions."""


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("name: x\nturn: []\nturns: [{says: hi}]\n", 2, "turn"),
        ("turns: [{says: hi}]\n", 1, "name"),
        ('name: "  "\nturns: [{says: hi}]\n', 1, "empty"),
        ("name: x\nturns:\n  - says: hi\n    expect: {contain: x}\n", 4, "contain"),
        ("name: x\nturns:\n  - says: hi\n    expect: {latency: soon}\n", 4, "number"),
        (
            "name: x\nturns:\n  - says: hi\nassertions:\n  - judge: {criteria: x, threshold: 9}\n",
            5,
            "scale",
        ),
        (f"{HELD}  - judge: {{criteria: x, threshold: 0}}\n", 6, "threshold"),
        ("name: x\nturns:\n  - says: hi\nassertions:\n  - guardrail: {}\n", 5, "rule"),
        ("name: x\nturns:\n  - says: 5\n", 3, "text"),
        ("name: x\nturn: [{says: hi}]\nassertions: {contains: hi}\n", 2, 'mean "turns"?'),
        ("name: x\nturns:\n  - say: hi\nassertions: {contains: hi}\n", 3, 'mean "says"?'),
        ("name: x\nturns: []\nassertions: {contains: hi}\n", 2, "turns must have at least 1"),
        ("name: x\nturns: [hi]\nassertions: {contains: hi}\n", 2, "turns[0] must be a mapping"),
        (f"{HELD}  - not_contains:\n", 6, "not_contains is empty"),
        (f"{HELD}  - contains: hi\nconversation:\n  - sentiment: calm\n", 8, "sentiment"),
        (f"{HELD}  - judge: []\n", 6, "at least 1 entry"),
        (f"{HELD}  - judge: ~\n", 6, "judge is empty"),
        (f"{HELD}  - tool_called: {{tool: x, arguments: }}\n", 6, "arguments is empty"),
        (f"{HELD}  - contains: ''\n", 6, "must not be empty"),
        (f"{HELD}  contains: hi\n  latency: {{max_ms: -1}}\n", 7, "at least 0"),
        (f"{HELD}  contains: hi\n  matches: '('\n", 7, "not a valid regular expression"),
        (f"{HELD}  - weight: 2\n", 6, "assertions[0] holds no check"),
        (
            f"{HELD}  - contains: x\n    weight: 1.0e+7\n",
            7,
            "assertions[0].weight must be at most 1e+06",
        ),
        (f"{HELD}  - {{}}\n", 6, "assertions[0] holds no check"),
        (f"{HELD}  - {{zzzz: 1}}\n", 6, "Known keys: equals, starts_with, contains_any, contains,"),
        ("name: x\nturns:\n  - says: hi\n    expect: {}\n", 4, "expect holds no check"),
        ("name: x\nturns:\n  - says: hi\n    expect: []\n", 4, "must have at least 1 entry"),
        ("name: x\nturns: [{says: hi}]\nassertions: []\n", 3, "must have at least 1 entry"),
        (f"{HELD}  - matches: '(a'\n", 6, "not a valid regular expression"),
        (f"{HELD}  - matches: '((a{{100}}){{100}}){{100}}'\n", 6, "more than 100,000 parts"),
        (f"{HELD}  - json_schema: {{type: objct}}\n", 6, "not a valid JSON Schema"),
        (f"{HELD}  - json_schema: {{schema: {{type: objct}}}}\n", 6, "not a valid JSON Schema"),
        (f"{HELD}  - json_schema: {{typ: array}}\n", 6, "no keyword of JSON Schema"),
        (f"{HELD}  - json_schema: {{shema: {{type: array}}}}\n", 6, "no keyword of JSON Schema"),
        ("name: x\nrepeats: 0\nturns:\n  - says: hi\n", 2, "at least 1"),
        ("name: x\nturns: [{says: hi}]\n---\nname: x\nturns: [{says: hi}]\n", 4, "twice"),
    ],
)
def test_what_is_wrong_is_reported_at_its_place(
    project: Project, capsys: pytest.CaptureFixture[str], text: str, line: int, told: str
) -> None:
    file = project.write("tests/x.yaml", text)
    assert holds_scenarios(file), "pytest would not collect it"
    assert run(["validate", "tests"]) == 1
    shown = "".join(capsys.readouterr())
    assert f"x.yaml:{line}" in shown
    assert told in shown


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from([*CHECKS, "weight", "tool"]), inner)
    ),
    max_leaves=12,
)
scenarios = st.fixed_dictionaries(
    {"name": values | st.text()},
    optional={
        "turns": values
        | st.lists(st.fixed_dictionaries({"says": values}, optional={"expect": values})),
        "assertions": values,
        "conversation": values,
        "persona": values,
        "tags": values,
        "repeats": values,
        "agent": values,
    },
)


def test_a_misspelt_keyword_of_a_schema_is_a_warning(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = "{type: object, requierd: [id]}"
    text = f"name: x\nturns:\n- says: hi\n  expect: {{json_schema: {schema}}}\n"
    project.write("tests/x.yaml", text)
    run(["test", "tests"])
    printed = capsys.readouterr()
    assert 'Did you mean "required"?' in printed.out + printed.err
    assert 'Did you mean "required"?' in run_inside(project.root, "--kindlm").stdout


def test_repeats_that_may_all_fail_are_a_warning(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write(
        "tests/x.yaml", "name: x\npass_rate: 0\nturns:\n- {says: hi, expect: {contains: a}}\n"
    )
    run(["validate", "tests"])
    printed = capsys.readouterr()
    assert "passes even if all its repeats fail: its pass_rate is 0" in printed.out + printed.err
    assert "tests/x.yaml:1" in printed.out + printed.err


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ("matches: (?i)", "This check can never fail: it matches every text"),
        ('not_contains: "calm down\\n"', "not_contains has a line break at its end"),
        ('not_matches: "calm.down\\n"', "not_matches has a line break at its end"),
        ("tool_not_called: 'refund '", "tool_not_called has spaces or a line break around it"),
        ('contains_any: [a, "b\\n"]', "contains_any[1] has a line break at its end"),
    ],
)
def test_a_check_that_hardly_says_what_is_meant_is_a_warning(
    project: Project, capsys: pytest.CaptureFixture[str], check: str, told: str
) -> None:
    project.write("tests/x.yaml", f"name: x\nturns:\n- {{says: hi, expect: {{{check}}}}}\n")
    run(["validate", "tests"])
    assert told in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("judge", "reported"), [("threshold: 0.8", True), ("threshold: 0.8, scale: 1", False)]
)
def test_a_threshold_that_is_a_share_is_a_warning(
    project: Project, capsys: pytest.CaptureFixture[str], judge: str, reported: bool
) -> None:
    judged = f"{{judge: {{criteria: x, {judge}}}}}"
    project.write("tests/x.yaml", f"name: x\nturns:\n- {{says: hi, expect: {judged}}}\n")
    run(["validate", "tests"])
    assert ("Write points, such as 4," in "".join(capsys.readouterr())) is reported


@pytest.mark.parametrize(("weight", "fits"), [("0.5", True), ("1e6", True), ("0", False)])
def test_a_weight_is_more_than_nothing(weight: str, fits: bool) -> None:
    text = f"name: x\nturns:\n- {{says: hi, expect: {{contains: a, weight: {weight}}}}}\n"
    found, _ = read_scenarios(Path("x.yaml"), text.encode())
    assert (bool(found.scenarios), bool(found.problems)) == (fits, not fits)


@examples(40)
@given(values | scenarios | st.lists(scenarios, max_size=2))
def test_any_value_is_read_or_refused(value: Any) -> None:
    found, _ = read_scenarios(Path("x.yaml"), json.dumps(value).encode())
    assert found.scenarios or found.problems


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    found, _ = read_scenarios(Path("x.yaml"), data)
    assert found.scenarios or found.problems
