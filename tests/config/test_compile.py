"""From a configuration to the suite that is run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kindlm.checks.call_matching import CallCount
from kindlm.checks.drift import Drift
from kindlm.checks.judge import Judge
from kindlm.checks.limits import Cost, Latency, MaxLength
from kindlm.checks.output import Ban, Demand, Schema
from kindlm.checks.tool_calls import ToolCall, ToolStrict
from kindlm.checks.trajectory import Trajectory, TrajectoryCall
from kindlm.outcome import Gate
from kindlm.packages import as_written
from kindlm.providers.ollama_provider import Ollama
from kindlm.providers.openai_provider import OpenAi
from kindlm.suite import (
    Case,
    ModelParams,
    Price,
    Prompt,
    ProviderSettings,
    SimulatedTool,
    Suite,
    ToolAnswer,
)


@pytest.fixture
def suite(load: Any, complete: str) -> Suite:
    loaded = load(complete)
    assert [item for item in loaded.diagnostics if item.severity == "error"] == []
    assert isinstance(loaded.suite, Suite)
    return loaded.suite


def test_settings_of_the_suite_are_taken_over(suite: Suite) -> None:
    assert (suite.name, suite.project, suite.front_end, suite.path) == (
        "support",
        "shop",
        "kindlm",
        "kindlm.yaml",
    )
    assert (suite.tags, suite.judge_model) == (("desk",), "judge")
    assert (suite.concurrency, suite.timeout_ms, suite.execution_timeout_ms) == (8, 5000, 9000)
    assert (suite.retries, suite.redact_pii, suite.record_raw_bodies) == (1, True, False)
    assert suite.prices == {"gpt-4o": Price(2.5, 10.0)}
    assert (suite.has_document, suite.document_folder) == (True, "out")


def test_an_empty_name_of_a_template_is_no_template(load: Any, minimal: str) -> None:
    loaded = load(minimal + 'compliance: {framework: custom, template: ""}\n')
    assert loaded.diagnostics == ()
    assert "reportTemplate" not in json.loads(loaded.suite.config_text)


def test_providers_keep_their_placeholders(suite: Suite) -> None:
    assert suite.providers["openai"] == ProviderSettings(
        "openai", "openai", "OPENAI_API_KEY", None, "org", OpenAi()
    )
    assert suite.providers["local"].type == "openai"
    assert suite.providers["local"].base_url == "http://{{env.LOCAL_HOST}}/v1"
    assert suite.providers["ollama"] == ProviderSettings("ollama", "ollama", options=Ollama())
    assert as_written(suite.providers["fake"].options)["replies"] == [
        {"text": "hello {{message}}", "delayMs": 1.0},
        {"toolCalls": [{"name": "lookup", "arguments": {"id": "A1"}}]},
        {"error": "rate_limit", "retryAfter": 1.0},
    ]


def test_models_know_which_parameters_were_written(suite: Suite) -> None:
    assert suite.models["gpt"].params == ModelParams(
        temperature=0,
        top_p=1,
        stop_sequences=("END",),
        seed=7,
        written=frozenset({"temperature", "top_p", "stop_sequences", "seed"}),
    )
    assert suite.models["claude"].params == ModelParams()


def test_a_test_is_compiled_with_its_prompt_tools_and_limits(suite: Suite) -> None:
    refund, filed, *_ = suite.cases
    assert refund.prompt == Prompt("Refund me", "You serve ACME.", "{")
    assert refund.targets == ("gpt", "claude")
    assert (refund.repeat, refund.pass_rate, refund.max_turns) == (2, 0.5, 4)
    assert (refund.tags, refund.skip) == (("money",), False)
    assert refund.where
    assert refund.tools == (
        SimulatedTool(
            "lookup",
            "Finds an order",
            {"type": "object", "properties": {"id": {"type": "string"}}},
            (ToolAnswer({"id": "A1"}, {"total": 5}),),
            None,
            True,
        ),
        SimulatedTool("refund"),
    )
    assert filed.prompt == Prompt("Hi.\n", "Be kind, Bo.\n")
    assert (filed.targets, filed.skip) == (("gpt",), True)
    assert (filed.repeat, filed.pass_rate, filed.max_turns) == (3, 0.7, 10)


def test_expectations_in_the_vocabulary_of_the_checks(suite: Suite) -> None:
    found = [(item.kind, item.label, item.check) for item in suite.cases[0].expectations]
    pii = found[5][2]
    schema = {"type": "object", "required": ["id"]}
    called = ToolCall.model_construct(
        tool="lookup",
        args_match={"id": "A1"},
        args_schema="args.json",
        response_contains="total",
        order=0,
    ).with_schema(schema)
    judge = Judge.model_construct(
        criteria="It is kind", min_score=0.8, model="judge", rubric="Be strict"
    )
    assert found == [
        ("schema", "answer.json", Schema({"type": "object"}, "answer.json")),
        ("contains", "ok", Demand("contains", "ok")),
        ("contains", "ok #2", Demand("contains", "ok")),
        ("not_contains", "no", Ban("not_contains", "no")),
        ("max_length", "≤ 90", MaxLength(90)),
        ("pii", "pii", pii),
        ("keywords_deny", "damn", Ban("keywords_deny", "damn")),
        ("keywords_allow", "sorry, thanks", Demand("keywords_allow", ["sorry", "thanks"])),
        ("tool_called", "lookup", called),
        ("tool_called", "lookup #2", ToolCall.model_construct(tool="lookup")),
        (
            "tool_not_called",
            "refund",
            ToolCall.model_construct(tool="refund", should_not_call=True),
        ),
        ("judge", "It is kind", judge),
        ("drift", "field-diff", Drift.model_construct(method="field-diff", fields=["a.b"])),
    ]
    assert pii.patterns[3:] == [("order", r"A\d+")]
    assert len(pii.deny_patterns) == 3


def test_expectations_beyond_the_first_version(suite: Suite) -> None:
    found = [(item.label, item.check, item.turn) for item in suite.cases[2].expectations]
    called = ToolCall.model_construct(
        tool="lookup",
        before="refund",
        after="refund",
        count=CallCount.model_construct(min=1, max=2),
    )
    calls = [
        TrajectoryCall.model_construct(tool="lookup", count=CallCount.model_construct(max=2)),
        TrajectoryCall.model_construct(tool="refund", args_match={"id": "A1"}),
    ]
    assert found == [
        ("lookup", called, None),
        ("It is kind", Judge(criteria="It is kind", passes=3), None),
        ("in-order", Trajectory.model_construct(mode="in-order", calls=calls), None),
        ("≤ 5000 ms", Latency.model_construct(max_ms=5000), None),
        ("≤ $0.00002", Cost.model_construct(max_usd=0.00002), None),
        ("turn 2: already", Demand("contains", "already"), 2),
        ("strictTools", ToolStrict(), None),
    ]


@pytest.mark.parametrize(
    ("written", "repeat"), [("3", 3), ("3.0", 3), ("3e0", 3), ("2.5", None), ("'3'", None)]
)
def test_a_number_of_repeats_is_whole(
    load: Any, minimal: str, written: str, repeat: int | None
) -> None:
    loaded = load(minimal.replace("prompt: ask", f"prompt: ask\n    repeat: {written}"))
    assert (loaded.suite and loaded.suite.cases[0].repeat) == repeat
    assert [each.path for each in loaded.diagnostics] == ([] if repeat else ["tests[0].repeat"])


def test_follow_ups_of_a_test_are_filled_in(suite: Suite) -> None:
    first, second = suite.cases[2:4]
    assert first.follow_ups == ("And Hello for first?", "Thanks")
    assert second.follow_ups[0] == "And Line one\nline two for second?"
    assert _is_strict(first)
    assert not _is_strict(suite.cases[0])


def _is_strict(case: Case) -> bool:
    return [item.kind for item in case.expectations].count("tool_strict") == 1


def test_strict_tools_by_default(load: Any, complete: str) -> None:
    text = complete.replace("strictTools: false", "strictTools: true")
    text = text.replace("passRate: 0.5", "passRate: 0.5\n    strictTools: false")
    cases = load(text).suite.cases
    # A program calls no simulated tools.
    assert [case.name for case in cases if not _is_strict(case)] == ["refund", "program"]


def test_a_baseline_in_a_conversation_is_refused(load: Any, minimal: str) -> None:
    turn = "    conversation: [{user: a, expect: {baseline: {drift: {}}}}]\n"
    [found] = [item for item in load(minimal + turn).diagnostics if item.severity == "error"]
    assert found.path == "tests[0].conversation[0].expect"


def test_an_expectation_knows_its_line(suite: Suite, complete: str) -> None:
    lines = complete.split("\n")
    for item in suite.cases[0].expectations:
        assert item.where
        assert item.where.line
        assert item.where.column
        text = lines[item.where.line - 1][item.where.column - 1 :]
        begins = {
            "schema": "schemaFile:",
            "contains": "ok",
            "not_contains": "no",
            "max_length": "maxLength:",
            "pii": "pii:",
            "keywords_deny": "damn",
            "keywords_allow": "allow:",
            "tool_called": ("tool: lookup", "{tool: lookup}"),
            "tool_not_called": "{tool: refund",
            "judge": "{criteria:",
            "drift": "drift:",
        }
        assert text.startswith(begins[item.kind])


def test_gates_show_what_was_written(suite: Suite) -> None:
    assert suite.gates == (
        Gate("passRateMin", 0.9, True),
        Gate("schemaFailuresMax", 0, False),
        Gate("piiFailuresMax", 0, False),
        Gate("keywordFailuresMax", 0, False),
        Gate("costMaxUsd", 2, True),
    )


def test_services_are_compiled_with_command_readiness_and_environment(
    suite: Suite, tmp_path: Any
) -> None:
    agent, other = suite.services
    assert agent.command == ("python", "agent.py", "--port", "{{serve.agent.port}}")
    assert agent.directory == str(tmp_path)
    assert agent.ready_url == "http://127.0.0.1:{{serve.agent.port}}/health"
    assert (agent.env, agent.timeout_ms) == ({"MODE": "{{env.MODE}}"}, 20_000)
    assert (other.command, other.ready_line, other.timeout_ms) == (("run", "it"), "listening", 500)


def test_long_labels_are_cut_and_stay_unique(load: Any, minimal: str) -> None:
    long = "x" * 300
    suite = load(minimal.replace("[hello]", f"[{long}a, {long}b]")).suite
    labels = [item.label for item in suite.cases[0].expectations]
    assert labels == ["x" * 199 + "…", "x" * 199 + "… #2"]
    assert [item.check.wanted[-1] for item in suite.cases[0].expectations] == ["a", "b"]


def test_switched_off_checks_are_absent(load: Any, minimal: str) -> None:
    text = minimal.replace(
        "{output: {contains: [hello]}}",
        "{guardrails: {pii: {enabled: false}, keywords: {deny: [], allow: []}}, judge: []}",
    )
    loaded = load(text)
    assert loaded.suite.cases[0].expectations == ()
    assert [item.error.details["reason"] for item in loaded.diagnostics] == ["expects_nothing"]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (("{name: support}", "  # a comment\n  name: 'support'"), True),
        (("kindlm: 1\nproject: shop\n", "project: shop\nkindlm: 1\n"), True),
        (("gpt-4o}", "gpt-4o, params: {temperature: 0.2}}"), True),
        (("prompt: ask\n", "prompt: ask\n    skip: false\n    vars: {}\n"), True),
        (("gpt-4o}", "gpt-4o, params: {temperature: 0.3}}"), False),
        (("tests:", "gates: {passRateMin: 0.95}\ntests:"), False),
        (("prompt: ask\n", "prompt: ask\n    tools: [{name: a}]\n"), False),
        (("tests:", "agents: []\ndefaults: {strictTools: false}\ntests:"), True),
        (("prompt: ask\n", "prompt: ask\n    conversation: []\n    maxTurns: 10\n"), True),
        (("prompt: ask\n", "prompt: ask\n    conversation: [{user: Bye}]\n"), False),
        (("prompt: ask\n", "prompt: ask\n    strictTools: true\n"), False),
        (("[hello]}", "[hello]}, latency: {maxMs: 5}"), False),
    ],
)
def test_the_hash_is_about_meaning(
    load: Any, minimal: str, change: tuple[str, str], same: bool
) -> None:
    before = load(minimal).suite.config_hash
    after = load(minimal.replace(*change)).suite.config_hash
    assert (before == after) is same
    assert len(before) == 12


def test_null_as_a_tools_answer_is_not_the_same_as_none(load: Any, minimal: str) -> None:
    silent = load(minimal + "    tools: [{name: a}]\n").suite
    null = load(minimal + "    tools: [{name: a, defaultResponse: null}]\n").suite
    assert silent.config_hash != null.config_hash
    assert [s.cases[0].tools[0].has_default for s in (silent, null)] == [False, True]


def test_the_hash_covers_the_files(load: Any, minimal: str, tmp_path: Any) -> None:
    text = minimal.replace("{user: Hi}", "{userFile: user.md}")
    hashes = set()
    for content in ("a", "b"):
        (tmp_path / "user.md").write_text(content)
        hashes.add(load(text).suite.config_hash)
    assert len(hashes) == 2


def test_the_recorded_text_is_canonical_json(suite: Suite) -> None:
    document = json.loads(suite.config_text)
    again = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert again == suite.config_text
    assert document["gatesWritten"] == ["costMaxUsd", "passRateMin"]
    assert set(document["files"]) == {
        "answer.json",
        "args.json",
        "cases.csv",
        "prompts/system.md",
        "prompts/user.md",
    }


def test_both_spellings_of_the_system_file_mean_the_same(load: Any, complete: str) -> None:
    other = load(complete.replace("systemFile:", "system_prompt_file:")).suite
    assert other.config_hash == load(complete).suite.config_hash
