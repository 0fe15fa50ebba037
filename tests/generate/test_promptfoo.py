"""A configuration of promptfoo becomes a suite in which the same answers pass and fail."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from evaluated import evaluated, nobody

from kindlm.config import load_suite
from kindlm.errors import Ok
from kindlm.generate.imported_tests import ImportedSuite
from kindlm.generate.suite_text import suite_text
from kindlm.generate.suites import Files, format_named, read_part
from kindlm.outcome import Outcome
from kindlm.suite import Suite
from kindlm.transcript import Step, ToolCall, ToolUse, Transcript, Turn

CONFIG: dict[str, Any] = {
    "prompts": ["{{q}}"],
    "providers": ["openai:gpt-4o"],
    "defaultTest": {"vars": {"q": "Where is it?", "city": "Rome", "context": "It is in Rome."}},
}


def read(config: dict[str, Any], folder: Path) -> ImportedSuite:
    """Read a configuration, written as YAML with a line for each value."""
    part = read_part("promptfooconfig.yaml", json.dumps(config, indent=1).encode())
    assert isinstance(part, Ok), part
    form = format_named("promptfoo")
    assert form.reads(part.value)
    return form.read(part.value, Files(folder))


def loaded(imported: ImportedSuite, folder: Path) -> Suite:
    """Return the suite as `kindlm test` would load it."""
    text = suite_text(imported.document, folder / "kindlm.yaml")
    assert isinstance(text, Ok), text
    suite = load_suite(folder / "kindlm.yaml", text=text.value.encode()).suite
    assert suite is not None
    return suite


def with_tests(*tests: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**CONFIG, "tests": list(tests), **more}


def notes(imported: ImportedSuite, kind: str) -> str:
    found = imported.left_out if kind == "left out" else imported.different
    return "\n".join(f"{', '.join(places)}: {it}" for it, places in found.items())


LINES = "Yes, it is in Rome.\nIt costs $5 (or so)."
TEXTS: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"type": "equals", "value": "Rome"}, ["Rome"], ["rome", "Rome.", ""]),
    ({"type": "equals", "value": "{{city}}"}, ["Rome"], ["{{city}}", "Paris"]),
    ({"type": "equals", "value": 42}, ["42"], ["42.0", "4"]),
    ({"type": "equals", "value": {"a": [1, None]}}, ['{"a": [1, null]}'], ['{"a": [1]}', "a"]),
    ({"type": "not-equals", "value": "Rome"}, ["rome", "Rome ", ""], ["Rome"]),
    ({"type": "contains", "value": "$5 (or so)."}, [LINES], ["$5 or so", LINES.upper()]),
    ({"type": "contains", "value": 5}, [LINES], ["six"]),
    ({"type": "icontains", "value": "ROME"}, [LINES, "rome"], ["Paris"]),
    ({"type": "not-contains", "value": "Rome"}, ["ROME", ""], [LINES]),
    ({"type": "not-icontains", "value": "Rome"}, ["Paris"], ["ROME", LINES]),
    ({"type": "contains-any", "value": ["Rome", "a|b"]}, [LINES, "a|b"], ["rome", "a"]),
    ({"type": "icontains-any", "value": "rome, a|b"}, [LINES, "A|B"], ["Paris", "b"]),
    ({"type": "not-contains-any", "value": ["Rome", "b"]}, ["ROME"], [LINES, "b"]),
    ({"type": "contains-all", "value": ["Rome", "costs"]}, [LINES], ["Rome", LINES.upper()]),
    ({"type": "icontains-all", "value": ["ROME", "costs"]}, [LINES], ["Rome"]),
    (
        {"type": "starts-with", "value": "Yes, {{city}}"},
        ["Yes, Rome?"],
        ["yes, Rome", " Yes, Rome"],
    ),
    ({"type": "not-starts-with", "value": "Yes"}, ["No. Yes", "yes"], ["Yes."]),
    ({"type": "regex", "value": r"costs \$\d \("}, [LINES], ["costs 5"]),
    ({"type": "not-regex", "value": "R[aeo]me$"}, [LINES], ["Rame"]),
    ({"type": "is-json"}, ['{"a": 1}', "[]", "3"], ["a", '{"a": 1} b', ""]),
    ({"type": "is-json", "value": {"type": "object", "required": ["a"]}}, ['{"a": 1}'], ["{}"]),
    ({"type": "is-json", "value": "required: [a]\ntype: object"}, ['{"a": 1}'], ["{}", "[]"]),
    (
        {"type": "assert-set", "assert": [{"type": "contains", "value": w} for w in "ab"]},
        ["ab"],
        ["a", "b"],
    ),
]


@pytest.mark.parametrize(("assertion", "right", "wrong"), TEXTS, ids=lambda it: str(it)[:40])
def test_the_same_answers_pass_and_fail(
    assertion: dict[str, Any], right: list[str], wrong: list[str], tmp_path: Path
) -> None:
    suite = loaded(read(with_tests({"assert": [assertion]}), tmp_path), tmp_path)
    (case,) = suite.cases
    assert case.expectations
    for text in [*right, *wrong]:
        transcript = Transcript(turns=(Turn("", (Step(text),)),))
        results = [evaluated(each, transcript, nobody) for each in case.expectations]
        passed = all(result.outcome is Outcome.PASSED for result in results)
        assert passed is (text in right), text


CALLS: list[tuple[dict[str, Any], list[list[str]], list[list[str]]]] = [
    ({"type": "trajectory:tool-used", "value": "find"}, [["a", "find"]], [[], ["a"]]),
    ({"type": "trajectory:tool-used", "value": ["a", "b"]}, [["b", "a"]], [["a"]]),
    ({"type": "trajectory:tool-used", "value": {"name": "a"}}, [["a", "a"]], [["b"]]),
    ({"type": "not-trajectory:tool-used", "value": "a"}, [[], ["b"]], [["a", "b"]]),
    (
        {"type": "trajectory:tool-sequence", "value": {"steps": ["a", "b"]}},
        [["a", "b"], ["a", "x", "b", "a"]],
        [["b", "a"], ["a"]],
    ),
    (
        {"type": "trajectory:tool-sequence", "value": {"mode": "exact", "steps": ["a", "b"]}},
        [["a", "b"]],
        [["a", "b", "b"], ["a", "x", "b"]],
    ),
    (
        {"type": "trajectory:tool-args-match", "value": {"name": "a", "args": {"n": "a"}}},
        [["a"]],
        [["b"]],
    ),
]


@pytest.mark.parametrize(("assertion", "right", "wrong"), CALLS, ids=lambda it: str(it)[:60])
def test_the_same_tool_calls_pass_and_fail(
    assertion: dict[str, Any], right: list[list[str]], wrong: list[list[str]], tmp_path: Path
) -> None:
    suite = loaded(read(with_tests({"assert": [assertion]}), tmp_path), tmp_path)
    (case,) = suite.cases
    for names in [*right, *wrong]:
        uses = tuple(ToolUse(ToolCall(str(at), n, {"n": n}), {}, "x") for at, n in enumerate(names))
        transcript = Transcript(turns=(Turn("", (Step("", uses), Step("done"))),))
        results = [evaluated(each, transcript, nobody) for each in case.expectations]
        assert results
        passed = all(result.outcome is Outcome.PASSED for result in results)
        assert passed is (names in right), names


def test_judges_and_limits_keep_their_thresholds(tmp_path: Path) -> None:
    asserts = [
        {"type": "llm-rubric", "value": "Names {{city}}", "threshold": 0.8},
        {"type": "llm-rubric", "value": "Is kind", "provider": "openai:gpt-4o-mini"},
        {"type": "llm-rubric", "value": "Is short", "provider": "openai/gpt-4o"},
        {"type": "context-faithfulness", "threshold": 0.9},
        {"type": "similar", "value": "In {{city}}"},
        {"type": "latency", "threshold": 800},
        {"type": "cost", "threshold": 0.01},
    ]
    grader = {"options": {"provider": "openai:gpt-4.1"}}
    default = CONFIG["defaultTest"] | grader
    imported = read(with_tests({"assert": asserts}, defaultTest=default), tmp_path)
    loaded(imported, tmp_path)
    (test,) = imported.document["tests"]
    assert test["expect"] == {
        "output": {"similarTo": {"text": "In Rome", "minScore": 0.75}},
        "judge": [
            {"criteria": "Names Rome", "minScore": 0.8},
            {"criteria": "Is kind", "model": "openai/gpt-4o-mini"},
            {"criteria": "Is short", "model": "openai/gpt-4o"},
            {"ready": "faithful", "context": "It is in Rome.", "minScore": 0.9},
        ],
        "latencyMs": 800,
        "costUsd": 0.01,
    }
    assert imported.document["defaults"] == {"judgeModel": "openai/gpt-4.1"}
    assert imported.document["models"][1:] == [
        {"id": f"openai/{name}", "provider": "openai", "model": name, "role": "judge"}
        for name in ("gpt-4.1", "gpt-4o-mini")
    ]


@pytest.mark.parametrize(
    ("assertion", "said"),
    [
        ({"type": "javascript", "value": "output.length < 5"}, "`javascript`. Write a function"),
        ({"type": "python", "value": "file:///etc/check.py"}, "`python`. Write a function"),
        ({"type": "not-llm-rubric", "value": "x"}, "`not-llm-rubric`"),
        ({"type": "made-up", "value": "x"}, "`made-up`"),
        (
            {"type": "contains", "value": "a", "transform": "output.x"},
            "`contains` with `transform`",
        ),
        ({"type": "contains", "value": "a", "weight": 0}, "weight 0. It cannot fail"),
        ({"type": "contains", "value": ""}, "its value is not text"),
        ({"type": "contains", "value": "{{city | upper}}"}, "the template {{city | upper}}"),
        ({"type": "contains", "value": "{{" * 100_000}, "the template {{{{"),
        ({"type": "contains", "value": "file://../secret.txt"}, "points outside the folder"),
        ({"type": "regex", "value": "(a"}, "the regular expression '(a'"),
        ({"type": "regex", "value": "a{,3}b"}, "`{,` is a text in JavaScript"),
        ({"type": "regex", "value": "(?:)"}, "it matches every text"),
        ({"type": "llm-rubric", "value": "x", "threshold": 0}, "its threshold is not above 0"),
        ({"type": "similar", "value": "x", "threshold": 0}, "a threshold that is not above 0"),
        ({"type": "trajectory:tool-used", "value": {"name": "a", "min": 2}}, "more than `name`"),
        ({"type": "not-contains-any", "value": '"a, b", c'}, "write it as a list"),
        ({"type": "is-json", "value": {"type": 3}}, "the JSON Schema"),
        ({"type": "is-json", "value": {"total": {}}}, "it has no keyword"),
        ({"type": "tool-call-f1", "value": ["a"]}, "`tool-call-f1`"),
        ({"contains": "a"}, "an assertion without a `type`. Write its `type` and `value`"),
        ({"$ref": "#/assertionTemplates/a"}, "an assertion with `$ref`. Write the assertion out"),
        (
            {"type": "trajectory:tool-used", "value": {"pattern": "a*"}},
            "a* is not the whole name of a tool",
        ),
        (
            {"type": "assert-set", "threshold": 0.5, "assert": [{"type": "is-json"}] * 2},
            "`assert-set`",
        ),
    ],
)
def test_a_test_whose_own_checks_have_no_equivalent_is_skipped(
    assertion: dict[str, Any], said: str, tmp_path: Path
) -> None:
    banned = {"assert": [{"type": "not-contains", "value": "lawsuit"}]}
    config = with_tests({"assert": [assertion]}, {}, defaultTest=CONFIG["defaultTest"] | banned)
    imported = read(config, tmp_path)
    assert said in notes(imported, "left out")
    assert "promptfooconfig.yaml:" in notes(imported, "left out")
    case, without_own = loaded(imported, tmp_path).cases
    assert (case.skip, without_own.skip) == (True, False)
    assert (imported.tests, imported.imported, imported.skipped) == (2, 1, 1)


def test_a_threshold_that_tolerates_a_failure_holds_the_test(tmp_path: Path) -> None:
    asserts = [{"type": "contains", "value": "a"}, {"type": "contains", "value": "b", "weight": 3}]
    for threshold, skipped in ((None, False), (0.75, True), ("1", True), (0, True)):
        imported = read(with_tests({"assert": asserts, "threshold": threshold}), tmp_path)
        (case,) = loaded(imported, tmp_path).cases
        assert len(case.expectations) == 2
        assert case.skip is skipped


def test_prompts_providers_and_tests_make_the_same_runs(tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text(
        '[{"role": "system", "content": "Be {{tone}}."}, {"role": "user", "content": "{{ q }}"}]'
    )
    (tmp_path / "two.txt").write_text("One: {{q}}\n---\nTwo: {{- q -}}")
    (tmp_path / "rows.csv").write_text(
        "q,tone,__expected,__expected2,__expected3,__description,__metadata:area\n"
        '"a, b",kind,"contains-any: x:1, y",not-z,similar(0.9):z,row,shop\n'
    )
    (tmp_path / "more.jsonl").write_text('\n{"vars": {"q": "c", "tone": 1.0}}\n')
    greets = {"vars": {"q": "Hi", "tone": ["kind", "short"]}, "metadata": {"area": ["shop", 1]}}
    config = {
        "prompts": ["file://chat.json", "file://two.txt"],
        "providers": [
            {"id": "openai:chat:gpt-4o", "label": "big", "config": {"temperature": 0}},
            "anthropic:messages:claude",
        ],
        "defaultTest": {"assert": [{"type": "icontains", "value": "ok"}]},
        "tests": ["file://rows.csv", "file://more.jsonl", {"description": "greets", **greets}],
        "evaluateOptions": {"repeat": 2, "maxConcurrency": 3},
    }
    suite = loaded(read(config, tmp_path), tmp_path)
    said = {
        (case.name.partition(" [")[0], target, case.prompt.system, case.prompt.user.strip())
        for case in suite.cases
        for target in case.targets
    }
    asked = [("row", "kind", "a, b"), ("test 2", "1", "c")]
    asked += [(f"greets ({tone})", tone, "Hi") for tone in ("kind", "short")]
    assert said == {
        (name, target, system, user)
        for name, tone, q in asked
        for target in ("big", "anthropic/claude")
        for system, user in ((f"Be {tone}.", q), (None, f"One: {q}"), (None, f"Two: {q}"))
    }
    first = suite.cases[0]
    assert {each.label for each in first.expectations} == {"(?:x:1|y)", "ok", "not-z", "z"}
    assert suite.cases[-1].tags == ("area:shop", "area:1")
    assert first.tags == ("area:shop",)
    assert {case.repeat for case in suite.cases} == {2}


@pytest.mark.parametrize(
    ("cell", "checks", "left_out"),
    [
        ("Answer: 42", ["Answer: 42"], ""),
        ("not-found", ["not-found"], ""),
        ("answer: 42", [], "the assertion `answer`"),
        ("is-refusal", [], "the assertion `is-refusal`"),
        ("grade", ["grade"], ""),
        ("answer-relevance", ["relevant"], ""),
        ("trajectory:step-count", [], "the assertion `trajectory:step-count`"),
        ("icontains: a: b", ["a: b"], ""),
        ("grade: kind", ["kind"], ""),
        ("word-count: 3", [], "the assertion `word-count`"),
        ("eval: true", [], "the assertion `javascript`"),
        ("not-python:x", [], "the assertion `not-python`"),
        ("file://check.py", [], "the file check.py"),
        ("similar:cosine(0.9): a", [], "the assertion `similar:cosine`"),
    ],
)
def test_a_cell_is_a_text_unless_it_begins_with_a_type_of_assertion(
    tmp_path: Path, cell: str, checks: list[str], left_out: str
) -> None:
    (tmp_path / "rows.csv").write_text(f"q,__expected\na,{cell}\n")
    imported = read({**with_tests(), "tests": "file://rows.csv"}, tmp_path)
    (case,) = loaded(imported, tmp_path).cases
    assert [each.label for each in case.expectations] == checks
    assert left_out in notes(imported, "left out")
    assert case.skip is bool(left_out)


def test_what_runs_on_some_targets_only_is_left_out(tmp_path: Path) -> None:
    checks = {"assert": [{"type": "is-json"}]}
    providers: list[Any] = [
        "openai:gpt-4o",
        {"id": "openai:gpt-4.1", "prompts": ["a"]},
        {"id": "openai:o3", "config": {"tools": [{"type": "function", "name": "find"}]}},
    ]
    config = with_tests(
        *({key: "a", **checks} for key in ("provider", "providers", "prompts")),
        checks,
        providers=providers,
        scenarios=[{"config": [checks]}],
    )
    imported = read(config, tmp_path)
    assert (imported.tests, imported.imported) == (4, 1)
    cases = loaded(imported, tmp_path).cases
    assert {each.targets for each in cases} == {("openai/gpt-4o",)}
    assert [each.skip for each in cases] == [True, True, True, False]
    said = notes(imported, "left out")
    for what in ("`provider` of a test", "`prompts` of a test", "`scenarios`"):
        assert what in said
    assert "a provider with `prompts`" in said
    assert "a provider with other tools than the first one" in said


def test_an_http_provider_becomes_an_agent_without_its_key(tmp_path: Path) -> None:
    options = {
        "url": "https://shop.example/chat?u={{env.SHOP_USER}}",
        "headers": {"Authorization": "Bearer sk-live-12345678", "X-Team": "{{ env.TEAM }}"},
        "body": {"text": "{{prompt}}", "author": "Ann", "login": [{"apiKey": "k-12345678"}]},
        "transformResponse": "json.choices[0].message['content']",
        "maxRetries": 3,
    }
    provider = {"id": "https", "label": "shop", "config": options}
    config = with_tests({"assert": [{"type": "is-json"}]}, providers=[provider])
    imported = read(config, tmp_path)
    loaded(imported, tmp_path)
    assert imported.document["agents"] == [
        {
            "id": "shop",
            "adapter": "http",
            "endpoint": "https://shop.example/chat?u={{env.SHOP_USER}}",
            "headers": {"Authorization": "{{env.AUTHORIZATION}}", "X-Team": "{{env.TEAM}}"},
            "body": {
                "text": "{{message}}",
                "author": "Ann",
                "login": [{"apiKey": "{{env.APIKEY}}"}],
            },
            "responsePath": "choices[0].message.content",
        }
    ]
    assert "Put it into the variable AUTHORIZATION" in notes(imported, "left out")
    assert "`maxRetries` of an agent" in notes(imported, "left out")
    options["transformResponse"] = "json.a + json.b"
    imported = read(config, tmp_path)
    assert "a provider with `transformResponse`" in notes(imported, "left out")
    assert "every provider. Set `agents`" in notes(imported, "left out")
    loaded(imported, tmp_path)


def test_no_text_of_a_file_becomes_a_placeholder_of_the_environment(tmp_path: Path) -> None:
    checks = {"assert": [{"type": "is-json"}]}
    imported = read(
        with_tests(
            {"vars": {"q": "{{env.OPENAI_API_KEY}}"}, **checks},
            {"vars": {"q": "file://q.txt"}, **checks},
            {"vars": {"q": "{{a}}", "a": "{{b}}{{b}}", "b": "{{a}}"}, **checks},
            {"options": {"prefix": "x"}, **checks},
            {"vars": {"q": "fine"}, "options": {"rubricPrompt": "x"}, **checks},
        ),
        tmp_path,
    )
    assert (imported.tests, imported.imported) == (5, 1)
    said = notes(imported, "left out")
    assert "OPENAI_API_KEY" not in str(imported.document)
    assert 'The file "q.txt" does not exist' in said
    assert "whose value is a template" in said
    assert "`options.prefix`" in said
    assert "`options.rubricPrompt` of a test" in said
    (tmp_path / "q.txt").write_text("{% raw %}{{env.HOME}}{% endraw %}")
    text = with_tests({"vars": {"q": "file://q.txt"}, **checks})
    with pytest.raises(Exception, match="no test"):
        read(text, tmp_path)


def test_of_too_many_combinations_the_first_are_imported(tmp_path: Path) -> None:
    checks = {"assert": [{"type": "is-json"}]}
    values = [str(n) for n in range(40)]
    many = with_tests({"vars": {"q": values, "b": values}, **checks})
    imported = read(many, tmp_path)
    assert imported.imported == 1000
    assert imported.tests == 1600
    assert "every test after the first 1,000" in notes(imported, "left out")


def test_a_pattern_that_no_file_has_is_named(tmp_path: Path) -> None:
    prompts = ["{{q}}", "file://prompts/*.txt"]
    config = with_tests({"assert": [{"type": "is-json"}]}, prompts=prompts)
    config["tests"].append("file://cases/*.yaml")
    imported = read(config, tmp_path)
    assert imported.imported == 1
    for pattern in ("prompts/*.txt", "cases/*.yaml"):
        assert f"the files {pattern}. No file has such a name" in notes(imported, "left out")


def test_a_provider_on_a_server_of_its_own_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("- exec:agent\n- openai:gpt-4o\n- groq:llama\n")
    providers = [
        {"id": "openai:gpt-4o-mini", "config": {"apiHost": "x.example", "apiKey": "abc12345"}},
        {"id": "openrouter:a/b", "config": {"apiKey": "abc12345", "accessToken": "abc12345"}},
        {"id": "openai:o3", "config": {"headers": {"X": "abc12345"}, "tools": [{"a": "abc12345"}]}},
        {"label": "no id", "config": {"apiKey": "abc12345"}},
        "file://more.yaml",
        "python:agent.py",
        "ollama:embeddings:nomic",
        "openai:ft:gpt-4o:shop",
    ]
    imported = read(with_tests({"assert": [{"type": "is-json"}]}, providers=providers), tmp_path)
    suite = loaded(imported, tmp_path)
    models = ["openrouter/a/b", "openai/o3", "openai/gpt-4o", "groq/llama"]
    models.append("openai/ft:gpt-4o:shop")
    assert list(suite.models) == models
    said = notes(imported, "left out")
    assert "a provider with no `id`: {label, config}" in said
    assert "with `apiHost`. Write it under `providers` and `models`" in said
    assert "`apiKey`." in said
    assert "the id python:agent.py" in said
    assert "more.yaml:1: a provider with the id exec:agent" in said
    assert "abc12345" not in str(imported)


def test_a_threshold_that_is_no_number_is_not_replaced_by_a_lower_default(tmp_path: Path) -> None:
    checks = [{"type": "llm-rubric", "value": "Kind.", "threshold": "0.95"}, {"type": "is-json"}]
    imported = read(with_tests({"assert": checks}), tmp_path)
    assert "judge" not in imported.document["tests"][0]["expect"]
    assert "`threshold` is not a number" in notes(imported, "left out")


def test_a_hostile_configuration_ends_soon_and_reads_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("top secret")
    inside = tmp_path / "suite"
    inside.mkdir()
    (inside / "link.txt").symlink_to(tmp_path / "secret.txt")
    (inside / "big.csv").write_text("q\n" + '"' + "x" * 200_000)
    checks = {"assert": [{"type": "is-json"}]}
    unclosed = "{{" * 100_000
    csv.field_size_limit(131_072)  # rows of suites raise it for the process
    config = with_tests(
        *({"vars": {"q": q}, **checks} for q in ("file://link.txt", "file:///etc/hostname")),
        *({"vars": {"q": q}, **checks} for q in ("file://../*.txt", unclosed, "{% {{env.HOME}}")),
        {"assert": [{"type": "regex", "value": "(a" * 9000}]},
        "file://big.csv",
        "file://../secret.yaml",
        {"vars": {"q": "fine"}, **checks},
    )
    imported = read(config, inside)
    said = notes(imported, "left out")
    assert (imported.imported, imported.skipped) == (1, 1)
    assert said.count("points outside the folder") == 3
    assert said.count("whose value is a template") == 1
    assert "the file big.csv" in said
    assert "top secret" not in str(imported)
