"""What is legal and still cannot be meant."""

# ruff: noqa: E501 - one row of a table is one line
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def warnings(loaded: Any) -> list[tuple[str, str]]:
    assert loaded.suite, loaded.diagnostics
    assert {item.severity for item in loaded.diagnostics} <= {"warning"}
    assert all(item.error.hint for item in loaded.diagnostics)
    return [(item.path, item.error.details["reason"]) for item in loaded.diagnostics]


EXPECT = "{output: {contains: [hello]}}"


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        (("prompts: {", "prompts: {other: {user: Hi}, "), "prompts.other", "unused"),
        (("gpt-4o}]", "gpt-4o}, {id: j, provider: openai, model: x, role: judge}]"), "models[1]", "unused"),
        (("[hello]}", "[hello]}, judge: [{criteria: kind}]"), "tests[0].expect.judge[0]", "default_judge"),
        (("[hello]}", "[hello]}, baseline: {drift: {}}"), "tests[0].expect.baseline.drift", "default_judge"),
        (("{output: {contains: [hello]}}", "{toolCalls: [], judge: [], guardrails: {}}"), "tests[0].expect", "expects_nothing"),
        (("[hello]}", "[hello]}, judge: [{criteria: kind, model: gpt, minScore: 0}]"), "tests[0].expect.judge[0].minScore", "never_fails"),
        (("[hello]}", "[hello]}, baseline: {drift: {maxScore: 1, method: embedding}}"), "tests[0].expect.baseline.drift.maxScore", "never_fails"),
        (("[hello]}", "[hello]}, baseline: {drift: {fields: [a], method: embedding}}"), "tests[0].expect.baseline.drift.fields", "unused"),
        (("[hello]", "[hello], similarTo: {text: hi, minScore: 0}"), "tests[0].expect.output.similarTo.minScore", "never_fails"),
        (("[hello]}", "[hello]}, latency: {maxMs: 300000}"), "tests[0].expect.latency.maxMs", "never_fails"),
        (("[hello]}", "[hello]}, trajectory: {mode: superset, calls: []}"), "tests[0].expect.trajectory", "never_fails"),
        (("[hello]}}", "[hello]}, trajectory: {mode: in-order, calls: [{tool: a, count: {min: 0}}]}}\n    tools: [{name: a}]"), "tests[0].expect.trajectory", "never_fails"),
        (("[hello]", "[hello, '']"), "tests[0].expect.output.contains[1]", "never_fails"),
        (("contains: [hello]", "regex: ['^a*']"), "tests[0].expect.output.regex[0]", "never_fails"),
        (("[hello]}", "[hello]}, guardrails: {keywords: {allow: [hi, '']}}"), "tests[0].expect.guardrails.keywords.allow[1]", "never_fails"),
        (("[hello]}", "[hello]}, guardrails: {pii: {denyPatterns: []}}"), "tests[0].expect.guardrails.pii.denyPatterns", "never_fails"),
        (("[hello]}", "[hello]}, guardrails: {pii: {denyPatterns: ['']}}"), "tests[0].expect.guardrails.pii.denyPatterns[0]", "never_fails"),
        (("[hello]}", "[hello]}, guardrails: {pii: {customPatterns: [{name: a, pattern: a}, {name: b, pattern: ''}]}}"), "tests[0].expect.guardrails.pii.customPatterns[1].pattern", "never_fails"),
        (("[hello]}}", "[hello]}, toolCalls: [{tool: a, count: {min: 0}}]}\n    tools: [{name: a}]"), "tests[0].expect.toolCalls[0].count", "never_fails"),
        (("prompt: ask", "prompt: ask\n    passRate: 0"), "tests[0].passRate", "never_fails"),
        (("tests:", "defaults: {passRate: 0}\ntests:"), "defaults.passRate", "never_fails"),
        (("tests:", "gates: {passRateMin: 0}\ntests:"), "gates.passRateMin", "never_fails"),
        (("tests:", "gates: {piiFailuresMax: 0}\ntests:"), "gates.piiFailuresMax", "never_fails"),
        (("tests:", "gates: {schemaFailuresMax: 9}\ntests:"), "gates.schemaFailuresMax", "never_fails"),
        (("tests:", "gates: {latencyMaxMs: 300000}\ntests:"), "gates.latencyMaxMs", "never_fails"),
        (("{user: Hi}", "{user: 'Hi {{ name }}'}"), "prompts.ask.user", "near_placeholder"),
        (("{user: Hi}", "{user: 'Hi {{first-name}}'}"), "prompts.ask.user", "near_placeholder"),
        (("{user: Hi}", "{user: 'Hi ${env.HOME}'}"), "prompts.ask.user", "near_placeholder"),
        (("KEY}", "KEY, baseUrl: 'http://${env.HOST}/'}"), "providers.openai.baseUrl", "near_placeholder"),
        (("contains: [hello]", "contains: ['{{env.HOME}}']"), "tests[0].expect.output.contains[0]", "not_expanded"),
        (("contains: [hello]}}", "contains: ['{{a}}']}}\n    vars: {a: x}"), "tests[0].expect.output.contains[0]", "not_expanded"),
        (("[hello]}}", "[hello]}}\n    vars: {a: x}\n    tools: [{name: a, responses: [{when: {b: '{{a}}'}, then: 1}]}]"), "tests[0].tools[0].responses[0].when.b", "not_expanded"),
        (("[hello]}}", "[hello]}}\n    tools: [{name: a, description: '{{run.canary}}', defaultResponse: '{{run.canary}} {{env.HOME}}'}]"), "tests[0].tools[0].defaultResponse", "not_expanded"),
        ((EXPECT, "{toolCalls: [{tool: a, shouldNotCall: true, order: 1}]}\n    tools: [{name: a}]"), "tests[0].expect.toolCalls[0].order", "unused"),
        ((EXPECT, "{toolCalls: [{tool: a, shouldNotCall: true, count: {min: 0}}]}\n    tools: [{name: a}]"), "tests[0].expect.toolCalls[0].count", "unused"),
        ((EXPECT, "{toolCalls: [{tool: a, before: b}]}\n    tools: [{name: a}]"), "tests[0].expect.toolCalls[0].before", "unknown_tool"),
        (("[hello]}", "[hello]}, trajectory: {mode: strict, calls: [{tool: a}]}"), "tests[0].expect.trajectory.calls[0].tool", "unknown_tool"),
        (("prompt: ask", "prompt: ask\n    conversation: [{user: a, expect: {toolCalls: [{tool: a}]}}]"), "tests[0].conversation[0].expect.toolCalls[0].tool", "unknown_tool"),
    ],
)  # fmt: skip
def test_each_suspicion_is_reported_alone(
    load: Any, minimal: str, change: tuple[str, str], path: str, reason: str
) -> None:
    assert change[0] in minimal
    assert warnings(load(minimal.replace(*change))) == [(path, reason)]


def test_parameters_of_a_model_that_only_judges_are_reported(load: Any, minimal: str) -> None:
    judge = "{id: j, provider: openai, model: x, role: judge, params: {temperature: 1}}"
    text = minimal.replace("gpt-4o}]", f"gpt-4o}}, {judge}]")
    text = text.replace("[hello]}", "[hello]}, judge: [{criteria: kind, model: j}]")
    assert warnings(load(text)) == [("models[1].params", "unused")]
    assert not warnings(load(text.replace(", params: {temperature: 1}", "")))


@pytest.mark.parametrize(
    ("call", "tool", "path", "reason"),
    [
        ("{orderid: 1}", "", "expect.toolCalls[0].argsMatch.orderid", "unknown_argument"),
        ("{id: 1}", ", responses: [{when: {i: 1}, then: 1}]", "tools[0].responses[0].when.i", "unknown_argument"),
        ("{x: 1}", ", parameters: {patternProperties: {x: {}}}", None, None),
        ("{x: 1}", ", parameters: {properties: {y: {}}, additionalProperties: {}}", None, None),
    ],
)  # fmt: skip
def test_names_that_no_tool_has_are_reported(
    load: Any, minimal: str, call: str, tool: str, path: str | None, reason: str | None
) -> None:
    parameters = (
        "" if "parameters" in tool else ", parameters: {properties: {id: {}, order_id: {}}}"
    )
    expect = f"[hello]}}, toolCalls: [{{tool: a, argsMatch: {call}}}]}}"
    text = minimal.replace("[hello]}}", f"{expect}\n    tools: [{{name: a{parameters}{tool}}}]")
    assert warnings(load(text)) == ([(f"tests[0].{path}", reason)] if path else [])


@pytest.mark.parametrize(
    ("responses", "path"),
    [
        ("{whenState: {don: {$absent: true}}, then: 1, setState: {done: 1}}", "[0].whenState.don"),
        ("{then: ['{{state.don}}'], setState: {done: 1}}", "[0].then[0]"),
        (
            "{sequence: [{then: 1, setState: {n: '{{state.done.x}}'}}]}",
            "[0].sequence[0].setState.n",
        ),
        (
            "{whenState: {done: 1}, then: '{{state.done[0]}}'}, {then: 1, setState: {done: [1]}}",
            None,
        ),
    ],
)
def test_a_state_that_no_response_sets_is_reported(
    load: Any, minimal: str, responses: str, path: str | None
) -> None:
    text = minimal.replace(
        "[hello]}}", f"[hello]}}}}\n    tools: [{{name: a, responses: [{responses}]}}]"
    )
    found = [(f"tests[0].tools[0].responses{path}", "unknown_state")] if path else []
    assert warnings(load(text)) == found


def test_a_pattern_that_withholds_less_than_is_meant_is_reported(load: Any, minimal: str) -> None:
    upload = r"upload: {redactPatterns: [a, '\\d+-\\d+']}"
    assert warnings(load(f"{minimal}{upload}\n")) == [("upload.redactPatterns[1]", "doubtful_text")]


@pytest.mark.parametrize(
    ("expect", "path"),
    [
        ('{output: {notContains: "an\\nerror\\n"}}', "output.notContains"),
        ('{guardrails: {keywords: {deny: ["sorry\\n"]}}}', "guardrails.keywords.deny[0]"),
        ('{output: {notRegex: "err.r\\n"}}', "output.notRegex"),
        ('{output: {regex: "(?x) err.r\\n"}}', None),
        ("{output: {notRegex: '/pass.word/i'}}", "output.notRegex"),
        ("{output: {notRegex: ['ok', '\\\\bkey\\\\b']}}", "output.notRegex[1]"),
        ("{guardrails: {pii: {denyPatterns: ['\\\\d{3}-\\\\d{4}']}}}", "guardrails.pii.denyPatterns[0]"),
        ("{guardrails: {pii: {customPatterns: [{name: a, pattern: '\\\\w+@'}]}}}", "guardrails.pii.customPatterns[0].pattern"),
        ("{output: {notRegex: ['/static/img', '/locale/us']}}", None),
        ("{output: {notRegex: '/pass.word/gi'}}", "output.notRegex"),
        ("{output: {notRegex: ['\\bkey\\b', '/api/v1/orders', 'C:\\\\data', '\\\\\\d+']}}", None),
        ("{output: {contains: ['/a/i', '\\\\d{3}']}}", None),
        ("{toolCalls: [{tool: 'a ', shouldNotCall: true}]}", "toolCalls[0].tool"),
        ("{toolCalls: [{tool: a, argsMatch: {tool: 'x '}}]}", None),
        ('{output: {contains: "a\\nb", startsWith: a}, judge: [{criteria: "a\\n", model: gpt}]}', None),
    ],
)  # fmt: skip
def test_texts_that_match_less_than_is_meant_are_reported(
    load: Any, minimal: str, expect: str, path: str | None
) -> None:
    tools = "\n    tools: [{name: a}, {name: 'a '}]" if "toolCalls" in expect else ""
    loaded = load(minimal.replace(EXPECT, expect + tools))
    assert warnings(loaded) == ([(f"tests[0].expect.{path}", "doubtful_text")] if path else [])


@pytest.mark.parametrize(
    ("schema", "reasons"),
    [
        ({"response": {"type": "object"}}, ["never_fails"]),
        ({"title": "any", "type": "object"}, []),
        ({}, []),
    ],
)
def test_a_schema_in_a_file_without_a_rule_is_reported(
    load: Any, minimal: str, tmp_path: Path, schema: Any, reasons: list[str]
) -> None:
    (tmp_path / "s.json").write_text(json.dumps(schema))
    expect = "{output: {format: json, schemaFile: s.json}}"
    path = "tests[0].expect.output.schemaFile"
    found = warnings(load(minimal.replace(EXPECT, expect)))
    assert found == [(path, reason) for reason in reasons]


def test_a_model_that_no_test_names_is_unused(load: Any, minimal: str) -> None:
    text = minimal.replace("gpt-4o}]", "gpt-4o}, {id: two, provider: openai, model: x}]")
    assert warnings(load(text)) == []
    text = text.replace("prompt: ask", "prompt: ask\n    models: [gpt]")
    assert warnings(load(text)) == [("models[1]", "unused")]


@pytest.mark.parametrize(
    "change",
    [
        ("tests:", "gates: {passRateMin: 0.1, costMaxUsd: 1000000}\ntests:"),
        ("[hello]}", "[hello]}, trajectory: {mode: strict, calls: []}"),
        (
            "{contains: [hello]}}",
            "{contains: [a]}, guardrails: {pii: {}}}\ngates: {piiFailuresMax: 0}",
        ),
        ("[hello]}", "[hello]}, judge: [{criteria: a}]}\ndefaults: {judgeModel: gpt"),
        ("contains: [hello]", r"regex: ['^(?!.*will \d{7} mail)', '^[^0-9]*$', '^[^€]*$']"),
        ("{user: Hi}", "{user: 'Use { name } and {{}} and $HOME'}"),
    ],
)
def test_settings_that_are_meant_get_no_advice(
    load: Any, minimal: str, change: tuple[str, str]
) -> None:
    assert warnings(load(minimal.replace(*change))) == []


def test_the_judge_that_is_taken_is_named(load: Any, minimal: str) -> None:
    text = minimal.replace("gpt-4o}]", "gpt-4o}, {id: j, provider: openai, model: x, role: judge}]")
    loaded = load(text.replace("[hello]}", "[hello]}, judge: [{criteria: kind}]"))
    found = {item.error.details["reason"]: item.error for item in loaded.diagnostics}
    assert '"gpt"' in found["default_judge"].message
    assert "judgeModel: j" in found["default_judge"].hint
    assert '"j"' in found["unused"].message


ANTHROPIC = ("{openai:", "{mine: {type: anthropic, baseUrl: 'https://example.com'}, openai:")


@pytest.mark.parametrize(
    ("provider", "params", "found"),
    [
        ("mine", "{seed: 7}", [("models[0].params.seed", "not_sent")]),
        ("mine", "{temperature: 0}", []),
        ("openai", "{seed: 7}", []),
    ],
)
def test_a_seed_that_an_api_has_not_is_reported(
    load: Any, minimal: str, provider: str, params: str, found: Any
) -> None:
    model = f"provider: {provider}, model: gpt-4o, params: {params}}}]"
    text = minimal.replace(*ANTHROPIC).replace("provider: openai, model: gpt-4o}]", model)
    told = [item for item in warnings(load(text)) if item[1] != "unused"]
    assert told == found


@pytest.mark.parametrize(
    ("models", "who"),
    [("", '"gpt"'), ("models: [gpt]", '"gpt"'), ("models: [claude]", None), ("models: []", None)],
)
def test_a_prefill_that_is_not_sent_is_reported(
    load: Any, minimal: str, models: str, who: str | None
) -> None:
    claude = "gpt-4o}, {id: claude, provider: mine, model: claude-sonnet-4-5}]"
    text = minimal.replace(*ANTHROPIC).replace("gpt-4o}]", claude)
    text = text.replace("{user: Hi}", "{user: Hi, assistant: '{'}")
    found = load(text.replace("prompt: ask", f"prompt: ask\n    {models}")).diagnostics
    told = [item for item in found if item.error.details["reason"] == "not_sent"]
    assert [item.path for item in told] == (["prompts.ask.assistant"] if who else [])
    assert all(f"is not sent to {who}:" in item.error.message for item in told)


def test_what_is_wrong_is_not_called_unused(load: Any, minimal: str) -> None:
    found = load(minimal.replace("prompt: ask", "prompt: aks")).diagnostics
    assert [item.error.details["reason"] for item in found] == ["unknown_prompt"]


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("minScore", "80", "0.8 for 80 %"),
        ("minScore", "100", "1 for 100 %"),
    ],
)
def test_a_percentage_is_reported_how_to_be_a_share(
    load: Any, minimal: str, key: str, value: str, hint: str
) -> None:
    judge = f"[hello]}}, judge: [{{criteria: a, model: gpt, {key}: {value}}}]"
    [found] = load(minimal.replace("[hello]}", judge)).diagnostics
    assert hint in found.error.hint
    [found] = load(minimal + f"gates: {{passRateMin: {value}}}\n").diagnostics
    assert hint in found.error.hint


def of_command(minimal: str, command: str) -> str:
    """Return a configuration whose only test runs a command with the variable `v`."""
    told = json.dumps(command)
    head = minimal.partition("providers:")[0]
    return f"{head}tests: [{{name: t, vars: {{v: x, w: y}}, command: {told}, expect: {EXPECT}}}]\n"


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'echo {{v}}'",
        "env A=1 timeout 5 bash -lc 'agent --ask {{v}}'",
        "sh -c -e 'echo {{v}}' sh {{w}}",
        "/bin/bash -euo pipefail -c 'echo {{v}} | tee log'",
        "bash -o pipefail -ce 'echo {{v}}'",
        "python -c 'print({{v}})'",
        "python3.12 -Pc 'print(\"{{v}}\")'",
        "perl -Mfeature=say -ne 'print q({{v}})'",
        "php -r 'echo {{v}};'",
        "node --eval 'console.log({{v}})'",
    ],
)
def test_a_variable_inside_a_program_is_reported(load: Any, minimal: str, command: str) -> None:
    text = of_command(minimal, command).replace("w: y", "").replace("{{w}}", "x")
    assert warnings(load(text)) == [("tests[0].command", "run_as_program")]
    (item,) = load(text).diagnostics
    assert "{{v}}" in item.error.message
    assert item.error.hint.endswith("{{v}}")


@pytest.mark.parametrize(
    "command",
    [
        """sh -c 'echo "$1" "$2"' sh {{v}} {{w}}""",
        "sh script.sh -c {{v}} {{w}}",
        "bash -e {{v}} {{w}}",
        "python agent.py -c {{v}} {{w}}",
        "python -m agent -c {{v}} {{w}}",
        "agent -c {{v}} {{w}}",
        "python -c 'import sys; print(sys.argv)' {{v}} {{w}}",
    ],
)
def test_a_variable_that_is_an_argument_is_fine(load: Any, minimal: str, command: str) -> None:
    assert warnings(load(of_command(minimal, command))) == []


def test_a_variable_inside_a_program_is_reported_lists(load: Any, minimal: str) -> None:
    text = of_command(minimal, "X").replace('"X"', "[bash, -c, 'echo {{v}} {{w}}']")
    assert warnings(load(text)) == [("tests[0].command[2]", "run_as_program")]
