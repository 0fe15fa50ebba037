"""Calls of MCP servers, and their tools for models: what may be written, and what becomes of it."""

# ruff: noqa: E501 - one row of a table is one line

from __future__ import annotations

import json
from typing import Any

import pytest

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
        ("{server: shop,", "{server: shpo,", "tests[1].tools[0].mcp.server", "is not an MCP server"),
        ("{server: shop,", "{name: shop,", "tests[1].tools[0].mcp.name", "Unknown key"),
        ("    vars: {order", "    prompt: ask\n    vars: {order", "tests[0].prompt", "cannot be combined"),
        ("[{call: {tool: stop}}]", "[{user: Hi}]", "tests[0].conversation[0].user", "one of calls"),
        ("[{call: {tool: stop}}]", "[{}]", "tests[0].conversation[0].call", '"call" is missing'),
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


def test_without_a_server_there_is_nothing_to_call(load: Any) -> None:
    text = (
        SUITE[: SUITE.index("agents:")]
        + SUITE[SUITE.index("prompts:") : SUITE.index("  - name: given")]
    )
    found = [item.error.message for item in load(text).diagnostics]
    assert "There is no MCP server to call" in found
