"""What Chat Completions refuses, the server refuses: status, error body and headers."""

from __future__ import annotations

from typing import Any

import pytest

USER = {"role": "user", "content": "Hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
OTHER_CALL = {**CALL, "id": "call_2"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "tool", "tool_call_id": "call_1", "content": "{}"}


def body(*messages: Any, **changes: Any) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": list(messages) or [USER], **changes}


def tool(name: Any, parameters: Any = None) -> dict[str, Any]:
    function = {"name": name} | ({} if parameters is None else {"parameters": parameters})
    return {"type": "function", "function": function}


def json_schema(**wanted: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": wanted}


OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}}

REFUSED = [
    ("no model", {"messages": [USER]}, "model"),
    ("no messages", {"model": "m"}, "messages"),
    ("empty messages", {"model": "m", "messages": []}, "messages"),
    ("messages no list", {"model": "m", "messages": "Hi"}, "messages"),
    ("unknown parameter", body(maxTokens=5), "maxTokens"),
    ("unknown role", body({"role": "robot", "content": "x"}), "messages[0].role"),
    ("null content", body({"role": "user", "content": None}), "messages[0]"),
    ("orphan tool message", body(USER, ANSWER), "messages.[1].role"),
    (
        "answer to another call",
        body(USER, CALLED, ANSWER, {**ANSWER, "tool_call_id": "call_9"}),
        "messages.[3].role",
    ),
    ("tool call at the end", body(USER, CALLED), "messages.[1].role"),
    ("tool call unanswered", body(USER, CALLED, USER), "messages.[1].role"),
    (
        "one of two unanswered",
        body(USER, {**CALLED, "tool_calls": [CALL, OTHER_CALL]}, ANSWER, USER),
        "messages.[1].role",
    ),
    ("late answer", body(USER, CALLED, USER, ANSWER), "messages.[1].role"),
    (
        "arguments as an object",
        body(
            USER,
            {**CALLED, "tool_calls": [{**CALL, "function": {"name": "look", "arguments": {}}}]},
            ANSWER,
        ),
        "messages[1].tool_calls[0].function.arguments",
    ),
    (
        "no tool calls in the list",
        body(USER, {**CALLED, "tool_calls": []}),
        "messages[1].tool_calls",
    ),
    ("both limits", body(max_tokens=5, max_completion_tokens=5), "max_tokens"),
    ("no room", body(max_tokens=0), "max_tokens"),
    ("hot", body(temperature=2.1), "temperature"),
    ("cold", body(temperature=-1), "temperature"),
    ("temperature as text", body(temperature="1"), "temperature"),
    ("top_p", body(top_p=1.5), "top_p"),
    ("seed", body(seed=1.5), "seed"),
    ("five stops", body(stop=list("abcde")), "stop"),
    ("stream options", body(stream_options={"include_usage": True}), "stream_options"),
    ("no tools in the list", body(tools=[]), "tools"),
    ("tool name", body(tools=[tool("look up")]), "tools[0].function.name"),
    ("long tool name", body(tools=[tool("x" * 65)]), "tools[0].function.name"),
    ("parameters no object", body(tools=[tool("look", {"type": "string"})]), "tools[0].function"),
    (
        "parameters without properties",
        body(tools=[tool("look", {"type": "object"})]),
        "tools[0].function",
    ),
    ("choice without tools", body(tool_choice="auto"), "tool_choice"),
    (
        "choice of another tool",
        body(tools=[tool("look")], tool_choice={"type": "function", "function": {"name": "leap"}}),
        "tool_choice",
    ),
    ("format", body(response_format={"type": "yaml"}), "response_format.type"),
    ("JSON unasked", body(response_format={"type": "json_object"}), "messages"),
    (
        "schema without name",
        body(response_format=json_schema(schema=OBJECT)),
        "response_format.json_schema.name",
    ),
    ("schema missing", body(response_format={"type": "json_schema"}), "response_format"),
    (
        "schema no object",
        body(response_format=json_schema(name="s", schema={"type": "array"})),
        "response_format.json_schema",
    ),
    (
        "strict and open",
        body(response_format=json_schema(name="s", strict=True, schema=OBJECT)),
        "response_format.json_schema",
    ),
    (
        "strict and optional",
        body(
            response_format=json_schema(
                name="s", strict=True, schema={**OBJECT, "additionalProperties": False}
            )
        ),
        "response_format.json_schema",
    ),
]


@pytest.mark.parametrize(
    ("sent", "param"),
    [case[1:] for case in REFUSED],
    ids=[case[0] for case in REFUSED],
)
def test_a_wrong_request_is_refused_with_its_place(openai_echo, sent, param):
    refused = openai_echo.post(sent)
    assert refused.status == 400
    error = refused.body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["message"]
    assert refused.headers["x-request-id"].startswith("req_")


ACCEPTED = [
    body(USER, CALLED, ANSWER),
    body(
        USER,
        {**CALLED, "tool_calls": [CALL, OTHER_CALL]},
        ANSWER,
        {**ANSWER, "tool_call_id": "call_2"},
    ),
    body({"role": "developer", "content": "Be kind."}, USER),
    body({"role": "user", "content": [{"type": "text", "text": "Hi"}]}),
    body(tools=[tool("look")], tool_choice="required"),
    body(temperature=2, top_p=0, seed=1, stop="x", max_tokens=1),
    body(response_format=json_schema(name="s", schema=OBJECT)),
]


@pytest.mark.parametrize("sent", ACCEPTED)
def test_a_right_request_is_answered(openai_echo, sent):
    assert openai_echo.post(sent)["object"] == "chat.completion"


REASONING = {
    "models": [{"name": "o3", "reasoning": True, "reportedAs": "o3-2025-04-16"}, "gpt-4o"],
    "rules": [{"reply": {"text": "Yes."}}],
}


@pytest.mark.parametrize(
    ("changes", "param", "code"),
    [
        ({"max_tokens": 10}, "max_tokens", "unsupported_parameter"),
        ({"temperature": 0}, "temperature", "unsupported_value"),
        ({"top_p": 0.5}, "top_p", "unsupported_parameter"),
        ({"stop": "x"}, "stop", "unsupported_parameter"),
    ],
)
def test_a_reasoning_model_refuses_sampling(serve, openai_agent, changes, param, code):
    agent = openai_agent(serve(REASONING).url)
    error = agent.post(body(model="o3", **changes)).body["error"]
    assert (error["param"], error["code"]) == (param, code)
    accepted = agent.post(body(model="o3", max_completion_tokens=10, temperature=1))
    assert accepted["model"] == "o3-2025-04-16"


def test_a_model_that_is_not_listed_does_not_exist(serve, openai_agent):
    refused = openai_agent(serve(REASONING).url).post(body(model="gpt-9"))
    assert (refused.status, refused.body["error"]["code"]) == (404, "model_not_found")


def test_only_listed_keys_are_accepted(serve, openai_agent, key):
    server = serve({"keys": key, "rules": [{"reply": {"text": "Yes."}}]})
    refused = openai_agent(server.url, "example-wrong-key").post(body())
    assert (refused.status, refused.body["error"]["code"]) == (401, "invalid_api_key")
    assert "wrong-key" not in refused.body["error"]["message"]
    assert openai_agent(server.url, key).post(body())["object"] == "chat.completion"
    assert [entry.key for entry in server.requests] == ["refused", "accepted"]


def test_a_body_that_is_no_json_is_refused(openai_echo):
    refused = openai_echo.post(["no object"])
    assert (refused.status, refused.body["error"]["type"]) == (400, "invalid_request_error")
