"""Which keys of a test go together: simulated tools, MCP servers, commands."""

# ruff: noqa: E501 - one row of a table is one line

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kindlm.config import LoadedSuite
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
        ("responses: [{when: {a: 1}}]", "responses[0]", "schema"),
        ("responses: [{setState: {a: 1}}]", "responses[0]", "schema"),
        ("responses: [{then: 1, fault: error}]", "responses[0]", "schema"),
        ("responses: [{then: 1, sequence: [{then: 2}]}]", "responses[0]", "schema"),
        ("responses: [{sequence: []}]", "responses[0]", "schema"),
        ("parameters: {type: string}, defaultResponse: 1", "parameters", "invalid_schema"),
        ("responses: [{sequence: [{}]}]", "responses[0].sequence[0]", "schema"),
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
        "responses: [{when: {a: 1}, then: null, setState: {a: '{{state.a.c[0]}}'}}]",
        "responses: [{whenState: {a: {b: {$absent: true}}}, fault: timeout, setState: {a: 1}}]",
        "responses: [{when: {a: 1, b: 1}, then: 1}, {when: {a: 1}, then: 2}]",
        "responses: [{when: {a: 1}, whenState: {b: 1}, then: 1}, {when: {a: 1}, then: 2, setState: {b: 1}}]",
        "responses: [{when: {a: 1}, then: 1}, {when: {a: true}, then: 2}, {when: {a: '1'}, then: 3}]",
        "parameters: {type: object}, defaultResponse: 1",
    ],
)
def test_valid_tools_load_without_errors(load_tool: Any, tool: str) -> None:
    loaded = load_tool(tool)
    assert found(loaded) == []
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


DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            {"type": "object", "dependencies": {"a": ["b"]}},
            '"dependencies" in "s.json" is a keyword of',
        ),
        (
            {**DRAFT_7, "items": {"prefixItems": [{"type": "string"}]}},
            '"prefixItems" in "s.json" is a',
        ),
        ({**DRAFT_7, "type": "object", "dependencies": {"a": ["b"]}}, None),
        ({"properties": {"a": {"format": "datetime"}}}, '"datetime" in "s.json" is a format that'),
        ({"properties": {"format": {"format": "int64"}}, "default": {"format": "no"}}, None),
        ({**DRAFT_7, "format": "uuid"}, None),
        ({"type": ["integer", "null"], "format": "uint32"}, None),
        ({"type": ["string", "null"], "format": "phone"}, '"phone" in "s.json" is a format that'),
    ],
)
def test_words_and_formats_that_check_nothing_are_warned_of(
    load: Any, minimal: str, tmp_path: Path, schema: Any, message: str | None
) -> None:
    (tmp_path / "s.json").write_text(json.dumps(schema))
    expect = "{output: {format: json, schemaFile: s.json}}"
    loaded = load(minimal.replace("{output: {contains: [hello]}}", expect))

    told = [item.error.message for item in loaded.diagnostics]
    assert len(told) == (message is not None)
    assert message is None or told[0].startswith(message)


SUITE = """\
kindlm: 1
project: shop
suite: {name: orders}
providers: {ollama: {}}
models: [{id: llama, provider: ollama, model: llama3.2}]
agents:
  - {id: shop, adapter: mcp, command: python server.py}
  - {id: far, type: mcp, url: "https://shop.example.com/mcp", headers: {Authorization: "Bearer {{env.T}}"}}
prompts: {ask: {user: Hi}}
tests:
  - name: called
    call: {tool: look_up, arguments: {id: "{{order}}", more: [1, "{{order}}"]}}
    vars: {order: 'A"1'}
    conversation: [{call: {tool: stop}}]
    expect: {output: {contains: [A1]}}
  - name: given
    prompt: ask
    tools:
      - mcp: {server: shop, only: [look_up]}
      - {name: stop, defaultResponse: stopped}
    expect: {toolCalls: [{tool: look_up}, {tool: stop}]}
"""


def test_calls_run_on_servers_and_prompts_on_models(load: Any) -> None:
    loaded = load(SUITE)
    assert loaded.diagnostics == ()
    called, given = loaded.suite.cases
    assert (called.targets, given.targets) == (("shop", "far"), ("llama",))
    assert json.loads(called.prompt.user) == {
        "tool": "look_up",
        "arguments": {"id": 'A"1', "more": [1, 'A"1']},
    }
    assert json.loads(called.follow_ups[0]) == {"tool": "stop", "arguments": {}}
    (tools,) = given.server_tools
    assert (tools.server, tools.only, tools.simulate) == ("shop", ("look_up",), False)


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ("{server: shop,", "{server: shpo,", "tests[1].tools[0].mcp.server", "is not configured"),
        ("{server: shop,", "{name: shop,", "tests[1].tools[0].mcp.name", "Unknown key"),
        ("    vars: {order", "    prompt: ask\n    vars: {order", "tests[0].prompt", "cannot be combined"),
        ("[{call: {tool: stop}}]", "[{user: Hi}]", "tests[0].conversation", "or calls if the test has a `call`"),
        ("[{call: {tool: stop}}]", "[{}]", "tests[0].conversation[0].user", "must be set, or else `call`"),
        ("    prompt: ask\n", "    prompt: ask\n    models: [shop]\n", "tests[1].models[0]", "is an MCP server"),
        ("    vars: {", "    models: [llama]\n    vars: {", "tests[0].models[0]", "is not an MCP server"),
        ("more: [1", "more: ['{{env.T}}'", "tests[0].call.arguments.more[0]", "only variables of the test"),
        ("more: [1", "more: ['{{colour}}'", "tests[0].vars", "{{colour}}"),
        ("command: python server.py", "cwd: .", "agents[0].endpoint", "is missing"),
        ("python server.py", "python server.py, url: 'http://h/mcp'", "agents[0].url", "has no meaning"),
        ("python server.py", "python server.py, headers: {a: b}", "agents[0].headers", "has no meaning"),
        ("{Authorization: ", "{Authorization: x}, env: {A: ", "agents[1].env", "has no meaning"),
    ],
)  # fmt: skip
def test_what_cannot_be_called_is_an_error(
    load: Any, old: str, new: str, place: str, said: str
) -> None:
    assert old in SUITE
    loaded = load(SUITE.replace(old, new, 1))
    found = [(item.path, item.error.message) for item in loaded.diagnostics]
    assert any(at == place and said in message for at, message in found), found


def test_servers_alone_are_no_targets_of_a_prompt(load: Any) -> None:
    alone = SUITE.replace("providers: {ollama: {}}\n", "")
    alone = alone.replace("models: [{id: llama, provider: ollama, model: llama3.2}]\n", "")
    first = load(alone).diagnostics[0]
    assert (first.path, first.error.message) == ("models", 'The key "models" is missing')
    assert first.error.hint == "Add `models:`; MCP servers only get a `call`"


def test_servers_and_judges_leave_a_prompt_without_a_target(load: Any) -> None:
    found = load(SUITE.replace("model: llama3.2", "model: llama3.2, role: judge")).diagnostics
    assert (found[0].path, found[0].error.details["reason"]) == ("models", "no_target")
    hint = "Add a model without `role: judge`; MCP servers only get a `call`"
    assert found[0].error.hint == hint


@pytest.mark.parametrize(
    ("prompts", "name", "path", "said"),
    [
        ("[ask, ask]", "other", "prompts[1]", 'The prompt "ask" occurs twice'),
        ("[ask, more]", "both [more]", "prompts[1]", 'creates a second test named "both [more]"'),
        ("[]", "other", "prompts", "must have at least 1 entry"),
    ],
)
def test_no_two_cases_of_a_suite_have_one_name(
    load: Any, minimal: str, prompts: str, name: str, path: str, said: str
) -> None:
    text = minimal.replace("{user: Hi}", "{user: Hi}, more: {user: Hello}")
    text = text.replace("greets", f"'{name}'")
    loaded = load(f"{text}  - {{name: both, prompts: {prompts}, expect: {{judge: safe}}}}\n")
    (found,) = [each for each in loaded.diagnostics if each.severity == "error"]
    assert (found.path, loaded.suite) == (f"tests[1].{path}", None)
    assert said in found.error.message


def test_a_row_and_a_prompt_together_make_no_second_case_of_one_name(
    load: Any, minimal: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("id\na\n", "utf-8")
    text = minimal.replace("{user: Hi}", "{user: Hi}, more: {user: Hello}")
    text = text.replace("greets", "'both [more] [a]'")
    text += "  - {name: both, prompts: [ask, more], varsFrom: rows.csv, expect: {judge: safe}}\n"
    (found,) = [each for each in load(text).diagnostics if each.severity == "error"]
    assert found.error.message == 'The row "a" creates a second test named "both [more] [a]"'


@pytest.mark.parametrize(
    ("keys", "is_sent"),
    [
        ("prompt: ask", False),
        ("command: echo Hi", False),
        ("prompts: [ask, more]", True),
        ("command: echo Hi\n    vars: {input: Hi}", None),
    ],
)
def test_an_input_that_nothing_sends_is_an_error(
    load: Any, minimal: str, keys: str, is_sent: bool | None
) -> None:
    text = minimal.replace("{user: Hi}", "{user: Hi}, more: {user: '{{input}}'}")
    # A variable may be unused.
    given = "" if is_sent is None else "\n    input: What is this?"
    text = text.replace("prompt: ask", keys + given)
    found = [each.error.details["reason"] for each in load(text).diagnostics]
    assert ("not_sent" in found) is (is_sent is False)


def test_a_prompt_may_have_the_name_of_a_key_of_calls(load: Any, minimal: str) -> None:
    text = minimal.replace("ask", "arguments").replace("Hi", "'Hi {{env.HOME}}'")
    assert load(text).diagnostics == ()


def test_a_file_for_the_user_holds_a_message(load: Any, minimal: str, tmp_path: Path) -> None:
    (tmp_path / "user.md").write_text(" \n")
    (found,) = load(minimal.replace("user: Hi", "userFile: user.md")).diagnostics
    assert (found.path, found.error.message) == (
        "prompts.ask.userFile",
        '"user.md" holds no message',
    )


def test_without_a_server_there_is_nothing_to_call(load: Any) -> None:
    text = (
        SUITE[: SUITE.index("agents:")]
        + SUITE[SUITE.index("prompts:") : SUITE.index("  - name: given")]
    )
    found = [item.error.message for item in load(text).diagnostics]
    assert "There is no MCP server to call" in found


Load = Callable[..., LoadedSuite]

COMMAND = """\
kindlm: 1
project: shop
suite: {name: program}
prompts: {ask: {user: Hello}}
tests:
  - name: t
    command: echo hello
    expect: {output: {contains: [hello]}}
"""


def errors(loaded: LoadedSuite) -> list[tuple[str, str | None]]:
    return [
        (found.path, found.error.hint) for found in loaded.diagnostics if found.severity == "error"
    ]


def test_a_prompt_beside_a_command_is_said_to_exclude_it(load: Load) -> None:
    loaded = load(COMMAND.replace("command:", "prompt: ask\n    command:"))
    (found,) = [each for each in loaded.diagnostics if each.severity == "error"]
    assert (loaded.suite, found.path) == (None, "tests[0].prompt")
    assert "cannot be combined with `command`" in found.error.message


def test_a_command_may_say_that_it_reports_its_tool_calls(load: Load) -> None:
    loaded = load(COMMAND.replace("command:", "reportsTools: true\n    command:"))
    assert loaded.suite is not None
    command = loaded.suite.cases[0].command
    assert command is not None
    assert command.reports_tools


def test_a_test_without_a_command_says_it_of_its_agent(load: Load, minimal: str) -> None:
    loaded = load(minimal.replace("prompt: ask", "prompt: ask\n    reportsTools: true"))
    ((path, hint),) = errors(loaded)
    assert path == "tests[0].reportsTools"
    assert "`agents`" in (hint or "")


def test_what_is_not_written_changes_no_identity(load: Load) -> None:
    without = load(COMMAND).suite
    said = load(COMMAND.replace("command:", "reportsTools: true\n    command:")).suite
    assert without is not None
    assert said is not None
    assert "reportsTools" not in without.config_text
    assert without.config_hash != said.config_hash
