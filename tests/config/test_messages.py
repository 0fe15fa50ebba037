"""What a user reads about a faulty configuration: all of it, at its place, in plain words."""

# ruff: noqa: E501 - messages are shown as they are, without line breaks
from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from kindlm import suggestions
from kindlm.config import LoadedSuite, load_suite
from kindlm.config.diagnostics import Diagnostic
from kindlm.suggestions import suggest
from kindlm.yaml_document import read_document

SERVED = "serve: [{name: x, command: ./run, ready: {line: up}}]\n"


def shown(loaded: LoadedSuite) -> str:
    """Return what a user sees: place, code, message, and what to do."""
    return "".join(f"\n{line}" for item in loaded.diagnostics for line in lines_of(item)) + "\n"


def lines_of(item: Diagnostic) -> list[str]:
    error, where = item.error, item.error.where
    assert where
    first = f"{where.line}:{where.column} {error.code.value} {error.message}"
    hint = (error.hint or "").replace(str(Path(where.file).parent), "FOLDER")
    return [first, f"    {hint}"] if hint else [first]


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("5", ["agent must be text, but is the number 5"]),
        ("{endpoint: 5}", ["agent.endpoint must be text, but is the number 5"]),
        ("127.0.0.1:8000", ["agent must be a URL"]),
        ("nowhere", ["agent must be a URL"]),
        ("{command: python agent.py}", ['The key "adapter" is missing in agent']),
        ("'127.0.0.1:8000/?api_key=sk-abcdefghijkl'", ["agent must be a URL"]),
    ],
)
def test_an_agent_that_is_nowhere_is_one_error(load: Any, agent: str, said: list[str]) -> None:
    loaded = load(f"agent: {agent}\ntests: {{name: a, input: Hi, expect: {{output: {{}}}}}}\n")
    errors = [found.error for found in loaded.diagnostics if found.severity == "error"]
    assert [error.message for error in errors] == said
    assert all("sk-abc" not in (error.hint or "") for error in errors)


def test_a_backspace_in_a_pattern_is_refused(load: Any, minimal: str) -> None:
    """Otherwise, a pattern that forbids a word would never match."""
    written = minimal.replace("[hello]", r'[hello], notRegex: "\bsecret\b"')
    (error,) = load(written).diagnostics
    assert "has a backspace, which is what \\b means in double quotes" in error.error.message
    assert load(written.replace('"', "'")).suite is not None


def test_an_empty_pattern_is_called_empty(load: Any) -> None:
    test = "{name: a, input: Hi, expect: {output: {regex: ''}}}"
    loaded = load(f"agent: http://127.0.0.1:8000\ntests: {test}\n")
    errors = [found.error.message for found in loaded.diagnostics if found.severity == "error"]
    assert errors == ["tests.expect.output.regex must not be empty"]


@pytest.mark.parametrize(
    ("written", "message", "hint"),
    [
        ("agents: [http://127.0.0.1:2]", "`agent` cannot be combined with `agents`", "`agents`"),
        (
            "model: openai/b\nmodels: [openai/b]",
            "`model` cannot be combined with `models`",
            "`models`",
        ),
        ("tests: [{name: a, inputs: Hi, expect: {}}]", 'Unknown key "inputs"', '"input"'),
        ("tests: [{name: a, inputs: {b: c}, expect: {}}]", 'Unknown key "inputs"', '"vars"'),
        ("tests: [{name: '', input: Hi, expect: {}}]", "tests[0].name must not be empty", None),
    ],
)
def test_a_key_that_does_not_fit_is_one_error(
    load: Any, written: str, message: str, hint: str | None
) -> None:
    loaded = load(f"agent: http://127.0.0.1:8000\n{written}\n")
    wrong = [found.error for found in loaded.diagnostics if found.severity == "error"]
    [error] = [each for each in wrong if "is missing" not in each.message]
    assert error.message.startswith(message)
    assert hint is None or hint in error.hint


def test_all_errors_of_a_file_are_reported_at_once(load: Any) -> None:
    loaded = load("""\
kindlm: 1
project: shop
suite: {name: support, nmae: x}
providers: {openai: {apiKeyEnv: OPENAI_API_KEY}}
models:
  - {id: gpt, provider: openai, model: gpt-4o, params: {temperature: 3}}
  - {id: other, provider: opnai, model: x}
prompts: {ask: {user: "{{message}} of {{name}}"}}
prompts: {}
tests:
  - name: greets
    promt: ask
    prompt: aks
    models: [gpt4]
    expect:
      output: {format: json, maxLength: "10"}
      toolCalls: [{tool: lookup, argsSchema: schemas/no.json}]
      guardrails: {pii: {denyPatterns: ["("]}}
  - name: greets
    prompt: ask
    vars: {message: 5}
defaults: {judgeModel: claude}
""")
    assert loaded.suite is None
    assert (loaded.name, loaded.tests) == ("support", 2)
    assert shown(loaded) == snapshot("""\

9:1 101 The key "prompts" occurs twice: first on line 8
    Remove one of them
3:24 102 Unknown key "nmae" in suite
    Did you mean "name"?
6:70 102 models[0].params.temperature must be at most 2, but is 3
12:5 102 Unknown key "promt" in tests[0]
    Did you mean "prompt"?
16:41 102 tests[0].expect.output.maxLength must be a whole number, but is the text "10"
    Write it without quotes
18:41 102 tests[0].expect.guardrails.pii.denyPatterns[0] is not a valid regular expression: missing ) at position 1
    Write backslashes as they are in single quotes, and double them in double quotes
19:5 102 The key "expect" is missing in tests[1]
    Add `expect:`, such as `expect: {output: {contains: [refund]}}`
21:21 102 tests[1].vars.message must be text, but is the number 5
    Put it in quotes to make it a string
7:27 200 The provider "opnai" is not configured
    Did you mean "openai"?
13:13 102 The prompt "aks" is not configured
    Did you mean "ask"?
14:14 102 The model "gpt4" is not configured
    Did you mean "gpt"?
17:46 103 The file "schemas/no.json" does not exist
    kindlm looked for it at FOLDER/schemas/no.json
19:11 102 The test "greets" occurs twice: first on line 11
    Give each one a name of its own
21:5 102 The test "greets" has no value for {{name}}
    Add `name:` to its `vars:`
22:24 102 The model "claude" is not configured
    Ids of configured models: gpt, other
""")


def test_a_syntax_error_hides_the_rest_but_is_reported_with_its_line(load: Any) -> None:
    loaded = load("kindlm: 1\nsuite: {name: support\nproject: x\n")
    assert shown(loaded) == snapshot("""\

3:8 101 A '{' that opens on line 2 is not closed
    Add the '}', or a ',' between two entries
""")
    assert loaded.diagnostics[0].source_line == "project: x"
    assert (loaded.name, loaded.tests) == ("kindlm.yaml", 0)


@pytest.mark.parametrize("text", ["", "# only a comment\n", "- a\n- b\n", "just a text", "5"])
def test_a_file_that_holds_no_mapping(load: Any, text: str) -> None:
    [found] = load(text).diagnostics
    assert (found.path, found.error.code.name) == ("", "CONFIG_VALIDATION_ERROR")
    assert found.error.where.line == 1


def test_types_are_reported_in_yaml_words(load: Any, minimal: str) -> None:
    loaded = load(
        minimal
        + """\
    vars: {a: 1, b: true, c: [x]}
    repeat: "3"
    tags: smoke
    skip: "yes"
    tools: [{name: "", responses: {}}, null]
gates: {passRateMin: 95, costMaxUsd: 0, latencyMaxMs: .5, judgeAvgMin: [1]}
defaults:
record: {redactPii: 1}
upload: {apiUrl: cloud}
"""
    )
    assert shown(loaded) == snapshot("""\

11:15 102 tests[0].vars.a must be text, but is the number 1
    Put it in quotes to make it a string
11:21 102 tests[0].vars.b must be text, but is the boolean true
    Put it in quotes to make it a string
11:30 102 tests[0].vars.c must be text, but is a list
    For example: `vars: {message: "I was charged twice."}`
12:13 102 tests[0].repeat must be a whole number, but is the text "3"
    Write it without quotes
14:11 102 tests[0].skip must be true or false, but is the text "yes"
    Write true
15:20 102 tests[0].tools[0].name must not be empty
15:35 102 tests[0].tools[0].responses must have either `then` or `fault` or `sequence`
    Write one of them
15:40 102 tests[0].tools[1] is empty
    Write a value, or remove it
16:22 102 gates.passRateMin must be at most 1, but is 95
    It is a share from 0 to 1: write 0.95 for 95 %
16:38 102 gates.costMaxUsd must be more than 0, but is 0
16:72 102 gates.judgeAvgMin must be a number, but is a list
17:1 102 defaults is empty
    Write a value, or remove it
18:21 102 record.redactPii must be true or false, but is the number 1
19:18 102 upload.apiUrl must be a URL
    Write a full URL, such as https://api.example.com/v1
""")


def test_null_is_reported_as_empty(load: Any, minimal: str) -> None:
    loaded = load(
        minimal + "    models: [null]\n    vars: {a: ~, b: }\n  - {name: null, expect: }\n"
    )
    assert shown(loaded) == snapshot("""\

11:14 102 tests[0].models[0] is empty
    Write a value, or remove it
12:15 102 tests[0].vars.a is empty
    Write a value, or remove it
12:18 102 tests[0].vars.b is empty
    Write a value, or remove it
13:12 102 tests[1].name is empty
    Write a value, or remove it
13:18 102 tests[1].expect is empty
    Write a value, or remove it
""")


def test_shapes_are_reported_with_how_to_write_them(load: Any, minimal: str) -> None:
    loaded = load(
        minimal.replace("[hello]}", "[{text: hello}]}, latencyMs: 1.5s, costUsd: $0.05")
        + """\
    tools: [lookup, {name: b, parameters: x}, [c]]
defaults: {timeoutMs: 2 min, executionTimeoutMs: soon, concurrency: 5s}
serve: [{name: a, command: run, ready: {line: up}, timeoutMs: 500ms}]
"""
    )
    assert shown(loaded) == snapshot("""\

10:34 102 tests[0].expect.output.contains[0] must be text, but is a mapping
    For example: `contains: [refund, REF-5678]`
10:62 102 tests[0].expect.latencyMs must be a number, but is the text "1.5s"
10:77 102 tests[0].expect.costUsd must be a number, but is the text "$0.05"
11:43 102 tests[0].tools[1].parameters must be a mapping, but is the text "x"
    For example: `parameters: {type: object, properties: {order_id: {type: string}}}`
11:47 102 tests[0].tools[2] must be a mapping, but is a list
    For example: `tools: [{name: lookup_order}]`
12:23 102 defaults.timeoutMs must be a whole number, but is the text "2 min"
12:50 102 defaults.executionTimeoutMs must be a whole number, but is the text "soon"
12:69 102 defaults.concurrency must be a whole number, but is the text "5s"
13:63 102 serve[0].timeoutMs must be a whole number, but is the text "500ms"
""")


def test_unions_are_reported_by_what_is_there(load: Any, minimal: str) -> None:
    loaded = load(
        minimal
        + """\
serve:
  - {name: a-b, command: 5, ready: {lien: x}}
  - {name: b, command: [run, 5], ready: 5}
  - {name: c, command: "run 'it", ready: nowhere}
"""
    )
    assert shown(loaded) == snapshot("""\

12:12 102 serve[0].name may hold letters, digits and _ only
12:26 102 serve[0].command must be text or a list of texts
12:37 102 Unknown key "lien" in serve[0].ready
    Did you mean "line"?
13:30 102 serve[1].command[1] must be text, but is the number 5
    Put it in quotes to make it a string
13:41 102 serve[1].ready must be a URL or a mapping with `line`
14:24 102 serve[2].command has a quote that is never closed
    Close it, or give a list
14:42 102 serve[2].ready must be a URL
    Write a full URL, such as https://api.example.com/v1
""")


def test_a_pasted_key_is_refused_and_shown_nowhere(load: Any, minimal: str) -> None:
    key = "sk-proj-abc123"
    loaded = load(
        minimal.replace("apiKeyEnv: OPENAI_API_KEY", f"apiKeyEnv: {key}, apiKey: {key}").replace(
            "prompts:", f"  # {key}\nprompts:"
        )
    )
    assert loaded.suite is None
    assert len(loaded.diagnostics) == 2
    assert key not in repr(loaded.diagnostics)


def test_a_password_in_an_address_is_refused(load: Any, minimal: str) -> None:
    loaded = load(minimal.replace("API_KEY}", 'API_KEY, baseUrl: "https://me:hunter22@host/v1"}'))
    assert loaded.suite is None
    assert "hunter22" not in repr(loaded.diagnostics)


@pytest.mark.parametrize(
    ("section", "refused"),
    [
        (
            "agents: [{id: a, adapter: http, endpoint: 'http://u:lit-PASS1@h:{{serve.x.port}}/c'}]",
            1,
        ),
        ("agents: [{id: a, adapter: http, endpoint: 'http://h/c?api_key=lit-PASS1&t=1'}]", 1),
        (
            "agents: [{id: a, type: http, url: 'http://h/c?a=1&access_token=lit-PASS1', bogus: 1}]",
            2,
        ),
        (
            "agents: [{id: a, adapter: http, endpoint: 'http://u:{{env.P}}@h/c?key={{env.KEY2}}'}]",
            0,
        ),
        (
            "agents: [{id: a, adapter: http, endpoint: 'http://h/c?sort_key=name&keyword=lit-PASS1'}]",
            0,
        ),
        ("agents: [{id: a, adapter: http, endpoint: 'http://u:lit-PASS1@h/c'", 1),
    ],
)
def test_no_credential_stands_in_the_address_of_an_agent_or_a_service(
    load: Any, minimal: str, section: str, refused: int
) -> None:
    config = minimal.replace("tests:", SERVED + section + "\ntests:")
    errors = [item for item in load(config).diagnostics if item.severity == "error"]
    assert len(errors) == refused
    if refused:
        assert "lit-PASS1" not in repr(errors)


def test_no_credential_stands_in_the_address_that_says_whether_a_service_is_ready(
    load: Any, minimal: str
) -> None:
    ready = "'http://u:lit-PASS1@127.0.0.1:{{serve.x.port}}/'"
    config = minimal.replace("tests:", SERVED.replace("{line: up}", ready) + "tests:")
    (found,) = (item for item in load(config).diagnostics if item.severity == "error")
    assert found.path == "serve[0].ready"
    assert "lit-PASS1" not in repr(found)


def test_a_long_line_is_cut(load: Any, minimal: str) -> None:
    [found] = load(minimal + f"bogus: {'x' * 5000}\n").diagnostics
    assert len(found.source_line) < 300


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "no.yaml", tmp_path, tmp_path / "a\0b"):
        loaded = load_suite(path)
        assert [item.error.code.name for item in loaded.diagnostics] == ["CONFIG_NOT_FOUND"]
        assert loaded.name == path.name


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3)
    | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=6,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), value=JSON)
def test_any_value_anywhere_gives_a_suite_or_readable_errors(
    data: st.DataObject, value: Any, complete: str, tmp_path: Path
) -> None:
    """No crash, and none of the schema library's own words, whatever is put where."""
    config = copy.deepcopy(read_document(complete.encode()).value)
    parent, key = data.draw(st.sampled_from(list(places(config))))
    parent[key] = value
    (tmp_path / "kindlm.yaml").write_text(json.dumps(config), encoding="utf-8")
    loaded = load_suite(tmp_path / "kindlm.yaml")
    errors = [item for item in loaded.diagnostics if item.severity == "error"]
    assert (loaded.suite is None) == bool(errors)
    for item in errors:
        assert not re.search(
            r"nput should|valid (list|dict|string|int)|_type|union", item.error.message
        )
        assert item.error.where
        assert item.error.where.line


def places(value: Any) -> Any:
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    for key, item in items:
        yield value, key
        if isinstance(item, (dict, list)):
            yield from places(item)


MANY = """\
kindlm: 1
project: shop
suite: {{name: support}}
providers: {{openai: {{apiKeyEnv: OPENAI_API_KEY}}}}
models: [{{id: gpt, provider: openai, model: gpt-4o}}]
prompts: {{ask: {{user: "{text}"}}}}
tests: [{{name: greets, prompt: ask, vars: {{a: "{value}"}}, expect: {{output: {{contains: [x]}}}}}}]
"""


def test_of_many_variables_without_a_value_the_first_are_reported(load: Any) -> None:
    (found,) = load(
        MANY.format(text=" ".join(f"{{{{v{n}}}}}" for n in range(20_000)), value="x")
    ).diagnostics
    assert "{{v0}}, {{v1}}, " in found.error.message
    assert "and 19,980 more" in found.error.message
    assert len(found.error.message) + len(found.error.hint or "") < 1_000


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("faitful", 'Did you mean "faithful"?'),
        ("polite", 'Write a criterion of your own as `criteria: "polite"`'),
    ],
)
def test_a_word_is_a_ready_criterion_or_is_written_as_ones_own(
    load: Any, minimal: str, word: str, hint: str
) -> None:
    judge = f"{{judge: {word}}}"
    (found,) = load(minimal.replace("{output: {contains: [hello]}}", judge)).diagnostics
    known = "must be one of faithful, relevant, safe, onTopic, but is"
    assert f'judge {known} "{word}"' in found.error.message
    assert found.error.hint.endswith(hint)


@pytest.mark.parametrize(
    ("form", "hint"), [("jsn", 'Did you mean "json"?'), ("yaml", None)], ids=["close", "other"]
)
def test_the_choices_of_a_value_are_listed_once(
    load: Any, minimal: str, form: str, hint: str | None
) -> None:
    (found,) = load(minimal.replace("contains: [hello]", f"format: {form}")).diagnostics
    assert found.error.message.endswith(f'format must be one of text, json, but is "{form}"')
    assert found.error.hint == hint


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        ("{output: {contains: [hello]}}", "{judge: [{minScore: 1}]}", "tests[0].expect.judge[0] has no criterion"),
        ("{output: {contains: [hello]}}", "{judge: [{criteria: kind, ready: faithful}]}", "criteria and ready cannot be combined"),
        ("{output: {contains: [hello]}}", "{judge: [{criteria: kind, context: x}]}", "context is used by ready criteria alone"),
        ("{output: {contains: [hello]}}", "{output: {format: json, schema: {type: object}, schemaFile: a.json}}", "schema and schemaFile cannot be combined"),
        ("{user: Hi}", "{assistant: Hi}", "prompts.ask a user text is missing"),
        ("{user: Hi}", "{user: Hi, userFile: hi.md}", "userFile cannot be combined with `user`"),
        ("{user: Hi}", "{user: Hi, system: a, systemFile: b.md}", "systemFile cannot be combined with `system`"),
        ("{openai:", "{fake: {type: scripted, replies: [{text: a, error: timeout}]}, openai:", "has both an error and an answer"),
        ("{openai:", "{fake: {type: scripted, replies: [{delayMs: 1}]}, openai:", "holds no answer"),
    ],
)  # fmt: skip
def test_what_leaves_open_what_is_meant_is_refused(
    load: Any, minimal: str, written: str, instead: str, said: str
) -> None:
    assert written in minimal
    loaded = load(minimal.replace(written, instead))
    first = next(item.error for item in loaded.diagnostics if item.severity == "error")
    assert said in first.message
    assert first.hint


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("promtp", "prompt"),
        ("promt", "prompt"),
        ("tset", "test"),
        ("modle", "model"),
        ("ids", "id"),
        ("Prompt", "prompt"),
        ("tool_calls", "toolCalls"),
    ],
)
def test_a_slip_means_what_it_is_close_to(name: str, meant: str) -> None:
    assert suggest(name, ["id", "test", "toolCalls", "model", "prompt"]) == meant


@pytest.mark.parametrize("name", ["", "x", "u", "if", "foo", "cats", "system", "😀"])
def test_other_names_mean_nothing(name: str) -> None:
    assert suggest(name, ["id", "user", "max", "name", "expect"]) is None


@pytest.mark.parametrize(
    ("written", "meant", "text"),
    [
        ("promtp", "prompt", "tests: [{name: a, promtp: ask, expect: {}}]"),
        ("promtps", "prompts", "promtps: {ask: {user: hi}}"),
        ("projct", "project", "projct: shop"),
    ],
)
def test_a_misspelt_key_is_one_error(load: Any, written: str, meant: str, text: str) -> None:
    sections = {
        "project": "project: shop",
        "suite": "suite: {name: a}",
        "providers": "providers: {openai: {apiKeyEnv: KEY}}",
        "models": "models: [{id: gpt, provider: openai, model: gpt-4o}]",
        "prompts": "prompts: {ask: {user: hi}}",
        "tests": "tests: [{name: a, prompt: ask, expect: {}}]",
    }
    sections[{"prompt": "tests"}.get(meant, meant)] = text
    loaded = load("kindlm: 1\n" + "\n".join(sections.values()) + "\n")
    [found] = loaded.diagnostics
    assert f'Unknown key "{written}"' in found.error.message
    assert found.error.hint == f'Did you mean "{meant}"?'


def test_names_that_share_no_letters_are_not_compared_letter_by_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[str, str]] = []

    def distance(left: str, right: str) -> int:
        compared.append((left, right))
        return len(left)

    monkeypatch.setattr(suggestions, "_distance", distance)
    assert suggestions.suggest("refund", ["lookup", "cancel", "status"]) is None
    assert not compared
    suggestions.suggest("refund", ["refnud", "REFUNDS"])
    assert len(compared) == 2


@pytest.mark.parametrize(
    "keys",
    [
        r'command: "run\0"',
        r'command: [run, "\0"]',
        r'command: run, cwd: "\0"',
        r'adapter: python, endpoint: "m:f", path: "\0"',
    ],
)
def test_no_path_and_no_argument_has_a_nul_character(load: Any, minimal: str, keys: str) -> None:
    adapter = "" if "adapter" in keys else "adapter: subprocess, "
    loaded = load(minimal.replace("tests:", f"agents: [{{id: a, {adapter}{keys}}}]\ntests:"))
    assert [item.error.message.endswith("has a NUL character") for item in loaded.diagnostics] == [
        True
    ]


@pytest.mark.parametrize(
    ("env", "message"),
    [(r'{A: "\0"}', "has a NUL character"), ("{A=B: x}", "a variable without a name")],
)
def test_a_service_has_no_variable_that_no_program_can_have(
    load: Any, minimal: str, env: str, message: str
) -> None:
    serve = f"serve: [{{name: a, command: b, env: {env}}}]\ntests:"
    (error,) = load(minimal.replace("tests:", serve)).diagnostics
    assert error.path == "serve[0].env"
    assert message in error.error.message
