"""From a case to what is run and checked: expectations, targets, contexts, variables."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kindlm.checks.evalview.safety import Safety
from kindlm.checks.evalview.tools import ToolSequence
from kindlm.config.interpolation import bind_suite
from kindlm.errors import Err, Ok
from kindlm.packages import as_written
from kindlm.recording.suite_secrets import given_variables, literal_secrets, short_secrets

Load = Callable[..., Any]

EVERYTHING = """\
name: everything
description: >
  All that a case can say
turns:
  - {query: "Find ${SUBJECT}", context: {a: 1}}
  - query: And then?
    expected:
      tools: [summarize]
      forbidden_tools: [rm]
      output: {contains: [done]}
expected:
  tools: [search, summarize, search]
  tool_categories: [web, nonsense]
  sequence: [search, summarize]
  forbidden_tools: [delete_user]
  output:
    contains: [quantum, quantum]
    not_contains: [error]
    regex_patterns: ["q.*m"]
    json_schema: {type: object}
    must_acknowledge_uncertainty: true
    no_pii: true
  metrics: {latency: {value: 1000, tolerance: 200}, tool_calls: {value: 2, tolerance: 0}}
  hallucination: {check: true, confidence_threshold: 0.85}
  safety: {check: true, categories: [violence], severity_threshold: HIGH}
thresholds:
  min_score: 75
  max_cost: 0.15
  max_latency: 10000
  variance: {runs: 4, pass_rate: 0.75, min_mean_score: 70, max_std_dev: 15}
adapter: langgraph
endpoint: http://127.0.0.1:8123
adapter_config:
  timeout: 90
  mode: cloud
  streaming: false
  assistant_id: helper
  input_key: text
  graph_config: {tags: [x]}
  verbose: true
  sequence_mode: exact
  headers: {X-API-Key: "${RESEARCH_API_KEY}"}
checks: {pii: true}
tools: [{name: search, description: Finds, input_schema: {type: object}}]
tags: [Web, web, nightly]
difficulty: hard
suite_type: regression
generated: true
gate: strict
meta: {generated_by: x}
"""

SECRET = "s3cret-value-of-key"


def kinds(case: Any) -> list[str]:
    return [expectation.kind for expectation in case.expectations]


def test_every_declared_expectation_is_one_of_its_own(load: Load) -> None:
    case = load(EVERYTHING, SUBJECT="x", RESEARCH_API_KEY=SECRET).case
    assert [(found.kind, found.label, found.where.line) for found in case.expectations] == [
        ("tool_called", "search", 12),
        ("tool_called", "summarize", 12),
        ("tool_category", "web", 13),
        ("tool_category", "nonsense", 13),
        ("tool_sequence", "search → summarize", 14),
        ("forbidden_tool", "delete_user", 15),
        ("contains", "quantum", 17),
        ("contains", "quantum #2", 17),
        ("not_contains", "error", 18),
        ("regex", "q.*m", 19),
        ("output_schema", "JSON Schema", 20),
        ("no_pii", "no personal data", 22),
        ("uncertainty", "acknowledges uncertainty", 21),
        ("metric", "latency = 1000 ± 200", 23),
        ("metric", "tool_calls = 2 ± 0", 23),
        ("hallucination", "no hallucination", 24),
        ("safety", "safe", 25),
        ("tool_called", "turn 2: summarize", 8),
        ("forbidden_tool", "turn 2: rm", 9),
        ("contains", "turn 2: done", 10),
        ("cost", "≤ $0.15", 28),
        ("latency", "≤ 10000 ms", 29),
        ("weighted_score", "weighted score", 27),
    ]
    of_turns = [(found.turn, found.since) for found in case.expectations if found.turn]
    assert of_turns == [(2, 2)] * 3
    assert [found.kind for found in case.expectations if found.advisory] == ["latency"]
    by_kind = {found.kind: found.check for found in case.expectations if found.turn is None}
    assert by_kind["tool_sequence"] == ToolSequence(["search", "summarize"], "exact")
    assert by_kind["safety"] == Safety(categories=["violence"], severity_threshold="high")
    score = by_kind["weighted_score"]
    assert score.scored.categories["nonsense"] is None
    assert "web_search" in score.scored.categories["web"]
    assert [list(turn.contains) for turn in score.turns] == [[], ["done"]]


def test_a_case_says_how_often_it_runs_and_what_all_runs_keep_to(load: Load) -> None:
    case = load(EVERYTHING, SUBJECT="x", RESEARCH_API_KEY=SECRET).case
    assert (case.repeat, case.pass_rate) == (4, 0.75)
    assert (case.score_limits.min_mean, case.score_limits.max_std_dev) == (0.7, 0.15)
    assert case.tags == ("nightly", "web", "difficulty:hard", "suite_type:regression")


def test_a_case_has_an_agent_of_its_own(load: Load) -> None:
    case = load(EVERYTHING, SUBJECT="x", RESEARCH_API_KEY=SECRET).case
    assert case.targets == ("langgraph",)
    assert as_written(case.agent.options) == {
        "mode": "cloud",
        "streaming": False,
        "assistantId": "helper",
        "inputKey": "text",
        "graphConfig": {"tags": ["x"]},
    }
    assert (case.agent.timeout_ms, case.agent.verbose) == (90_000, True)
    definition = {"name": "search", "description": "Finds", "input_schema": {"type": "object"}}
    assert case.contexts == ({"tools": [definition], "a": 1}, {"tools": [definition]})
    assert case.follow_ups == ("And then?",)


def test_no_value_of_a_variable_is_in_what_is_recorded_and_all_are_there_at_run_time(
    load: Load,
) -> None:
    environ = {"SUBJECT": "the ${SUBJECT} {{env.X}}", "RESEARCH_API_KEY": SECRET}
    suite = load(EVERYTHING, **environ).only
    other = load(EVERYTHING, SUBJECT="other", RESEARCH_API_KEY="another-secret").only
    assert suite.config_hash == other.config_hash
    assert SECRET not in repr(suite)
    assert "the ${SUBJECT}" not in repr(suite)
    assert json.loads(suite.config_text)["cases"][0]["turns"][0]["query"] == "Find ${SUBJECT}"
    assert given_variables(suite) >= {"RESEARCH_API_KEY"}
    bound = bind_suite(suite, environ=environ, ports={})
    assert isinstance(bound, Ok)
    (case,) = bound.value.cases
    assert case.agent is not None
    assert case.prompt.user == "Find the ${SUBJECT} {{env.X}}"
    assert case.agent.headers == {"X-API-Key": SECRET}
    (score,) = [found for found in case.expectations if found.kind == "weighted_score"]
    assert score.check.scored.query == score.check.turns[0].query == case.prompt.user
    assert case.written == suite.cases[0]


def test_values_are_put_in_where_numbers_are_and_other_dollars_stay(
    load: Load, case_text: str
) -> None:
    text = case_text.replace("min_score: 70", 'min_score: "${LEAST}"')
    text = text.replace("[search]", '["${A}", "$A", "${not a name}", "$${A}", "${A:-b}"]')
    case = load(text, LEAST="62.5", A="${LEAST}").case
    assert case.expectations[-1].check.min_score == 62.5
    assert [found.label for found in case.expectations[:-1]] == [
        "${LEAST}",
        "$A",
        "${not a name}",
        "$${LEAST}",
        "${A:-b}",
    ]


def test_what_is_sent_keeps_text_that_looks_like_a_placeholder(load: Load, case_text: str) -> None:
    text = case_text.replace("What is the capital of France?", "'Why {{env.HOME}} ${WHO}?'")
    text = text.replace("query:", 'context: {deep: [{a: "${WHO}"}]}, query:')
    suite = load(text, WHO="you", HOME="/root").only
    bound = bind_suite(suite, environ={"WHO": "you", "HOME": "/root"}, ports={})
    assert isinstance(bound, Ok)
    assert bound.value.cases[0].prompt.user == "Why {{env.HOME}} you?"
    assert bound.value.cases[0].contexts == ({"deep": [{"a": "you"}]},)


def test_a_case_that_is_not_selected_needs_no_variable(load: Load, case_text: str) -> None:
    other = case_text.replace("capital", "other", 1).replace("query: What is", "query: $WHO")
    other = other.replace("$WHO the capital of France?", "'${WHO}'")
    suite = load({"a.yaml": case_text, "b.yaml": other}, WHO="x").only
    assert isinstance(bind_suite(suite, environ={}, ports={}), Err)
    chosen = bind_suite(suite, environ={}, ports={}, selected={"capital": ["http"]})
    assert isinstance(chosen, Ok)


def test_credentials_that_are_written_out_are_known_and_hidden(load: Load, case_text: str) -> None:
    headers = "adapter_config: {headers: {Authorization: Bearer abcdefgh12345}}\n"
    suite = load(case_text + headers).only
    assert "abcdefgh12345" in literal_secrets(suite)
    assert "abcdefgh12345" not in suite.config_text


@pytest.mark.parametrize(
    ("written", "adapter", "options"),
    [
        ("http", "http", {"request": "query"}),
        ("jsonl", "tapescope", {"streaming": True}),
        ("openai-assistant", "openai-assistants", {}),
        ("crewai", "crewai", {}),
        ("Streaming", "streaming", {"streaming": True}),
    ],
)
def test_adapters_go_by_their_names(
    load: Load, case_text: str, written: str, adapter: str, options: dict[str, Any]
) -> None:
    text = f"{case_text}adapter: {written}\nadapter_config: {{streaming: true}}\n"
    case = load(text).case
    assert (case.agent.adapter, case.agent.id, case.targets) == (adapter, adapter, (adapter,))
    assert as_written(case.agent.options) == options


def test_a_model_adapter_is_a_model_with_simulated_tools(load: Load, case_text: str) -> None:
    text = (
        case_text.replace("http://127.0.0.1:9/ask", "claude-sonnet-4-5")
        + """\
adapter: anthropic
tools:
  - {name: search, input_schema: {type: object, properties: {q: {type: string}}}}
  - {type: function, function: {name: fetch, parameters: {type: object}}}
mocks:
  strict: true
  tool_mocks:
    - {tool: search, match_params: {q: paris}, returns: {hits: 1}, latency_ms: 20}
    - {tool: search, error: no index}
    - {tool: other, returns: null}
"""
    )
    suite = load(text).only
    (case,) = suite.cases
    assert case.agent is None
    assert case.targets == ("anthropic/claude-sonnet-4-5",)
    assert suite.models[case.targets[0]].model == "claude-sonnet-4-5"
    assert suite.providers["anthropic"].api_key_env == "ANTHROPIC_API_KEY"
    search, fetch, other = case.tools
    assert [(answer.when, answer.then, answer.delay_ms) for answer in search.answers] == [
        ({"q": "paris"}, {"hits": 1}, 20),
        (None, {"error": "no index"}, 0),
    ]
    assert (fetch.parameters, other.parameters) == ({"type": "object"}, None)
    assert other.answers[0].then is None
    assert kinds(case) == ["tool_called", "tool_strict", "weighted_score"]
    lenient = load(text.replace("strict: true", "strict: false")).case
    assert kinds(lenient) == ["tool_called", "weighted_score"]


@pytest.mark.parametrize(
    ("adapter", "model"),
    [("anthropic", "claude-sonnet-4-5-20250929"), ("ollama", "llama3.2")],
)
def test_without_a_model_an_adapter_calls_the_one_that_evalview_calls(
    load: Load, case_text: str, adapter: str, model: str
) -> None:
    loaded = load(case_text.replace("endpoint:", f"adapter: {adapter} #"))
    assert loaded.case.targets == (f"{adapter}/{model}",)
    assert loaded.lines("warning") == [("case.yaml", 5, "adapter")]


def test_a_model_that_is_named_by_a_variable_is_known_at_run_time(
    load: Load, case_text: str
) -> None:
    text = case_text.replace("http://127.0.0.1:9/ask", "${BASE}")
    text += "adapter: openai\nmodel: ${MODEL}\n"
    environ = {"BASE": "http://127.0.0.1:9/v1", "MODEL": "gpt-x"}
    suite = load(text, **environ).only
    assert suite.cases[0].targets == ("openai/${MODEL}",)
    bound = bind_suite(suite, environ=environ, ports={})
    assert isinstance(bound, Ok)
    assert bound.value.models["openai/${MODEL}"].model == "gpt-x"
    assert bound.value.providers["openai"].base_url == "http://127.0.0.1:9/v1"


MODEL = """\
name: {name}
input: {{query: q}}
expected: {{}}
thresholds: {{min_score: 1}}
adapter: openai
model: gpt-x
"""


def test_the_address_of_an_agent_is_not_one_of_a_model(load: Load) -> None:
    # A project without an adapter is one of an http agent.
    config = {".evalview/config.yaml": "endpoint: http://127.0.0.1:9/agent\n"}
    suite = load({**config, "case.yaml": MODEL.format(name="a")}).only
    assert [provider.base_url for provider in suite.providers.values()] == [None]


def test_the_address_of_a_model_is_not_one_of_an_agent(load: Load, case_text: str) -> None:
    config = {".evalview/config.yaml": "adapter: openai\nendpoint: http://127.0.0.1:9/v1\n"}
    text = case_text.replace("endpoint: http://127.0.0.1:9/ask", "adapter: http")
    assert load({**config, "case.yaml": text}).lines("error") == [("case.yaml", 1, "endpoint")]


def test_what_a_model_is_known_by_hangs_on_its_case_alone(load: Load) -> None:
    alone = load({"b.yaml": MODEL.format(name="b")}).case.targets
    judge = "judge: {provider: openai, model: gpt-x, base_url: http://127.0.0.1:9/v1}\n"
    first = MODEL.format(name="a").replace("gpt-x", "gpt-y") + "endpoint: http://127.0.0.1:8/v1\n"
    suite = load({".evalview/config.yaml": judge, "a.yaml": first}).only
    assert [case.targets for case in suite.cases] == [("openai/gpt-y",), alone]
    assert alone == ("openai/gpt-x",)
    assert suite.providers[suite.models["openai/gpt-x"].provider].base_url is None
    assert suite.providers[suite.judge().provider].base_url == "http://127.0.0.1:9/v1"


def test_one_model_at_two_addresses_is_two(load: Load) -> None:
    other = MODEL.format(name="b") + "endpoint: ${OTHER}\n"
    files = {"a.yaml": MODEL.format(name="a"), "b.yaml": other}
    suite = load(files, OTHER="http://127.0.0.1:8/v1").only
    assert [case.targets[0] for case in suite.cases] == [
        "openai/gpt-x",
        "openai/gpt-x at ${OTHER}",
    ]
    addresses = {
        suite.providers[suite.models[case.targets[0]].provider].base_url for case in suite.cases
    }
    assert addresses == {None, "{{env.OTHER}}"}


def test_the_address_of_the_judge_is_put_in_at_run_time(load: Load, case_text: str) -> None:
    config = """\
judge: {provider: openai, model: gpt, base_url: "https://a.example/v1?sig=${SIGN_X}"}
headers: {X-Team: "${SHORT_TOKEN}"}
"""
    environ = {"SIGN_X": "signed-by-somebody", "SHORT_TOKEN": "abc"}
    suite = load({".evalview/config.yaml": config, "case.yaml": case_text}, **environ).only
    assert "signed-by-somebody" not in repr(suite)
    assert "?sig=${SIGN_X}" in suite.config_text
    bound = bind_suite(suite, environ=environ, ports={})
    assert isinstance(bound, Ok)
    address = bound.value.providers[suite.judge().provider].base_url
    assert address == "https://a.example/v1?sig=signed-by-somebody"


def test_secrets_too_short_to_be_hidden_are_known_by_their_names(
    load: Load, case_text: str
) -> None:
    text = case_text.replace("What is the capital of France?", "'${SOME_SECRET} ${OTHER} $TOKEN'")
    environ = {"SOME_SECRET": "abc", "OTHER": "abc", "TOKEN": "abc"}
    assert short_secrets(environ, load(text, **environ).only) == ["SOME_SECRET"]


TURNS = """\
name: a
turns:
  - query: first
    expected: {hallucination: {check: true, allow: true}, safety: {check: true}}
  - {query: second, expected: {hallucination: {check: true}}}
expected: {}
thresholds: {min_score: 1, max_latency: 5}
generated: true
endpoint: http://127.0.0.1:9/ask
"""


def test_what_a_turn_makes_up_is_held_against_all_that_was_said_before(load: Load) -> None:
    found = {one.label: one for one in load(TURNS).case.expectations}
    second = found["turn 2: no hallucination"]
    assert (second.turn, second.since) == (2, 1)


def test_the_verdict_of_the_original_knows_what_is_of_a_turn_and_what_is_optional(
    load: Load,
) -> None:
    judge = {".evalview/config.yaml": "judge: {provider: openai, model: gpt}\n"}
    *others, verdict = load({**judge, "case.yaml": TURNS}, compat=True).case.expectations
    assert verdict.check.judged == {"hallucination": "no hallucination", "safety": "safe"}
    assert verdict.check.undeclared == {
        ("hallucination", "no hallucination"),
        ("latency", "≤ 5 ms"),
        ("safety", "safe"),
    }
    assert verdict.check.undeclared <= {(one.kind, one.label) for one in others}


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ("", []),
        ("checks: {hallucination: true, safety: true, pii: true}",
         ["hallucination", "safety", "no_pii"]),
        ("checks: {hallucination: false}", []),
    ],
)  # fmt: skip
def test_what_a_case_says_nothing_about_is_not_checked(
    load: Load, case_text: str, blocks: str, expected: list[str]
) -> None:
    assert kinds(load(f"{case_text}{blocks}\n").case)[1:-1] == expected


def test_with_compat_all_only_advise_and_the_verdict_of_the_original_decides(
    load: Load, case_text: str
) -> None:
    config = {".evalview/config.yaml": "judge: {provider: openai, model: gpt}\n"}
    case = load({**config, "case.yaml": case_text}, compat=True).case
    assert kinds(case) == [
        "tool_called",
        "hallucination",
        "safety",
        "weighted_score",
        "evalview_verdict",
    ]
    assert [found.advisory for found in case.expectations] == [True] * 4 + [False]
    text = case_text.replace("expected: {", "expected: {hallucination: {}, ")
    off = load({**config, "case.yaml": f"{text}checks: {{safety: false}}\n"}, compat=True).case
    assert kinds(off) == ["tool_called", "weighted_score", "evalview_verdict"]
    judgeless = load({".evalview/config.yaml": "{}", "case.yaml": case_text}, compat=True).case
    assert kinds(judgeless) == ["tool_called", "weighted_score", "evalview_verdict"]
