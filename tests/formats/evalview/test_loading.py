"""Reading files of EvalView cases: what is wrong is told with its line, and the others run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kindlm.suite import TELEMETRY_WAIT_MS, Price

Load = Callable[..., Any]

TOML = """\
# A case
name = "capital"
tags = [ "b",
  "a" ]

[input]
query = '''
[expected]
What = "is" the capital?'''

[input.context]
"a key" = {b = 1}

[expected]
tools = ["search"]
output.contains = ["Paris"]

[thresholds]
min_score = 70

[adapter_config]
timeout = 2.5

[[tools]]
name = "search"

[[tools]]
name = "fetch"
input_schema = {type = "object"}
"""


MISTAKES = [
    ("input: {query: q}", "input: q", "input must be a mapping", "{query: "),
    ("expected: {}", "expected:", "expected is empty", "Write a value"),
    (
        "expected: {}",
        "expected: {metrics: {cost: 2}}",
        "cost must be a mapping",
        "`metrics: {cost: {value: 0.05, tolerance: 0.01}}`",
    ),
    ("expected: {}", "expected: {}\nchecks: [pii]", "checks must be a mapping", "{pii: true}"),
    ("min_score: 7", "min_score: 0.8", "is 0.8 of 100", "write 80 for 80 %"),
    ("min_score: 7", "min_score: 7 0", 'must be a number, but is the text "7 0"', ""),
    ("expected: {}", "expected: {categories: [web]}", 'Unknown key "categories"', "tool_categ"),
    (
        "expected: {}",
        "expected: {contains: [a]}",
        'Unknown key "contains"',
        "output: {contains: …}",
    ),
    (
        "expected: {}",
        "expected: {output: {no_pii: yes}}",
        'no_pii must be true or false, but is the text "yes"',
        "Write true",
    ),
    ("expected: {}", "expected: {output: {regex: [a]}}", 'Unknown key "regex"', "regex_patterns"),
    ("{min_score: 7}", "7", "thresholds must be a mapping", "{min_score: 70}"),
    (
        "expected: {}",
        "expected: {output: Paris}",
        "output must be a mapping",
        "{contains: [refund]}",
    ),
    ("expected: {}", "expected: {}", 'The case "a" expects nothing', "or a `judge:`"),
    (
        "expected: {}",
        'expected: {output: {not_contains: ["sorry\\n"]}}',
        "expected.output.not_contains[0] has a line break at its end",
        "|-",
    ),
    ("thresholds", "treshold", 'The key "thresholds" is missing', "Add `thresholds:`"),
]


@pytest.mark.parametrize(("before", "after", "message", "hint"), MISTAKES)
def test_mistakes_are_reported_with_how_to_fix_them(
    load: Load, before: str, after: str, message: str, hint: str
) -> None:
    text = "name: a\ninput: {query: q}\nexpected: {}\nthresholds: {min_score: 7}\n"
    loaded = load(f"{text.replace(before, after)}endpoint: http://127.0.0.1:9\n")
    told = [(item.error.message, item.error.hint or "") for item in loaded.diagnostics]
    assert any(message in found and hint in advice for found, advice in told), told


def test_a_text_without_quotes_is_reported_in_toml(load: Load) -> None:
    (found,) = load({"case.toml": "name = capital\n"}).diagnostics
    assert found.error.hint == 'Strings need quotes: key = "value"'


NULLS = """\
name: nulls
description: null
input: {query: q, context: null}
expected: {tools: null, tool_sequence: null, output: null, metrics: null, safety: null}
thresholds: {min_score: 50.0, max_cost: null, max_latency: null}
adapter_config: {}
endpoint: http://127.0.0.1:9/ask
"""


def test_null_is_what_is_left_out(load: Load) -> None:
    loaded = load(NULLS, strict=True)
    assert [each.error.details["reason"] for each in loaded.diagnostics] == ["expects_nothing"]
    assert [found.kind for found in loaded.case.expectations] == ["weighted_score"]


def names(suite: Any) -> list[str]:
    return [case.name for case in suite.cases]


def test_a_list_and_several_documents_hold_several_cases(load: Load, case_text: str) -> None:
    listed = "".join(
        f"- {line}" if number == 0 else f"  {line}"
        for number, line in enumerate(case_text.splitlines(keepends=True))
    )
    several = "\n---\n".join(case_text.replace("capital", f"doc {n}", 1) for n in (1, 2))
    suite = load({"a.yaml": listed, "b.yml": f"---\n{several}\n---\n"}).only
    assert names(suite) == ["capital", "doc 1", "doc 2"]
    assert [case.where.line for case in suite.cases] == [1, 2, 9]
    assert suite.name == "tests"
    assert suite.front_end == "evalview"


ENDPOINT = {".evalview/config.toml": 'endpoint = "http://a/b"\n'}


def test_toml_says_the_same_as_yaml(load: Load) -> None:
    loaded = load({"case.toml": TOML, **ENDPOINT})
    case = loaded.case
    assert case.prompt.user == '[expected]\nWhat = "is" the capital?'
    assert case.tags == ("a", "b")
    assert case.agent.timeout_ms == 2500
    assert case.contexts[0]["a key"] == {"b": 1}
    assert [tool["name"] for tool in case.contexts[0]["tools"]] == ["search", "fetch"]
    places = {found.kind: found.where.line for found in case.expectations}
    assert places == {"tool_called": 15, "contains": 16, "weighted_score": 19}


def test_a_date_or_a_time_in_toml_is_a_text(load: Load) -> None:
    moments = "{day = 2026-01-31, hour = 07:32:00, both = 2026-01-31T07:32:00Z}"
    case = load({"case.toml": TOML.replace("{b = 1}", moments), **ENDPOINT}).case
    said = {"day": "2026-01-31", "hour": "07:32:00", "both": "2026-01-31T07:32:00+00:00"}
    assert case.contexts[0]["a key"] == said


@pytest.mark.parametrize(
    ("before", "after", "line", "path"),
    [
        ("min_score = 70", "min_score = 700", 19, "thresholds.min_score"),
        ("timeout = 2.5", "timeout = -1", 22, "adapter_config.timeout"),
        ('name = "fetch"', "name = 1", 28, "tools[1].name"),
        ("{b = 1}", "{b = inf}", 12, ""),
        ("[thresholds]", "[thresholds", 18, ""),
        ('["search"]', "[1]", 15, "expected.tools[0]"),
    ],
)
def test_an_error_in_toml_has_its_line(
    load: Load, before: str, after: str, line: int, path: str
) -> None:
    loaded = load({"case.toml": TOML.replace(before, after)})
    assert ("case.toml", line, path) in loaded.lines("error")


@pytest.mark.parametrize(
    ("before", "after", "line", "path"),
    [
        ("tools: [search]", "tools: search", 3, "expected.tools"),
        ("tools: [search]", "output: {contains: Paris}", 3, "expected.output.contains"),
        ("tools: [search]", "hallucination: {confidence_threshold: 1.5}", 3,
         "expected.hallucination.confidence_threshold"),
        ("tools: [search]", "metrics: {cost: {value: 1}}", 3, "expected.metrics.cost.tolerance"),
        ("min_score: 70", "min_score: true", 4, "thresholds.min_score"),
        ("min_score: 70", "min_score: 70, weights: {tool_accuracy: 0.9}", 4, "thresholds.weights"),
        ("min_score: 70", "min_score: 70, weights: {tool_accuracy: 0.298}", 4,
         "thresholds.weights"),
        ("min_score: 70", "min_score: 70, weights: {tool_accuracy: -0.1, output_quality: 0.9}", 4,
         "thresholds.weights.tool_accuracy"),
        ("min_score: 70", "min_score: 70, variance: {runs: 1}", 4, "thresholds.variance.runs"),
        ("expected:", "turns: [{query: a}]\nexpected:", 3, "turns"),
        ("name: capital", "name: \"  \"", 1, "name"),
        ("name: capital", 'name: "a\\nb"', 1, "name"),
        ("endpoint:", "adapter: htpp\nendpoint:", 5, "adapter"),
        ("endpoint:", "adapter: goose\nendpoint:", 5, "adapter"),
        ("endpoint:", "adapter: openai #", 5, "adapter"),
        ("endpoint: http", "endpoint: htp", 5, "endpoint"),
        ("endpoint:", "mocks: {tool_mocks: [{tool: a}]}\nendpoint:", 5, "mocks.tool_mocks[0]"),
        ("endpoint:", "#", 1, "endpoint"),
        ("tools: [search]", 'output: {regex_patterns: [a, "[invalid"]}', 3,
         "expected.output.regex_patterns[1]"),
        ("name: capital", 'name: "a\u202eb"', 1, "name"),
        ("tools: [search]", "output: {json_schema: {type: strin}}", 3,
         "expected.output.json_schema"),
    ],
)  # fmt: skip
def test_an_error_has_its_line_and_field(
    load: Load, case_text: str, before: str, after: str, line: int, path: str
) -> None:
    loaded = load(case_text.replace(before, after, 1))
    assert loaded.lines("error") == [("case.yaml", line, path)]
    assert loaded.broken == ["case.yaml"]


def test_the_others_of_a_folder_run_beside_a_bad_file(load: Load, case_text: str) -> None:
    broken = case_text.replace("capital", "other").replace("tools: [", "tools: [[")
    loaded = load({"a.yaml": case_text, "b.yaml": broken})
    (suite,) = loaded.suites
    assert names(suite) == ["capital"]
    assert loaded.broken == ["b.yaml"]


def test_unknown_keys_are_warnings_and_errors_where_one_is_strict(
    load: Load, case_text: str
) -> None:
    text = case_text.replace("min_score: 70", "min_score: 70, max_latencey: 5") + "extra: {a: 1}\n"
    loaded = load(text)
    assert loaded.lines("warning") == [
        ("case.yaml", 4, "thresholds.max_latencey"),
        ("case.yaml", 6, "extra"),
    ]
    hints = [found.error.hint for found in loaded.diagnostics]
    assert hints[0] == 'Did you mean "max_latency"?'
    assert names(loaded.only) == ["capital"]
    strict = load(text, strict=True)
    assert len(strict.lines("error")) == 2
    assert not strict.suites


def test_a_misspelt_key_that_has_to_be_there_is_an_error(load: Load, case_text: str) -> None:
    loaded = load(case_text.replace("min_score", "min_scor"))
    assert loaded.lines("error") == [("case.yaml", 4, "thresholds.min_score")]
    assert not loaded.suites


@pytest.mark.parametrize(
    "name",
    [
        "Größe — a/b + \U0001f600",
        "\U0001f469\u200d\U0001f680 flies",
        "two\u00a0words",
        "東京\u3000大阪",
        "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
    ],
)
def test_names_may_hold_what_can_be_shown(load: Load, case_text: str, name: str) -> None:
    assert load(case_text.replace("capital", name)).case.name == name


def test_a_pattern_that_cannot_be_used_is_reported_with_what_is_wrong(
    load: Load, case_text: str
) -> None:
    (found,) = load(
        case_text.replace("tools: [search]", "output: {regex_patterns: ['[b']}")
    ).diagnostics
    assert found.error.message.startswith(
        "expected.output.regex_patterns[0] is not a valid regular expression: "
    )


SETTINGS = """\
adapter_config:
  {timeout: 5, headers: {A: b}, verbose: true, mode: cloud, streaming: true, assistant_id: a,
   input_key: k, graph_config: {a: 1}, sequence_mode: exact, model: gpt-x, reports_tools: true,
   telemetry: otlp, telemetry_wait_ms: 5}
turns: [{query: What is the capital of France?}, {query: b, context: {c: 1}}]
mocks: {strict: true, tool_mocks: [{tool: a, returns: 1}]}
"""


def test_what_has_no_effect_on_a_model_is_reported(load: Load, case_text: str) -> None:
    text = case_text.replace("France?}", "France?, context: {a: 1}}")
    loaded = load(f"{text}adapter: openai\n{SETTINGS}")
    names = ("timeout", "headers", "verbose", "streaming", "mode", "assistant_id", "input_key",
             "graph_config", "reports_tools", "telemetry", "telemetry_wait_ms")  # fmt: skip
    assert {path for _, _, path in loaded.lines("warning")} == {
        *("input.context", "turns[1].context"),
        *(f"adapter_config.{name}" for name in names),
    }


def test_what_has_no_effect_on_an_agent_is_reported(load: Load, case_text: str) -> None:
    of_langgraph = {f"adapter_config.{key}" for key in ("mode", "streaming", "input_key")}
    of_langgraph |= {"adapter_config.graph_config", "adapter_config.assistant_id"}
    of_mocks = {"mocks.strict", "mocks.tool_mocks"}
    for adapter, ignored in {
        "http": of_langgraph | of_mocks,
        "langgraph": of_mocks,
        "streaming": of_langgraph - {"adapter_config.streaming"} | of_mocks,
        "openai-assistants": of_langgraph - {"adapter_config.assistant_id"},
    }.items():
        loaded = load(f"{case_text}{SETTINGS}adapter: {adapter}\n")
        assert {path for _, _, path in loaded.lines("warning")} == ignored


def test_a_variable_with_a_default_is_reported(load: Load, case_text: str) -> None:
    text = case_text.replace("What is the capital of France?", "'Where is ${COUNTRY:-France}?'")
    loaded = load(text.replace("[search]", "['${TOOL-search}']"))
    assert {(line, path) for _, line, path in loaded.lines("warning")} == {
        (2, "input.query"),
        (3, "expected.tools[0]"),
    }
    assert loaded.diagnostics[0].error.message.startswith("${COUNTRY:-…} is not replaced")
    code = load(case_text.replace("What is the capital of France?", "'What is `${a+b} ${x?y:z}`?'"))
    assert code.lines("warning") == []


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ("hallucination: {check: true, confidence_threshold: 1}", "confidence_threshold"),
        ("hallucination: {confidence_threshold: 0.5}", "hallucination"),
        ("safety: {severity_threshold: low}", "safety"),
        ("output: {contains: [Paris, '']}", "contains[1]"),
        ("forbidden_tools: [refund, ' ']", "forbidden_tools[1]"),
        ("output: {regex_patterns: ['.*']}", "regex_patterns[0]"),
    ],
)
def test_a_block_that_decides_nothing_is_reported(
    load: Load, case_text: str, block: str, place: str
) -> None:
    text = case_text.replace("[search]", f"[search], {block}")
    first = "{query: What is the capital of France?}"
    turns = f"turns: [{first}, {{query: b, expected: {{{block}}}}}]\n"
    found = [path for _, _, path in load(f"{text}{turns}").lines("warning")]
    assert [path.rpartition(".")[2] for path in found] == [place] * 2
    assert found[1].startswith("turns[1].expected")


@pytest.mark.parametrize("block", ["safety: {}", "safety: {check: false, severity_threshold: low}"])
def test_a_block_that_is_off_is_not(load: Load, case_text: str, block: str) -> None:
    assert not load(case_text.replace("[search]", f"[search], {block}")).diagnostics


def test_an_input_that_is_not_sent_is_reported(load: Load, case_text: str) -> None:
    loaded = load(f"{case_text}turns: [{{query: a}}, {{query: b}}]\n")
    assert [path for _, _, path in loaded.lines("warning")] == ["input.query"]
    assert loaded.case.prompt.user == "a"


@pytest.mark.parametrize(
    ("thresholds", "place"),
    [
        ("min_score: 70, variance: {pass_rate: 0}", "thresholds.variance.pass_rate"),
        ("min_score: 0", "thresholds.min_score"),
    ],
)
def test_thresholds_that_nothing_breaks_are_reported(
    load: Load, case_text: str, thresholds: str, place: str
) -> None:
    ((_, _, path),) = load(case_text.replace("min_score: 70", thresholds)).lines("warning")
    assert path == place


def test_a_name_that_is_there_twice_names_both_places(load: Load, case_text: str) -> None:
    loaded = load({"a.yaml": case_text, "b.yaml": f"# second\n{case_text}"})
    (error,) = loaded.diagnostics
    assert "a.yaml:1:1" in error.error.message
    assert (Path(error.error.where.file).name, error.error.where.line) == ("b.yaml", 2)
    assert names(loaded.suites[0]) == ["capital"]
    assert loaded.broken == ["b.yaml"]


def test_a_variable_without_a_value_is_reported_with_its_line_for_its_file_alone(
    load: Load, case_text: str
) -> None:
    other = case_text.replace("capital", "other").replace("[search]", '["${TOOL}"]')
    loaded = load({"a.yaml": case_text, "b.yaml": other})
    assert loaded.lines("error") == [("b.yaml", 3, "expected.tools[0]")]
    assert "TOOL" in loaded.diagnostics[0].error.message
    assert names(loaded.suites[0]) == ["capital"]


def test_files_that_are_too_large_or_too_deep_are_refused(load: Load, case_text: str) -> None:
    large = case_text + "#" * (1 << 20)
    deep = case_text + "meta: " + "[" * 5000 + "]" * 5000
    toml = TOML + "\n[meta]\na = " + "[" * 5000 + "]" * 5000
    loaded = load({"a.yaml": large, "b.yaml": deep, "c.toml": toml})
    assert loaded.broken == ["a.yaml", "b.yaml", "c.toml"]
    assert [found.error.details["reason"] for found in loaded.diagnostics] == ["limit"] * 3


def test_a_credential_that_is_written_out_is_not_shown(load: Load, case_text: str) -> None:
    headers = 'adapter_config: {headers: {Authorization: "Bearer abcdefgh12345"}, timeout: abc}\n'
    found = load(case_text + headers).diagnostics
    assert [it.path for it in found] == ["adapter_config.headers", "adapter_config.timeout"]
    assert found[0].error.details["reason"] == "credential"
    assert "abcdefgh12345" not in "".join(str(it.source_line) for it in found)


CONFIG = ".evalview/config.yaml"


def test_credentials_in_the_configuration_are_reported_with_the_path_from_here(
    load: Load, case_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = (
        "headers: {Authorization: 'Bearer ${TOKEN}', X-Api-Key: abcdefgh12345}\n"
        "serve: [{name: a, command: b, env: {A_KEY: abcdefgh12345, B_KEY: '${TOKEN}'}}]\n"
        "retry: {jitter: true}\n"
    )
    found = load({"a.yaml": case_text, CONFIG: config}, TOKEN="x").diagnostics
    assert [it.path for it in found] == ["headers", "serve[0].env", "retry.jitter"]
    assert {it.error.where.file for it in found if it.error.where} == {CONFIG}
    # Variables alone are no credentials.
    config = config.replace("X-Api-Key: abcdefgh12345", "").replace("A_KEY: abcdefgh12345, ", "")
    found = load({"a.yaml": case_text, CONFIG: config}, TOKEN="x").diagnostics
    assert [it.path for it in found] == ["retry.jitter"]


@pytest.mark.parametrize(
    ("project", "own", "expected"),
    [
        ({}, {}, (False, None, TELEMETRY_WAIT_MS)),
        ({"reports_tools": True, "telemetry_wait_ms": 70}, {}, (True, None, 70)),
        ({"telemetry": "otlp"}, {"telemetry_wait_ms": 7}, (False, "otlp", 7)),
        (
            {"reports_tools": True, "telemetry_wait_ms": 70},
            {"reports_tools": False, "telemetry": "otlp", "telemetry_wait_ms": 7},
            (False, "otlp", 7),
        ),
        ({"reports_tools": False}, {"reports_tools": True}, (True, None, TELEMETRY_WAIT_MS)),
    ],
)
def test_a_case_says_how_its_agent_is_observed_and_otherwise_the_project_does(
    load: Load,
    case_text: str,
    project: dict[str, Any],
    own: dict[str, Any],
    expected: tuple[bool, str | None, int],
) -> None:
    text = f"{case_text}adapter_config: {json.dumps(own)}\n"
    agent = load({CONFIG: json.dumps({"adapter": "http"} | project), "a.yaml": text}).case.agent
    assert (agent.reports_tools, agent.telemetry, agent.telemetry_wait_ms) == expected


@pytest.mark.parametrize(
    ("timeout", "minutes"),
    [(30, 5), (120, 7), (200, 11), ("200\nadapter_config: {timeout: 90}", 5.5)],
)
def test_an_execution_has_time_for_all_of_its_answers_and_for_checks(
    load: Load, timeout: float | str, minutes: float
) -> None:
    seconds, _, more = str(timeout).partition("\n")
    config = f"adapter: http\nendpoint: http://a/b\ntimeout: {seconds}\n"
    turns = "turns: [{query: a}, {query: b}, {query: c}]\nexpected: {}\n"
    case = f"name: talk\n{turns}thresholds: {{min_score: 70}}\n{more}"
    suite = load({CONFIG: config, "case.yaml": case}).only
    assert suite.execution_timeout_ms == minutes * 60_000


def test_what_a_project_has_in_common_is_taken_from_its_configuration(
    load: Load, case_text: str
) -> None:
    config = """\
adapter: langgraph
endpoint: http://127.0.0.1:8/threads
timeout: 12.5
headers: {X-Team: a, X-Kind: b}
model: {name: gpt-x, pricing: {input_per_1m: 1, output_per_1m: 2, cached_per_1m: 0.5}}
scoring: {weights: {tool_accuracy: 0.5, output_quality: 0.3}}
retry: {max_retries: 5, base_delay: 1.0}
judge: {provider: openai, model: gpt-judge, base_url: "http://127.0.0.1:7/v1"}
tool_categories: {lookup: [search, find]}
allow_private_urls: true
monitor: {interval: 5}
moniter: 1
budget: 0.5
"""
    text = case_text.replace("tools: [search]", "tool_categories: [lookup]")
    text = text.replace(
        "endpoint: http://127.0.0.1:9/ask", "adapter_config: {headers: {x-kind: c}}"
    )
    loaded = load({CONFIG: config, "case.yaml": text})
    suite, case = loaded.only, loaded.case
    assert loaded.lines("warning") == [("config.yaml", 7, "retry.base_delay"),
                                       ("config.yaml", 12, "moniter"),
                                       ("config.yaml", 13, "budget")]  # fmt: skip
    assert (case.agent.adapter, case.agent.endpoint) == ("langgraph", "http://127.0.0.1:8/threads")
    assert case.agent.headers == {"X-Team": "a", "x-kind": "c"}
    assert (suite.timeout_ms, suite.retries) == (12_500, 5)
    assert suite.prices["gpt-x"] == Price(1, 2, 0.5)
    judge = suite.judge()
    assert (judge.model, suite.providers[judge.provider].base_url) == (
        "gpt-judge",
        "http://127.0.0.1:7/v1",
    )
    category, score = case.expectations
    assert (category.check.category, list(category.check.tools)) == ("lookup", ["search", "find"])
    assert list(score.check.weights.values()) == [0.5, 0.3, 0.2]
    assert score.check.judged


@pytest.mark.parametrize("last", [0.199, 0.201])
def test_weights_may_be_off_by_rounding(load: Load, case_text: str, last: float) -> None:
    weights = f"{{tool_accuracy: 0.3, output_quality: 0.5, sequence_correctness: {last}}}"
    loaded = load(case_text.replace("min_score: 70", f"min_score: 70, weights: {weights}"))
    assert loaded.case.expectations[-1].check.weights["sequence_correctness"] == last


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ("adapter: http\ntimeout: soon\n", 2),
        ("adapter: mcp\n", 1),
        ("judge: {provider: gemini, model: x}\n", 1),
        ("adapter: http\nscoring: {weights: {tool_accuracy: 0.9}}\n", 2),
        ("endpoint: ${NOWHERE}\n", 1),
        ("adapter: [\n", 2),
        ("- a\n", 1),
    ],
)
def test_an_error_of_the_configuration_keeps_its_cases_from_running(
    load: Load, case_text: str, config: str, line: int
) -> None:
    other = case_text.replace("capital", "other")
    loaded = load({CONFIG: config, "a.yaml": case_text, "b.yaml": other})
    assert [(name, at) for name, at, _ in loaded.lines("error")] == [("config.yaml", line)]
    (skipped,) = loaded.all
    assert (skipped.suite, skipped.tests) == (None, 2)


CASES = """\
- &base
  name: first
  endpoint: http://127.0.0.1:9/ask
  input: {query: What is it?}
  expected: {tools: [search]}
  thresholds: &limits {min_score: 70, max_cost: 1}
- <<: *base
  name: second
  thresholds: {<<: [{max_cost: 3}, *limits], max_latency: 9}
"""


def test_merged_keys_are_those_of_the_mapping_and_its_own_go_first(
    load: Load,
) -> None:
    first, second = load(CASES).only.cases
    assert (first.name, second.name) == ("first", "second")
    assert second.agent == first.agent
    limits = {item.kind: item.check for item in second.expectations}
    assert limits["cost"].max_usd == 3
    assert limits["latency"].max_ms == 9
    assert limits["weighted_score"].min_score == 70
    (called,) = [item for item in second.expectations if item.kind == "tool_called"]
    assert called.where.line == 5


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (CASES.replace("max_latency: 9", "max_latency: 9, max_latency: 8"), 9, "occurs twice"),
        (CASES.replace("  name: second\n", "  <<: *base\n  name: second\n"), 8, "occurs twice"),
        (CASES.replace("*limits]", "4]"), 9, "must refer to a mapping"),
        (CASES.replace("*base", "*bsae"), 7, "refers to nothing"),
        (CASES.replace("min_score: 70", "min_score: x"), 6, "number"),
    ],
)
def test_what_is_wrong_is_reported_where_it_is_written(
    load: Load, text: str, line: int, said: str
) -> None:
    told = [
        item.error.message
        for item in load(text).diagnostics
        if item.error.where.line == line and item.severity == "error"
    ]
    assert any(said in message for message in told), load(text).diagnostics


def test_what_is_merged_counts_as_often_as_it_is_used(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kindlm.yaml_document.MAX_NODES", 5_000)
    many = ", ".join(f"k{at}: {at}" for at in range(100))
    text = f"- &a {{{many}}}\n" + "- {<<: *a}\n" * 100
    (problem,) = load(text).diagnostics
    assert "counting each use of an alias" in problem.error.message


def test_the_configuration_may_have_them_too(load: Load, case_text: str) -> None:
    config = "headers: {<<: [], A: b}\ntool_categories: {<<: {find: [search]}}\n"
    case = load({".evalview/config.yaml": config, "case.yaml": case_text}).case
    assert case.agent.headers == {"A": "b"}


TURNS = "turns: [{query: hi}, {query: "


@pytest.mark.parametrize(
    ("adapter", "begins", "ends"),
    [
        ("htpp", 'Did you mean "http"?', 'Did you mean "http"?'),
        ("goose", "Known adapters: ", "Put another agent behind one, such as http"),
    ],
)
def test_an_unknown_adapter_gets_the_nearest_or_all(
    load: Any, case_text: str, adapter: str, begins: str, ends: str
) -> None:
    loaded = load(case_text.replace("endpoint:", f"adapter: {adapter}\nendpoint:"))
    (error,) = [each.error for each in loaded.diagnostics if each.severity == "error"]
    assert error.hint.startswith(begins)
    assert error.hint.endswith(ends)


STREAMING = "adapter_config: {streaming: "


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("What is the capital of France?", "''", "input.query"),
        ("What is the capital of France?", "'  '", "input.query"),
        ("input: {query: What is the capital of France?}", TURNS + "''}]", "turns[1].query"),
        ("name:", STREAMING + '"yes"}\nname:', "adapter_config.streaming"),
        ("name:", STREAMING + "1}\nname:", "adapter_config.streaming"),
        ("http://127.0.0.1:9/ask", "file:///etc/hosts", "endpoint"),
        ("France?}", 'France?, context: {"${NAME}": 1}}', "input.context.${NAME}"),
    ],
)
def test_it_is_an_error(load: Load, case_text: str, old: str, new: str, path: str) -> None:
    loaded = load(case_text.replace(old, new), NAME="x")
    assert [item.path for item in loaded.diagnostics if item.severity == "error"] == [path]
    assert not loaded.suites


@pytest.mark.parametrize("value", ["true", "'true'", "'False'", "'${ON}'"])
def test_true_and_false_may_be_texts(load: Load, case_text: str, value: str) -> None:
    adapter = "adapter: streaming\nadapter_config: {streaming: " + value + "}\n"
    case = load(case_text + adapter, ON="TRUE").case
    assert case.agent.options.streaming is ("False" not in value)


def test_the_address_of_a_project_is_checked(load: Load, case_text: str) -> None:
    case = case_text.replace("endpoint: http://127.0.0.1:9/ask", "")
    loaded = load({CONFIG: "endpoint: file:///etc/hosts\n", "case.yaml": case})
    assert loaded.lines("error") == [("config.yaml", 1, "endpoint")]


def test_what_an_unknown_key_was_meant_to_be_is_reported_as_missing(
    load: Load, case_text: str
) -> None:
    config = "model:\n  nme: gpt\n  pricing: {input_per_1m: 1, output_per_1m: 2}\n"
    loaded = load({CONFIG: config, "case.yaml": case_text})
    assert loaded.lines("warning") == [("config.yaml", 2, "model.nme")]
    assert loaded.lines("error") == [("config.yaml", 2, "model")]
