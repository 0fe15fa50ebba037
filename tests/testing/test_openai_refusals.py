"""What the server refuses of Chat Completions: with status, error body and headers of the API."""

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


REFUSED = [
    ("no model", {"messages": [USER]}, "request"),
    ("no messages", {"model": "m"}, "request"),
    ("empty messages", {"model": "m", "messages": []}, "messages"),
    ("messages no list", {"model": "m", "messages": "Hi"}, "messages"),
    ("unknown role", body({"role": "robot", "content": "x"}), "messages[0].role"),
    ("orphan tool message", body(USER, ANSWER), "messages[1]"),
    (
        "answer to another call",
        body(USER, CALLED, ANSWER, {**ANSWER, "tool_call_id": "call_9"}),
        "messages[3]",
    ),
    ("tool call at the end", body(USER, CALLED), "messages[1]"),
    ("tool call unanswered", body(USER, CALLED, USER), "messages[1]"),
    (
        "one of two unanswered",
        body(USER, {**CALLED, "tool_calls": [CALL, OTHER_CALL]}, ANSWER, USER),
        "messages[1]",
    ),
    ("late answer", body(USER, CALLED, USER, ANSWER), "messages[1]"),
    (
        "arguments as an object",
        body(
            USER,
            {**CALLED, "tool_calls": [{**CALL, "function": {"name": "look", "arguments": {}}}]},
            ANSWER,
        ),
        "messages[1].tool_calls[0].function.arguments",
    ),
    ("no room", body(max_tokens=0), "max_tokens"),
    ("tools no list", body(tools="look"), "tools"),
    ("tool without a name", body(tools=[{"type": "function"}]), "tools[0]"),
    ("choice", body(tool_choice="sometimes"), "tool_choice"),
    ("format", body(response_format={"type": "yaml"}), "response_format.type"),
    ("schema missing", body(response_format={"type": "json_schema"}), "response_format"),
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
