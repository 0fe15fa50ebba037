"""What is filled in at run time, and what never is."""

# ruff: noqa: E501 - configurations are shown as they are

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.checks.base import sections
from kindlm.config.interpolation import bind, bind_services, bind_suite, names_in, render
from kindlm.config.long_form import ALONE
from kindlm.config.published import schema_with_packages
from kindlm.config.schema import KindlmConfig
from kindlm.dataclass import replace
from kindlm.errors import Err, Ok
from kindlm.yaml_document import read_document

SECRET = {"SECRET": "hunter22", "LOCAL_HOST": "localhost:1", "MODE": "test"}
AGENT = {"SHOP_TOKEN": "t0p-secret", "TENANT": "acme"}
PORTS = {"agent": 4711, "other": 4712}


def bound(loaded: Any, environ: dict[str, str], **more: Any) -> Any:
    result = bind_suite(loaded.suite, environ=environ, ports=PORTS, **more)
    assert isinstance(result, Ok), result
    return result.value


def test_ports_and_environment_are_filled_in(load: Any, minimal: str) -> None:
    text = minimal.replace(
        "KEY}", 'KEY, baseUrl: "http://{{env.LOCAL_HOST}}:{{serve.agent.port}}/v1"}'
    ).replace("{user: Hi}", "{user: 'Hi {{name}} {{env.SECRET}} {{serve.agent.port}}'}")
    text = text.replace("prompt: ask", "prompt: ask\n    vars: {name: Bo}")
    loaded = load(text + "serve: [{name: agent, command: run}]\n")
    suite = bound(loaded, SECRET)
    assert suite.providers["openai"].base_url == "http://localhost:1:4711/v1"
    assert suite.cases[0].prompt.user == "Hi Bo hunter22 4711"
    assert suite.config_hash == loaded.suite.config_hash
    assert "hunter22" not in suite.config_text


@pytest.mark.parametrize("value", ["{{env.SECRET}}", "{{other}}", r"\1 $& \g<0>"])
def test_a_value_is_never_expanded(load: Any, minimal: str, value: str) -> None:
    text = minimal.replace("{user: Hi}", "{user: 'a {{name}} b'}")
    text = text.replace("prompt: ask", f"prompt: ask\n    vars: {{name: '{value}', other: x}}")
    assert bound(load(text), SECRET).cases[0].prompt.user == f"a {value} b"


TOOL = """\
    tools:
      - name: look
        description: "Finds {{run.canary}} {{env.SECRET}}"
        responses: [{when: {id: 1}, then: {found: ["{{run.canary}}"]}}]
        defaultResponse: "{{run.canary}} {{name}}"
"""


def test_texts_of_tools_get_the_canary_and_nothing_else(load: Any, minimal: str) -> None:
    text = minimal.replace("{user: Hi}", "{user: 'Hi {{run.canary}}'}")
    text = text.replace("    prompt: ask\n", f"    prompt: ask\n{TOOL}")
    (case,) = bound(load(text), SECRET, canary="kc-1").cases
    (tool,) = case.tools
    assert case.prompt.user == "Hi kc-1"
    assert tool.description == "Finds kc-1 {{env.SECRET}}"
    assert (tool.answers[0].then, tool.default) == ({"found": ["kc-1"]}, "kc-1 {{name}}")


VALUES = st.text(st.sampled_from(list("{}.env a")), max_size=14)


PARTS = st.sampled_from(["{{a}}", "{{b}}", "{{env.X}}", "{", "}}", "env.X", " "])


@given(st.lists(PARTS), VALUES, VALUES)
def test_rendering_in_two_steps_equals_one_pass(parts: list[str], a: str, b: str) -> None:
    template = "".join(parts)
    values = {"a": a, "b": b, "env.X": "<x>"}
    if set(names_in(template)) <= values.keys():
        once = re.sub(r"\{\{([\w.]+)\}\}", lambda match: values[match[1]], template)
        assert bind(render(template, values), lambda _: "<x>") == once


def test_all_unset_variables_are_named_with_their_places(load: Any, complete: str) -> None:
    text = complete.replace("You serve {{shop}}.", "{{shop}} {{env.A}} {{env.B}}")
    text = text.replace("provider: openai,", "provider: local,").replace(
        "    provider: openai\n", "    provider: local\n"
    )
    result = bind_suite(load(text).suite, environ={"B": "", **AGENT}, ports=PORTS)
    assert isinstance(result, Err)
    assert result.error.details["missing"] == ["LOCAL_HOST", "A"]
    places = 'test "refund", test "rows [first]", test "rows [second]" and 1 more'
    assert f"A (in {places})" in result.error.message
    assert "LOCAL_HOST (in providers.local.baseUrl)" in result.error.message


def test_only_what_is_used_needs_a_value(load: Any, complete: str) -> None:
    """`local` has an unset host and no model; `filed` is skipped."""
    text = complete.replace('user: "{{message}}"', "user: '{{message}} {{env.A}}'")
    loaded = load(text)
    assert isinstance(bind_suite(loaded.suite, environ=AGENT, ports=PORTS), Err)
    nothing = bound(loaded, {}, selected={})
    assert nothing.providers["anthropic"].base_url == "http://127.0.0.1:{{serve.agent.port}}"
    suite = bound(loaded, {"A": "1"}, selected={"refund": ["gpt"]})
    assert suite.providers["anthropic"].base_url == "http://127.0.0.1:{{serve.agent.port}}"
    suite = bound(loaded, {"A": "1"}, selected={"refund": ["claude"]})
    assert suite.providers["anthropic"].base_url == "http://127.0.0.1:4711"


def test_a_judge_counts_as_used(load: Any, minimal: str) -> None:
    text = (
        minimal.replace("{openai:", "{local: {type: openai, baseUrl: 'http://{{env.H}}'}, openai:")
        .replace("models: [", "models: [{id: j, provider: local, model: x, role: judge}, ")
        .replace("[hello]}", "[hello]}, judge: [{criteria: kind}]")
    )
    result = bind_suite(load(text).suite, environ={}, ports={})
    assert isinstance(result, Err)
    assert result.error.details["missing"] == ["H"]


@pytest.mark.parametrize(
    ("method", "missing"), [("judge", ["J"]), ("embedding", ["E"]), ("field-diff", None)]
)
def test_drift_needs_who_measures_it(
    load: Any, minimal: str, method: str, missing: list[str] | None
) -> None:
    providers = "{j: {type: anthropic, baseUrl: 'http://{{env.J}}'}, e: {type: openai, baseUrl: 'http://{{env.E}}'}, fake: {type: scripted, replies: [{text: a}]}, "
    text = (
        minimal.replace("{openai:", providers + "openai:")
        .replace("[{id: gpt, provider: openai", "[{id: j, provider: j, model: x, role: judge}, {id: gpt, provider: fake")
        .replace("[hello]}", f"[hello]}}, baseline: {{drift: {{method: {method}}}}}")
    )  # fmt: skip
    result = bind_suite(load(text).suite, environ={}, ports={})
    found = result.error.details["missing"] if isinstance(result, Err) else None
    assert found == missing


def test_services_get_the_environment_and_keep_ports(load: Any, complete: str) -> None:
    suite = load(complete).suite
    first, *others = suite.services
    suite = replace(suite, services=(replace(first, ready_line="as {{env.MODE}}"), *others))
    services = bind_services(suite, environ=SECRET)
    assert isinstance(services, Ok)
    assert services.value[0].ready_line == "as test"
    assert services.value[0].env == {"MODE": "test"}
    assert services.value[0].command[-1] == "{{serve.agent.port}}"
    missing = bind_services(suite, environ={})
    assert isinstance(missing, Err)
    assert missing.error.details["missing"] == ["MODE"]


def test_the_published_schema_takes_what_the_loader_takes(complete: str) -> None:
    schema = schema_with_packages()[0]
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    config = read_document(complete.encode()).value
    assert list(validator.iter_errors(config)) == []
    assert list(validator.iter_errors({**config, "bogus": 1}))
    assert list(validator.iter_errors({**config, "defaults": {"repeat": 0}}))
    assert list(validator.iter_errors({**config, "compliance": None}))


def test_the_published_schema_marks_extensions() -> None:
    schema = schema_with_packages()[0]
    marked = [name for name, item in schema["properties"].items() if "x-kindlm-extension" in item]
    assert marked == ["agents", "serve", "prices", "record", "agent"]
    test, expect, answer = (
        {name for name, item in schema["$defs"][part]["properties"].items()
         if "x-kindlm-extension" in item}
        for part in ("TestConfig", "ExpectConfig", "ToolAnswerConfig")
    )  # fmt: skip
    assert test == {
        "input", "prompts", "varsFrom", "call", "command", "reportsTools", "conversation", "strictTools",
        "passRate", "maxTurns"
    }  # fmt: skip
    assert expect == {each.key.name for each in sections() if not each.key.in_format}
    assert expect >= {"trajectory", "latency", "cost"}
    assert answer == {"fault", "setState", "delayMs", "whenState", "sequence"}
    assert (
        set(schema["properties"])
        == {field.alias for field in KindlmConfig.model_fields.values()} | ALONE.keys()
    )
