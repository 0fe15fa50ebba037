"""Reading scripts: strict, and clear about what is wrong."""

from __future__ import annotations

import re
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.testing import ScriptError
from kindlm.testing.node import load_yaml
from kindlm.testing.player import fill
from kindlm.testing.script import builtin_scripts, load_script

REPLY = {"text": "x"}


def rule(**when):
    return {"rules": [{"when": when, "reply": REPLY}]}


WRONG = [
    ({"rulez": []}, "script: unknown key 'rulez'. Did you mean \"rules\"?"),
    ({"rules": {}}, "script.rules: expected a list, got a mapping"),
    ({"rules": [{"when": {}}]}, "script.rules[0]: 'reply' is missing"),
    ({"rules": [{"reply": {}}]}, "expected one of text, json, toolCalls, fault"),
    ({"rules": [{"reply": {"text": "x", "json": {}}}]}, "exclude one another"),
    ({"rules": [{"reply": {"text": 5}}]}, "reply.text: expected text, got a number"),
    ({"rules": [{"reply": {"toolCalls": [{}]}}]}, "toolCalls[0]: 'name' is missing"),
    ({"rules": [{"reply": {"text": "x", "usage": {"inputTokens": 1}}}]}, "outputTokens"),
    (rule(userr="x"), 'Did you mean "user"?'),
    (rule(user=""), "none of them empty"),
    (rule(user={"matches": "("}), "user.matches: not a valid pattern"),
    ({"faults": [{"status": 500, "next": True}]}, "expected a number, got true or false"),
    ({"faults": [{"status": 500, "next": 1.5}]}, "expected a whole number"),
    (rule(asks="grpc"), "expected one of agent, judge, drift"),
    (rule(results={"a": {"exist": 1}}), 'Did you mean "exists"?'),
    ({"models": [{"reasoning": True}]}, "models[0]: 'name' is missing"),
    ({"judge": {"default": 2}}, "expected a number from 0 to 1"),
    ({"judge": {"rules": [{"criteria": "x"}]}}, "'checks' is missing"),
    ({"judge": {"rules": [{"criteria": "x", "checks": []}]}}, "at least one check"),
    ({"judge": {"rules": [{"criteria": "x", "checks": [{}]}]}}, "expected exactly one of says"),
    (
        {"judge": {"rules": [{"criteria": "x", "checks": [{"says": "x", "arguments": {}}]}]}},
        "arguments belong to called",
    ),
    ({"faults": [{"next": 1}]}, "expected exactly one of latencyMs"),
    ({"faults": [{"status": 500, "empty": True}]}, "got 2"),
    ({"faults": [{"status": 200}]}, "expected a number from 400 to 599"),
    ({"extends": "nobody"}, "built-in scripts: support, support-changed"),
]


@pytest.mark.parametrize(("data", "message"), WRONG)
def test_a_wrong_script_is_refused_with_the_place(data, message):
    with pytest.raises(ScriptError) as caught:
        load_script(data)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules: [", "line 1"),
        ("rules: []\nrules: []", 'line 2: The key "rules" occurs twice'),
        ("[" * 1_000, "nested more than 64 levels"),
        ("rules: !!python/name:os.system []", "line 1"),
    ],
)
def test_wrong_yaml_is_refused_with_the_line(tmp_path, text, message):
    path = tmp_path / "agent.yaml"
    path.write_text(text)
    with pytest.raises(ScriptError) as caught:
        load_script(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_words_of_yaml_stay_words():
    assert load_yaml("[no, on, yes, true, 2026-01-01]") == ["no", "on", "yes", True, "2026-01-01"]


def test_a_script_extends_another_beside_it(tmp_path):
    (tmp_path / "base.yaml").write_text(
        "keys: base-key\njudge: {default: 0.1}\nrules: [{name: last, reply: {text: x}}]"
    )
    (tmp_path / "agent.yaml").write_text(
        "extends: base.yaml\nrules: [{name: first, reply: {text: x}}]"
    )
    script = load_script(tmp_path / "agent.yaml")
    assert [rule.name for rule in script.rules] == ["first", "last"]
    assert (script.keys, script.judge_default) == (("base-key",), 0.1)


def test_scripts_that_extend_one_another_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b.yaml")
    (tmp_path / "b.yaml").write_text("extends: a.yaml")
    with pytest.raises(ScriptError, match="circle"):
        load_script(tmp_path / "a.yaml")


@pytest.mark.parametrize("name", builtin_scripts())
def test_built_in_scripts_load(name):
    assert load_script(name).rules


def test_the_script_in_the_reference_loads():
    reference = resources.files("kindlm.testing") / "README.md"
    (example,) = re.findall(r"```yaml\n(.*?)```", reference.read_text(encoding="utf-8"), re.DOTALL)
    script = load_script(load_yaml(example))
    assert (script.rules[0].name, len(script.judge_rules), len(script.faults)) == ("refund", 8, 1)


def test_a_pattern_that_never_ends_is_stopped(asked, monkeypatch):
    monkeypatch.setattr("kindlm.testing.script.MATCH_TIMEOUT_S", 0.05)
    app = asked(rule(user={"matches": "^(a|aa)+$"}))
    messages = [{"role": "user", "content": "a" * 5000 + "b"}]
    refused = app.post("/v1/chat/completions", messages=messages)
    assert refused.status == 500
    assert b"takes too long" in refused.body


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("{{a.b.1}}", 2.5),
        ("is {{a.b.1}}", "is 2.5"),
        ("{{ a.b }}", [1, 2.5]),
        ("{{c|none}}", "none"),
        ("{{c|}}", ""),
        ({"x": ["{{t}}", 1]}, {"x": [True, 1]}),
        ("{{n}}", None),
        ("{{s}}", "{{t}}"),
        ("{not} a {{}}", "{not} a {{}}"),
    ],
)
def test_placeholders(template, filled):
    scope = {"a": {"b": [1, 2.5]}, "t": True, "n": None, "s": "{{t}}"}
    assert fill(template, scope) == filled


@given(st.text())
def test_any_value_is_put_in_as_it_is(value):
    assert fill("<{{v}}>", {"v": value}) == f"<{value}>"
