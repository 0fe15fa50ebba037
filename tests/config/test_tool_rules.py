"""Simulated tools: what each answer may say, and that none lies."""

# ruff: noqa: E501 - one row of a table is one line
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kindlm.suite import Fault, ToolAnswer

REFUND = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}


@pytest.fixture
def load_tool(load: Any, minimal: str, tmp_path: Path) -> Any:
    def write_and_load(tool: str) -> Any:
        (tmp_path / "refund.json").write_text(json.dumps(REFUND))
        return load(minimal + f"    tools:\n      - {{name: refund, {tool}}}\n")

    return write_and_load


def found(loaded: Any) -> list[tuple[str, str, str]]:
    start = "tests[0].tools[0]."
    return [
        (item.severity, item.path.removeprefix(start), item.error.details["reason"])
        for item in loaded.diagnostics
    ]


@pytest.mark.parametrize(
    ("tool", "path", "reason"),
    [
        ("responses: [{when: {a: 1}}]", "responses[0].then", "schema"),
        ("responses: [{setState: {a: 1}}]", "responses[0].then", "schema"),
        ("responses: [{then: 1, fault: error}]", "responses[0].fault", "schema"),
        ("responses: [{then: 1, sequence: [{then: 2}]}]", "responses[0].sequence", "schema"),
        ("responses: [{sequence: []}]", "responses[0].sequence", "schema"),
        ("parameters: {type: string}, defaultResponse: 1", "parameters", "invalid_schema"),
        ("responses: [{sequence: [{}]}]", "responses[0].sequence[0].then", "schema"),
        ("responses: [{sequence: [{when: {}, then: 1}]}]", "responses[0].sequence[0].when", "schema"),
        ("responses: [{fault: crash}]", "responses[0].fault", "schema"),
        ("responses: [{then: 1, delayMs: -1}]", "responses[0].delayMs", "schema"),
        ("responses: [{when: {a: {$absent: true}}, then: 1}]", "responses[0].when.a.$absent", "absent"),
        ("responses: [{then: {$absent: true}}]", "responses[0].then.$absent", "absent"),
        ("responses: [{then: 1, setState: {a: {$absent: true}}}]", "responses[0].setState.a.$absent", "absent"),
        ("responses: [{whenState: {a: {$absent: false}}, then: 1}]", "responses[0].whenState.a.$absent", "absent"),
        ("responses: [{whenState: {a: {$absent: true, b: 1}}, then: 1}]", "responses[0].whenState.a.$absent", "absent"),
        ("responses: [{whenState: {$absent: true}, then: 1}]", "responses[0].whenState.$absent", "absent"),
        ("responses: [{when: {a: '{{args.a}}'}, then: 1}]", "responses[0].when.a", "unknown_placeholder"),
        ("responses: [{whenState: {a: ['{{state.a}}']}, then: 1}]", "responses[0].whenState.a[0]", "unknown_placeholder"),
        ("defaultResponse: {a: 'x {{args.a}}'}", "defaultResponse.a", "unknown_placeholder"),
        ("defaultResponse: {ok: 1}, resultSchema: refund.json", "defaultResponse", "result_schema"),
        ("responses: [{then: {}}], resultSchema: refund.json", "responses[0].then", "result_schema"),
        ("responses: [{sequence: [{then: {ok: true}}, {then: null}]}], resultSchema: refund.json", "responses[0].sequence[1].then", "result_schema"),
        ("resultSchema: none.json", "resultSchema", "file"),
        ("cassette: {run: latest, match: order}", "cassette.match", "schema"),
        ("cassette: {}", "cassette.run", "schema"),
    ],
)  # fmt: skip
def test_what_a_tool_cannot_answer(load_tool: Any, tool: str, path: str, reason: str) -> None:
    loaded = load_tool(tool)
    assert loaded.suite is None
    assert ("error", path, reason) in found(loaded)


@pytest.mark.parametrize(
    "tool",
    [
        "responses: [{when: {a: 1}, then: {ok: '{{args.ok}}'}}], resultSchema: refund.json",
        "responses: [{when: {a: 1}, fault: malformed}], resultSchema: refund.json",
        "responses: [{when: {a: 1}, then: {ok: true, more: 1}}], resultSchema: refund.json",
        "responses: [{when: {a: 1}, then: null, setState: {a: '{{state.b.c[0]}}'}}]",
        "responses: [{whenState: {a: {b: {$absent: true}}}, fault: timeout, setState: {a: 1}}]",
        "responses: [{when: {a: 1, b: 1}, then: 1}, {when: {a: 1}, then: 2}]",
        "responses: [{when: {a: 1}, whenState: {b: 1}, then: 1}, {when: {a: 1}, then: 2}]",
        "responses: [{when: {a: 1}, then: 1}, {when: {a: true}, then: 2}, {when: {a: '1'}, then: 3}]",
        "parameters: {type: object}, defaultResponse: 1",
    ],
)
def test_valid_tools_load_without_errors(load_tool: Any, tool: str) -> None:
    loaded = load_tool(tool)
    assert found(loaded) == []
    assert loaded.suite


@pytest.mark.parametrize(
    ("tool", "path", "reason"),
    [
        ("responses: [{then: 1}, {when: {a: 1}, then: 2}]", "responses[1]", "unreachable"),
        ("responses: [{when: {}, then: 1}], defaultResponse: 2", "defaultResponse", "unreachable"),
        ("responses: [{sequence: [{then: 1}]}], cassette: {run: x}", "cassette", "unreachable"),
        (
            "responses: [{when: {a: 1}, then: 1}, {when: {a: 1, b: 1}, then: 2}]",
            "responses[1]",
            "unreachable",
        ),
        (
            "responses: [{when: {a: {b: 1}}, then: 1}, {when: {a: {b: 1.0}}, whenState: {c: 1}, then: 2}]",
            "responses[1]",
            "unreachable",
        ),
        ("responses: [{when: {a: 1}, then: '{{arg.a}}'}]", "responses[0].then", "not_expanded"),
        ("responses: [{when: {a: 1}, then: ['{{args}}']}]", "responses[0].then[0]", "not_expanded"),
        ("defaultResponse: '{{message}}'", "defaultResponse", "not_expanded"),
    ],
)
def test_what_it_says_in_vain(load_tool: Any, tool: str, path: str, reason: str) -> None:
    loaded = load_tool(tool)
    assert found(loaded) == [("warning", path, reason)]
    assert loaded.suite


@pytest.mark.parametrize("name", ["look up", "orders/lookup", "größe", "a" * 65])
def test_a_name_that_most_providers_refuse(load: Any, minimal: str, name: str) -> None:
    loaded = load(minimal + f"    tools: [{{name: {name}, defaultResponse: 1}}]\n")
    assert found(loaded) == [("warning", "name", "tool_name")]
    assert loaded.suite


def test_a_lie_is_reported_with_what_is_wrong(load_tool: Any) -> None:
    [problem] = load_tool("defaultResponse: {ok: 1}, resultSchema: refund.json").diagnostics
    assert problem.error.message == (
        'This response of the tool "refund" breaks "refund.json": $.ok: 1 is not of type \'boolean\''
    )


def test_expectations_match_nothing_absent(load: Any, minimal: str) -> None:
    expect = "toolCalls: [{tool: a, argsMatch: {b: {$absent: true}}}]"
    loaded = load(minimal.replace("[hello]}", "[hello]}, " + expect))
    assert loaded.diagnostics[0].path == "tests[0].expect.toolCalls[0].argsMatch.b.$absent"


def test_answers_as_values(load: Any, complete: str) -> None:
    refund = load(complete).suite.cases[2].tools[0]
    assert refund.result_schema == {"type": "object"}
    assert refund.cassette == "latest"
    assert refund.answers == (
        ToolAnswer(
            when={"id": "A1"},
            when_state={"done": {"$absent": True}},
            then={"ok": True},
            set_state={"done": "{{args.id}}"},
            delay_ms=5,
        ),
        ToolAnswer(when={"id": "X"}, fault=Fault.TIMEOUT),
        ToolAnswer(
            sequence=(
                ToolAnswer(then={"status": "pending"}),
                ToolAnswer(fault=Fault.MALFORMED, delay_ms=1),
            )
        ),
    )


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"requried": ["a"]}, ["requried"]),
        ({"properties": {"requried": {"tpye": "string"}}}, ["tpye"]),
        (
            {
                "items": [{"uniqueitems": True}],
                "$schema": "http://json-schema.org/draft-07/schema#",
            },
            ["uniqueitems"],
        ),
        ({"anyOf": [{"not": {"additionalPropertys": False}}]}, ["additionalPropertys"]),
        ({"x-order": 1, "$comment": "a", "units": "m", "title": "t", "nullable": True}, []),
        ({"dependencies": {}, "minContains": 1, "if": {}, "then": {}, "definitions": {}}, []),
        ({"enum": [{"tpye": 1}], "default": {"requried": 1}, "examples": [{"tpye": 1}]}, []),
        (True, []),
    ],
)
def test_a_keyword_that_is_misspelt_in_a_schema_is_warned_of(
    load: Any, minimal: str, tmp_path: Path, schema: Any, words: list[str]
) -> None:
    (tmp_path / "s.json").write_text(json.dumps(schema))
    output = "output: {format: json, schemaFile: s.json}"
    expect = f"{{{output}, toolCalls: [{{tool: refund, argsSchema: s.json}}]}}"
    text = minimal.replace("{output: {contains: [hello]}}", expect)
    tool = "{name: refund, resultSchema: s.json%s}"
    parameters = "" if schema is True else f", parameters: {json.dumps(schema)}"
    loaded = load(text + f"    tools:\n      - {tool % parameters}\n")

    assert [item.severity for item in loaded.diagnostics if item.severity == "error"] == []
    told = [
        (item.path, item.error.details["value"])
        for item in loaded.diagnostics
        if item.error.details["reason"] == "schema_keyword"
    ]
    places = ["expect.output.schemaFile", "expect.toolCalls[0].argsSchema", "tools[0].resultSchema"]
    if schema is not True:
        places.append("tools[0].parameters")
    assert sorted(told) == sorted((f"tests[0].{place}", word) for place in places for word in words)
