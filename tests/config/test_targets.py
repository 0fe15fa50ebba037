"""What tests run on: models, agents, commands; and what is required for which."""

# ruff: noqa: E501 - one row of a table is one line
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from options import options_of

from kindlm.config.interpolation import bind_suite
from kindlm.errors import Ok
from kindlm.packages import as_written
from kindlm.recording.suite_secrets import given_variables, literal_secrets
from kindlm.secrecy import hide_headers, hide_in_options
from kindlm.suite import AgentTarget, Command, Prompt

AGENT = 'agents: [{id: shop, adapter: http, endpoint: "http://localhost/chat"}]\n'
COMMAND = """\
kindlm: 1
project: shop
suite: {name: support}
tests:
  - name: runs
    command: "python agent.py"
    expect: {output: {contains: [hello]}}
"""


def errors(loaded: Any) -> list[tuple[str, str]]:
    return [
        (item.path, item.error.code.name) for item in loaded.diagnostics if item.severity == "error"
    ]


def warnings(loaded: Any) -> list[tuple[str, str]]:
    assert loaded.suite, loaded.diagnostics
    return [(item.path, item.error.details["reason"]) for item in loaded.diagnostics]


def test_agents_as_values(load: Any, complete: str, tmp_path: Any) -> None:
    suite = load(complete).suite
    assert suite.agents == {
        "shop": AgentTarget(
            "shop",
            "http",
            "http://127.0.0.1:{{serve.agent.port}}/chat",
            {"Authorization": "Bearer {{env.SHOP_TOKEN}}"},
            options_of(
                "http",
                {
                    "request": "messages",
                    "body": {
                        "text": "{{message}}",
                        "tenant": "{{env.TENANT}}",
                        "list": ["{{env.TENANT}}", 1],
                    },
                },
            ),
            str(tmp_path),
        ),
        "own": AgentTarget(
            "own",
            "python",
            "shop.agent:make",
            options=options_of("python", {}),
            directory=str(tmp_path),
        ),
    }


def test_tests_run_on_agents_and_on_models_where_they_are_named(load: Any, complete: str) -> None:
    targets = {case.name: case.targets for case in load(complete).suite.cases}
    assert targets == {
        "refund": ("gpt", "claude"),
        "filed": ("gpt",),
        "rows [first]": ("own", "gpt"),
        "rows [second]": ("own", "gpt"),
        "agents": ("shop", "own"),
        "program": ("command",),
    }


def test_a_command_is_split_before_variables_are_put_in(
    load: Any, complete: str, tmp_path: Any
) -> None:
    case = load(complete).suite.cases[-1]
    assert case.command == Command(
        (
            "python",
            "agent.py",
            "--order=A 1; rm '*'",
            "--port",
            "\ufdd0{{serve.agent.port}}",
            "a b",
        ),
        str(tmp_path),
    )
    assert case.prompt == Prompt("")


WORDS = st.text(st.sampled_from(list("ab \"'\\$;|&*\n{}é")), max_size=12)


@given(WORDS, WORDS)
def test_a_variable_is_one_argument_whatever_is_in_it(first: str, second: str) -> None:
    from kindlm.config.interpolation import bind, render
    from kindlm.values import words_of

    words = [
        bind(render(word, {"a": first, "b": second}), str)
        for word in words_of("run --x={{a}} '{{b}}' {{b}}{{a}} end")
    ]
    assert words == ["run", f"--x={first}", second, second + first, "end"]


def test_agents_and_commands_are_bound(load: Any, complete: str) -> None:
    environ = {"SHOP_TOKEN": "{{env.X}}", "TENANT": "acme", "LOCAL_HOST": "h"}
    bound = bind_suite(load(complete).suite, environ=environ, ports={"agent": 80})
    assert isinstance(bound, Ok)
    shop = bound.value.agents["shop"]
    assert shop.endpoint == "http://127.0.0.1:80/chat"
    assert shop.headers == {"Authorization": "Bearer {{env.X}}"}
    assert shop.options.body == {"text": "{{message}}", "tenant": "acme", "list": ["acme", 1]}
    command = bound.value.cases[-1].command
    assert command
    assert command.words[4] == "80"


def test_messages_of_a_conversation_are_bound(load: Any, minimal: str) -> None:
    text = minimal + "    vars: {a: '{{env.X}}'}\n    conversation: [{user: '{{a}} {{env.X}}'}]\n"
    bound = bind_suite(load(text).suite, environ={"X": "1"}, ports={})
    assert isinstance(bound, Ok)
    assert bound.value.cases[0].follow_ups == ("{{env.X}} 1",)


def test_an_unknown_adapter_leaves_the_other_warnings_to_be_seen(load: Any, minimal: str) -> None:
    added = (
        "agents: [{id: a, adapter: htp, endpoint: 'http://h'}]\ngates: {piiFailuresMax: 3}\ntests:"
    )
    loaded = load(minimal.replace("tests:", added))
    assert errors(loaded) == [("agents[0].adapter", "PROVIDER_NOT_FOUND")]
    assert "gates.piiFailuresMax" in [each.path for each in loaded.diagnostics]


ENDED = "GitHub Models ended on 30 July 2026: choose another provider"


@pytest.mark.parametrize(
    ("written", "message", "hint"),
    [
        ("model: groqq/llama", 'Unknown provider "groqq"', 'Did you mean "groq"?'),
        ("model: Groq/llama", 'Unknown provider "Groq"', 'Did you mean "groq"?'),
        (
            "model: google/gemini-2.5-flash",
            'Unknown provider "google"',
            "Known providers: ",
        ),
        ("model: openai/", 'The key "provider" is missing in model', "Add `provider:`, or name it"),
        ("model: github/gpt-4o", 'Unknown provider "github"', ENDED),
        ("providers: {github: {}}", 'Unknown provider "github"', ENDED),
        (
            "providers: {opnai: {}}",
            'Unknown provider "opnai"',
            'Did you mean "openai"? For a compatible API, add ',
        ),
        (
            "providers: {openai: {baseUrl: 'http://127.0.0.1:1'}}",
            'The key "apiKeyEnv" is missing in providers.openai',
            "Add `apiKeyEnv:`, such as `apiKeyEnv: OPENAI_API_KEY`",
        ),
        (
            "providers: {azure: {resource: 'evil.example:443'}}",
            "providers.azure.resource cannot be a part of an address",
            "Write the name alone, without https://",
        ),
        (
            "providers: {azure: {resource: a, region: eu}}",
            'Unknown key "region" in providers.azure',
            "Known keys: resource, ",
        ),
        (
            "providers: {mine: {type: openai, baseUrl: 'http://127.0.0.1:1', region: eu}}",
            'Unknown key "region" in providers.mine',
            "Known keys: ",
        ),
        (
            "providers: {scripted: {replies: [a], foo: 1}}",
            'Unknown key "foo" in providers.scripted',
            "Known keys: replies, apiKeyEnv, baseUrl, organization, type",
        ),
        (
            "agents: [{id: a, adapter: python, endpoint: 'm:a', headers: {X: '1'}}]",
            "`headers` has no meaning for the adapter python",
            "Remove it",
        ),
    ],
)
def test_a_wrong_target_is_named_with_the_way_out(
    load: Any, written: str, message: str, hint: str
) -> None:
    given = written if "model" in written else f"{written}\nmodel: scripted/m"
    test = "tests: [{name: greets, input: Hi, expect: {output: {contains: hello}}}]"
    errors = [each.error for each in load(f"{given}\n{test}\n").diagnostics]
    hints = {each.message: each.hint or "" for each in errors}
    assert hints.get(message, "").startswith(hint), hints


def test_an_agent_that_is_not_used_needs_no_value(load: Any, minimal: str) -> None:
    agents = AGENT.replace('chat"', 'chat", headers: {X: "{{env.UNSET}}"}')
    loaded = load(minimal.replace("prompt: ask", "prompt: ask\n    models: [gpt]") + agents)
    assert warnings(loaded) == [("agents[0]", "unused")]
    assert isinstance(bind_suite(loaded.suite, environ={}, ports={}), Ok)


@pytest.mark.parametrize(
    ("agent", "path", "code"),
    [
        ("adapter: htp, endpoint: 'http://h'", "agents[0].adapter", "PROVIDER_NOT_FOUND"),
        ("adapter: http, endpoint: h", "agents[0].endpoint", "CONFIG_VALIDATION_ERROR"),
        ("type: http, url: 'http://me:secret99@h'", "agents[0].url", "CONFIG_VALIDATION_ERROR"),
        ("adapter: python, endpoint: 'no function'", "agents[0].endpoint", "CONFIG_VALIDATION_ERROR"),
        ("adapter: python, endpoint: 'a:b', headers: {}", "agents[0].headers", "CONFIG_VALIDATION_ERROR"),
        ("adapter: http, endpoint: 'http://h', path: x", "agents[0].path", "CONFIG_VALIDATION_ERROR"),
        ("adapter: http, endpoint: 'http://h', heders: {}", "agents[0].heders", "CONFIG_VALIDATION_ERROR"),
        ("adapter: http, type: http, endpoint: 'http://h'", "agents[0].type", "CONFIG_VALIDATION_ERROR"),
        ("adapter: http, endpoint: 'http://h', request: all", "agents[0].request", "CONFIG_VALIDATION_ERROR"),
        ("adapter: http, endpoint: 'http://{{name}}'", "agents[0].endpoint", "CONFIG_VALIDATION_ERROR"),
        ("adapter: http, endpoint: 'http://h', headers: {A: '{{name}}'}", "agents[0].headers.A", "CONFIG_VALIDATION_ERROR"),
        ("adapter: http, endpoint: 'http://h', body: {a: '{{serve.x.port}}'}", "agents[0].body.a", "CONFIG_VALIDATION_ERROR"),
        ("endpoint: shop", "agents[0].endpoint", "CONFIG_VALIDATION_ERROR"),
        ("adapter: subprocess", "agents[0].command", "CONFIG_VALIDATION_ERROR"),
        ("adapter: subprocess, command: 'a \"b'", "agents[0].command", "CONFIG_VALIDATION_ERROR"),
        ("adapter: subprocess, command: a, endpoint: 'http://h'", "agents[0].endpoint", "CONFIG_VALIDATION_ERROR"),
        ("adapter: subprocess, command: a, headers: {}", "agents[0].headers", "CONFIG_VALIDATION_ERROR"),
        ("adapter: subprocess, command: a, sandbox: docker", "agents[0].sandbox", "CONFIG_VALIDATION_ERROR"),
        ("adapter: subprocess, command: a, snapshot: s", "agents[0].snapshot", "CONFIG_VALIDATION_ERROR"),
        ("adapter: subprocess, command: a, oneShot: true, responsePath: a", "agents[0].responsePath", "CONFIG_VALIDATION_ERROR"),
        ("adapter: subprocess, command: a, env: {A: '{{serve.x.port}}'}", "agents[0].env.A", "CONFIG_VALIDATION_ERROR"),
        ("adapter: http, endpoint: 'http://h', command: a", "agents[0].command", "CONFIG_VALIDATION_ERROR"),
        ("adapter: http", "agents[0].endpoint", "CONFIG_VALIDATION_ERROR"),
        ("adapter: langgraph, endpoint: 'http://h', request: query", "agents[0].request", "CONFIG_VALIDATION_ERROR"),
        ("adapter: openai-assistant, endpoint: h", "agents[0].endpoint", "CONFIG_VALIDATION_ERROR"),
        ("adapter: http, endpoint: 'http://h', timeoutMs: 5", "agents[0].timeoutMs", "CONFIG_VALIDATION_ERROR"),
        ("adapter: http, endpoint: 'http://h', responsePath: a..b", "agents[0].responsePath", "CONFIG_VALIDATION_ERROR"),
        ("adapter: http, endpoint: 'http://h', body: {x: ['{{mesage}}']}", "agents[0].body", "CONFIG_VALIDATION_ERROR"),
        ("adapter: subprocess, command: []", "agents[0].command", "CONFIG_VALIDATION_ERROR"),
        ("adapter: subprocess, command: a, env: {A=B: x}", "agents[0].env", "CONFIG_VALIDATION_ERROR"),
        ("adapter: subprocess, command: 'a {{mesage}}', oneShot: true", "agents[0].command", "CONFIG_VALIDATION_ERROR"),
        ("adapter: subprocess, command: 'a {{message}}'", "agents[0].command", "CONFIG_VALIDATION_ERROR"),
    ],
)  # fmt: skip
def test_what_is_no_agent(load: Any, minimal: str, agent: str, path: str, code: str) -> None:
    loaded = load(minimal + f"agents: [{{id: shop, {agent}}}]\n")
    assert errors(loaded) == [(path, code)]
    assert "secret99" not in repr(loaded.diagnostics)


@pytest.mark.parametrize(
    ("written", "adapter", "options"),
    [
        (
            "adapter: langgraph, endpoint: 'http://h', mode: cloud, assistantId: a, inputKey: q, graphConfig: {recursion_limit: 5, configurable: {user: '{{env.USER_ID}}'}}",
            "langgraph",
            {
                "mode": "cloud",
                "assistantId": "a",
                "inputKey": "q",
                "graphConfig": {"recursion_limit": 5, "configurable": {"user": "u7"}},
            },
        ),
        ("type: langgraph, url: 'http://h', streaming: true", "langgraph", {"streaming": True}),
        ("adapter: crewai, endpoint: 'http://h'", "crewai", {}),
        ("adapter: openai-assistant, assistantId: a", "openai-assistants", {"assistantId": "a"}),
        (
            "adapter: jsonl, endpoint: 'http://h', streaming: false",
            "tapescope",
            {"streaming": False},
        ),
        ("adapter: streaming, endpoint: 'http://h'", "streaming", {}),
    ],
)  # fmt: skip
def test_every_adapter_gets_what_is_written(
    load: Any, minimal: str, written: str, adapter: str, options: dict[str, Any]
) -> None:
    more = "timeoutMs: 9000, verbose: true, headers: {X: '{{env.USER_ID}}'}"
    loaded = load(minimal + f"agents: [{{id: shop, {written}, {more}}}]\n")
    assert errors(loaded) == []
    bound = bind_suite(loaded.suite, environ={"USER_ID": "u7"}, ports={})
    (agent,) = bound.value.agents.values()
    assert (agent.adapter, as_written(agent.options)) == (adapter, options)
    assert (agent.timeout_ms, agent.verbose, agent.headers) == (9000, True, {"X": "u7"})


@pytest.mark.parametrize(
    ("agent", "is_sent"),
    [
        ("adapter: http, endpoint: 'http://h'", False),
        ("adapter: http, endpoint: 'http://h', request: query", False),
        ("adapter: http, endpoint: 'http://h', request: messages", True),
        ("adapter: http, endpoint: 'http://h', request: messages, body: {a: '{{message}}'}", False),
        ("adapter: http, endpoint: 'http://h', body: {a: ['{{ system }}']}", True),
        ("adapter: python, endpoint: 'a:b'", True),
        ("adapter: langgraph, endpoint: 'http://h'", False),
        ("adapter: openai-assistants", False),
        ("adapter: subprocess, command: a", True),
        ("adapter: subprocess, oneShot: true, command: 'a {{message}}'", False),
        ("adapter: subprocess, oneShot: true, command: [a, '{{ system }}']", True),
    ],
)
def test_a_system_text_that_is_not_sent(load: Any, minimal: str, agent: str, is_sent: bool) -> None:
    text = minimal.replace("{user: Hi}", "{system: Be kind, user: Hi}")
    text = text.replace("prompt: ask", "prompt: ask\n    models: [shop, gpt]")
    told = warnings(load(text + f"agents: [{{id: shop, {agent}}}]\n"))
    found = [each for each in told if each != ("agents[0].adapter", "ended_upstream")]
    assert found == ([] if is_sent else [("tests[0].prompt", "unused")])


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        ("protocol: a2a", "put {{system}} into `body`"),
        ("protocol: a2a, body: {a: 1}", "into `body`"),
        ("request: query", "Use `request: messages`"),
    ],
)
def test_what_to_do_about_a_system_text(load: Any, minimal: str, more: str, hint: str) -> None:
    text = minimal.replace("{user: Hi}", "{system: Be kind, user: Hi}")
    text = text.replace("prompt: ask", "prompt: ask\n    models: [shop]")
    loaded = load(text + f"agents: [{{id: shop, adapter: http, endpoint: 'http://h', {more}}}]\n")
    [told] = [each.error for each in loaded.diagnostics if "system text" in each.error.message]
    assert hint in told.hint


@pytest.mark.parametrize("adapter", ["http", "streaming"])
def test_the_body_beside_a_protocol_is_an_object(load: Any, minimal: str, adapter: str) -> None:
    agent = f"{{id: shop, adapter: {adapter}, endpoint: 'http://h', protocol: chat, body: 'Hi'}}"
    loaded = load(minimal + f"agents: [{agent}]\n")
    assert ("agents[0].body", "CONFIG_VALIDATION_ERROR") in errors(loaded)


@pytest.mark.parametrize(
    ("agent", "takes_tools"),
    [
        ("adapter: http, endpoint: 'http://h'", False),
        ("adapter: openai-assistants", True),
        ("type: openai-assistant", True),
    ],
)
def test_tools_without_a_use(load: Any, minimal: str, agent: str, takes_tools: bool) -> None:
    test = "prompt: ask\n    models: [shop]\n    tools: [{name: look, defaultResponse: 1}]"
    agents = f"agents: [{{id: shop, {agent}}}]\n"
    found = warnings(load(minimal.replace("prompt: ask", test) + agents))
    unused = [path for path, reason in found if path.startswith("tests")]
    assert unused == ([] if takes_tools else ["tests[0].tools"])


def test_ids_are_unique_over_models_and_agents(load: Any, minimal: str) -> None:
    loaded = load(minimal + AGENT.replace("shop", "gpt"))
    assert errors(loaded) == [("agents[0].id", "CONFIG_VALIDATION_ERROR")]
    assert loaded.diagnostics[0].error.message.startswith('The agent "gpt" occurs twice')


def test_an_agent_is_no_judge(load: Any, minimal: str) -> None:
    text = minimal.replace("[hello]}", "[hello]}, judge: [{criteria: a, model: shop}]")
    assert errors(load(text + AGENT)) == [
        ("tests[0].expect.judge[0].model", "CONFIG_VALIDATION_ERROR")
    ]


def test_a_suite_of_commands_needs_nothing_else(load: Any) -> None:
    assert warnings(load(COMMAND)) == []


@pytest.mark.parametrize("key", ["providers: {}\n", "models: []\n", "prompts: {}\n"])
def test_empty_sections_that_nothing_uses_are_allowed(load: Any, key: str) -> None:
    assert warnings(load(COMMAND + key)) == []


def test_a_suite_of_agents_needs_prompts_only(load: Any, minimal: str) -> None:
    text = "".join(
        line for line in minimal.splitlines(True) if not line.startswith(("prov", "mod"))
    )
    assert warnings(load(text + AGENT)) == []


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("tests: [{name: a, prompt: p, expect: {}}]", ["prompts", "models"]),
        ("tests: [{name: a, expect: {}}]", ["tests[0].input", "models"]),
        ("models: []\nprompts: {}\ntests: [{name: a, prompt: p, expect: {}}]", ["models", "prompts"]),
        ("models: [{id: a, provider: b, model: c}]\ntests: [{name: a, command: x, expect: {}}]", ["providers"]),
        ("providers: {}\nmodels: [{id: a, provider: openai, model: c}]\ntests: [{name: a, command: x, expect: {}}]", []),
        (AGENT + "tests: [{name: a, prompt: p, expect: {}}]", ["prompts"]),
        ("tests: [{name: a, command: x, expect: {judge: [{criteria: b}]}}]", ["tests[0].expect.judge"]),
        ("tests: [{name: a, command: x, expect: {baseline: {drift: {}}}}]", ["tests[0].expect.baseline.drift"]),
        ("tests: [{name: a, command: x, expect: {baseline: {drift: {method: embedding}}}}]", []),
    ],
)  # fmt: skip
def test_what_is_used_is_required(load: Any, text: str, paths: list[str]) -> None:
    loaded = load(f"kindlm: 1\nproject: p\nsuite: {{name: s}}\n{text}\n")
    assert sorted(path for path, _ in errors(loaded)) == sorted(paths)


@pytest.mark.parametrize(
    ("extra", "path"),
    [
        ("conversation: [{user: hi}]", "tests[0].conversation"),
        ("varsFrom: none.csv", "tests[0].varsFrom"),
    ],
)  # fmt: skip
def test_what_a_command_cannot_take(load: Any, extra: str, path: str) -> None:
    assert [found for found, _ in errors(load(COMMAND + f"    {extra}\n"))] == [path]


@pytest.mark.parametrize(
    "key", ["tools: [{name: a}]", "maxTurns: 3", "strictTools: true", "models: [x]"]
)
def test_what_has_no_effect_on_a_command(load: Any, key: str) -> None:
    loaded = load(COMMAND + f"    {key}\n")
    if key.startswith("models"):
        assert errors(loaded) == []
    assert warnings(loaded) == [(f"tests[0].{key.partition(':')[0]}", "unused")]


def test_credentials_in_headers_are_known_and_recorded_nowhere(load: Any, minimal: str) -> None:
    headers = (
        '{Authorization: "Bearer abcdefgh12345", X-Api-Key: "{{env.SHOP_KEY}}", '
        'Cookie: "session=s3ss10nvalue; lang=en", Accept: application/json}'
    )
    text = minimal + AGENT.replace('chat"', f'chat", headers: {headers}')
    loaded = load(text)
    assert ("agents[0].headers", "credential") in warnings(loaded)
    secrets = literal_secrets(loaded.suite)
    assert {"Bearer abcdefgh12345", "abcdefgh12345", "s3ss10nvalue"} <= secrets
    assert not secrets & {"application/json", "{{env.SHOP_KEY}}"}
    assert given_variables(loaded.suite) == {"SHOP_KEY"}
    assert "application/json" not in loaded.suite.config_text
    for secret in ("abcdefgh12345", "s3ss10nvalue"):
        assert secret not in loaded.suite.config_text
        assert secret not in repr(loaded.diagnostics)
    assert "{{env.SHOP_KEY}}" in loaded.suite.config_text
    other = load(text.replace("abcdefgh12345", "another-credential"))
    assert other.suite.config_hash == loaded.suite.config_hash


PROGRAM = """\
agents:
  - id: prog
    adapter: subprocess
    command: python agent.py --tenant={{env.TENANT}} {{message}}
    oneShot: true
    env: {SHOP_KEY: abcdefgh12345, MODE: testing-mode, OTHER_TOKEN: "{{env.SHOP_AUTH}}"}
    cwd: agent
"""


def test_a_program_as_an_agent(load: Any, minimal: str, tmp_path: Any) -> None:
    loaded = load(minimal + PROGRAM)
    environ = {"TENANT": "a 'b", "SHOP_AUTH": "x"}
    bound = bind_suite(loaded.suite, environ=environ, ports={})
    assert isinstance(bound, Ok)
    assert bound.value.agents["prog"] == AgentTarget(
        "prog",
        "subprocess",
        "",
        options=options_of(
            "subprocess",
            {
                "command": ["python", "agent.py", "--tenant=a 'b", "{{message}}"],
                "oneShot": True,
                "env": {"SHOP_KEY": "abcdefgh12345", "MODE": "testing-mode", "OTHER_TOKEN": "x"},
                "cwd": "agent",
            },
        ),
        directory=str(tmp_path),
    )


def test_credentials_of_a_program_are_known_and_recorded_nowhere(load: Any, minimal: str) -> None:
    loaded = load(minimal + PROGRAM)
    assert ("agents[0].env", "credential") in warnings(loaded)
    assert literal_secrets(loaded.suite) == {"abcdefgh12345"}
    assert given_variables(loaded.suite) == {"SHOP_AUTH", "TENANT"}
    assert "abcdefgh12345" not in loaded.suite.config_text
    assert "testing-mode" in loaded.suite.config_text


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("SHOP_PASS", "qW9xR7kLm2Zp", "qW9xR7kLm2Zp"),
        ("SHOP_CREDENTIALS", "shop:qW9xR7kLm2Zp", "qW9xR7kLm2Zp"),
        ("SHOP_DSN", "host=db password=qW9xR7kLm2Zp", "qW9xR7kLm2Zp"),
        ("SHOP_URL", "postgres://shop:qW9xR7kLm2Zp@db/shop", "qW9xR7kLm2Zp"),
        ("SHOP_URL", "postgres://shop:{{env.PW}}@db/shop", None),
        ("SHOP_PASS", "{{env.PW}}", None),
        ("PASS", "required", None),
    ],
)
def test_what_is_secret_in_a_variable_of_a_program(
    load: Any, minimal: str, name: str, value: str, secret: str | None
) -> None:
    program = PROGRAM.replace("MODE: testing-mode", f'{name}: "{value}"')
    program = program.replace("SHOP_KEY: abcdefgh12345", "A: b")
    loaded = load(minimal + program)
    found = literal_secrets(loaded.suite)
    assert (secret in found) if secret else found == set()
    assert (("agents[0].env", "credential") in warnings(loaded)) == (secret is not None)
    assert "qW9xR7kLm2Zp" not in loaded.suite.config_text


def test_an_error_on_the_line_of_a_credential_does_not_show_it(load: Any, minimal: str) -> None:
    agent = AGENT.replace('chat"', 'chat", headers: {Authorization: Bearer abcdefgh12345}, oops: 1')
    loaded = load(minimal + agent)
    assert loaded.suite is None
    assert loaded.diagnostics[0].source_line
    assert "abcdefgh12345" not in repr(loaded.diagnostics)


SERVICE = (
    'serve: [{name: db, command: "sleep 1", env: {DB_PASSWORD: hunter2, API_TOKEN: abcdefgh12345}'
)


def test_credentials_of_a_service_are_known_and_recorded_nowhere(load: Any, minimal: str) -> None:
    loaded = load(f"{minimal}{SERVICE}}}]\n")
    assert ("serve[0].env", "credential") in warnings(loaded)
    assert literal_secrets(loaded.suite) == {"abcdefgh12345"}
    assert "abcdefgh12345" not in loaded.suite.config_text
    assert "hunter2" not in loaded.suite.config_text


def test_an_error_on_the_line_of_a_service_does_not_show_its_credential(
    load: Any, minimal: str
) -> None:
    loaded = load(f"{minimal}{SERVICE}, oops: 1}}]\n")
    assert loaded.suite is None
    assert loaded.diagnostics[0].source_line
    assert "abcdefgh12345" not in repr(loaded.diagnostics)


def test_variables_that_are_put_into_secret_parts_of_addresses_hold_credentials(
    load: Any, minimal: str
) -> None:
    endpoint = "http://us:{{env.SHOP_AUTH}}@localhost/{{env.SHOP}}?key={{env.SHOP_Q}}"
    loaded = load(minimal + AGENT.replace("http://localhost/chat", endpoint))
    assert given_variables(loaded.suite) == {"SHOP", "SHOP_AUTH", "SHOP_Q"}


def test_variables_that_an_agent_is_given_are_known_whatever_their_names(
    load: Any, minimal: str
) -> None:
    program = PROGRAM.replace("MODE: testing-mode", 'MODE: "{{env.HOW}}"')
    program = program.replace("cwd: agent", 'cwd: "{{env.FOLDER}}"')
    endpoint = "http://{{env.SHOP_HOST}}/h/{{env.SHOP}}?k={{env.SHOP_Q}}&to=http://x"
    server = '  - {id: web, adapter: http, endpoint: "URL", headers: {X-A: "a {{env.SHOP_A}}"}}\n'
    loaded = load(minimal + program + server.replace("URL", endpoint))
    given = {"TENANT", "HOW", "SHOP_AUTH", "SHOP", "SHOP_Q", "SHOP_A"}
    assert given_variables(loaded.suite) == given
    assert given_variables(load(COMMAND.replace("agent.py", "agent.py {{env.A}}")).suite) == {"A"}


@pytest.mark.parametrize(
    ("value", "secrets"),
    [
        ("Basic dXNlcjpodW50ZXIyMg==", {"dXNlcjpodW50ZXIyMg==", "user:hunter22", "hunter22"}),
        ("Bearer {{env.X}}", set()),
        ("{{env.X}}", set()),
        ("short", set()),
        ("Bearer long-enough", {"long-enough"}),
    ],
)
def test_what_is_secret_in_a_header(load: Any, minimal: str, value: str, secrets: set[str]) -> None:
    agent = AGENT.replace('chat"', f'chat", headers: {{Authorization: "{value}"}}')
    found = literal_secrets(load(minimal + agent).suite)
    assert found - {value} == secrets
    hidden = hide_in_options({"env": {"Authorization": value}})["env"]["Authorization"]
    assert hidden == ("[hidden]" if "{{" not in value else value)
    assert hide_headers({"X-Any": value})["X-Any"] == hidden


@pytest.mark.parametrize(
    ("model", "price", "hint"),
    [
        ("openai/gpt-4o", "openai/gpt-4o", 'Write "gpt-4o"'),
        ("{id: main, model: openai/gpt-4o}", "main", 'Write "gpt-4o"'),
        ("openai/gpt-4o", "gpt-4o", None),
        # The price of a model is that of its versions, too.
        ("{id: gpt-4o, model: openai/gpt-4o-2024-08-06}", "gpt-4o", None),
        ("[openai/gpt-4o, openrouter/openai/gpt-4o]", "openai/gpt-4o", None),
    ],
)
def test_a_price_by_the_id_of_a_model_is_told(
    load: Any, model: str, price: str, hint: str | None
) -> None:
    test = "{name: a, input: Hi, expect: {output: {contains: x}}}"
    key = "models" if model.startswith("[") else "model"
    prices = f"prices: {{ {price}: {{input: 1, output: 2}} }}"
    loaded = load(f"{key}: {model}\n{prices}\ntests: {test}\n")
    assert loaded.suite is not None
    assert [each.error.hint for each in loaded.diagnostics] == ([hint] if hint else [])
