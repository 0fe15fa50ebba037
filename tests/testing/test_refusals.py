"""What the server refuses: with status, error body and headers of the API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kindlm.testing.http1 import HttpRequest

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
USER = {"role": "user", "content": "Hi"}
YES = [{"reply": {"text": "Yes."}}]


def chat_call(identity: str, arguments: Any = "{}") -> dict[str, Any]:
    function = {"name": "look", "arguments": arguments}
    return {"id": identity, "type": "function", "function": function}


def called(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "{}"}


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"model": None}, "request"),
        ({"messages": None}, "request"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [USER, ANSWER]}, "messages[1]"),
        (
            {"messages": [USER, called(chat_call("c1")), ANSWER, {**ANSWER, "tool_call_id": "x"}]},
            "messages[3]",
        ),
        ({"messages": [USER, called(chat_call("c1"))]}, "messages[1]"),
        ({"messages": [USER, called(chat_call("c1"), chat_call("c2")), ANSWER]}, "messages[1]"),
        ({"messages": [USER, called(chat_call("c1")), USER, ANSWER]}, "messages[1]"),
        (
            {"messages": [USER, called(chat_call("c1", {})), ANSWER]},
            "messages[1].tool_calls[0].function.arguments",
        ),
        ({"max_tokens": 0}, "max_tokens"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
    ],
)
def test_a_wrong_chat_completion_is_refused_with_its_place(echo, changes, param):
    error = echo.refused(CHAT, **changes)
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


FUNCTION_CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "{}"}


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"model": None}, "request"),
        ({"input": None}, "request"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [USER, OUTPUT]}, "input[1]"),
        ({"input": [USER, FUNCTION_CALL]}, "input[1]"),
        ({"input": [USER, {**FUNCTION_CALL, "arguments": {}}, OUTPUT]}, "input[1].arguments"),
        ({"input": [{"type": "item_reference", "id": "fc_9"}]}, "input[0]"),
        ({"previous_response_id": "resp_9"}, "previous_response_id"),
        ({"max_output_tokens": 15}, "max_output_tokens"),
        ({"max_tokens": 20}, "max_tokens"),
        ({"tools": [{"type": "function", "function": {"name": "look"}}]}, "tools[0]"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format"),
    ],
)
def test_a_wrong_response_is_refused_with_its_place(echo, changes, param):
    assert echo.refused(RESPONSES, **changes)["param"] == param


def use(identity: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": identity, "name": "look", "input": {}}


def result(identity: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": identity, "content": "{}"}


def talk(*parts: Any) -> dict[str, Any]:
    """Messages after the first one, which the assistant and the user send in turn."""
    roles = ("assistant", "user")
    said = [{"role": roles[at % 2], "content": part} for at, part in enumerate(parts)]
    return {"messages": [USER, *said]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_tokens": None}, "'max_tokens' is missing"),
        ({"messages": []}, "messages: expected at least one message"),
        ({"max_tokens": -1}, "max_tokens: expected a number from 0"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
        ({"system": 5}, "system: expected a list, got a number"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        (talk([use("t1")], "So?"), "t1"),
        (talk([use("t1")]), "without a result right after"),
        (talk([use("t1"), use("t2")], [result("t1")]), "right after them: t2"),
        (talk([{"type": "text", "text": "So?"}], [result("t1")]), "no call with the id"),
        (talk([use("t1")], [result("t1"), result("t1")]), "no call with the id 't1' waits"),
        ({"tools": [{}]}, "tools[0]: 'name' is missing"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
    ],
)
def test_a_wrong_message_is_refused_with_the_reason(echo, changes, message):
    error = echo.refused(MESSAGES, **changes)
    assert error["type"] == "invalid_request_error"
    assert message in error["message"]


@pytest.mark.parametrize(
    ("path", "changes", "said"),
    [
        (CHAT, {"max_tokens": 10}, "'max_tokens' is not supported"),
        (CHAT, {"temperature": 0}, "'temperature' does not support 0"),
        (RESPONSES, {"top_p": 0.5}, "'top_p' is not supported"),
        (MESSAGES, {"temperature": 0}, "deprecated"),
        (MESSAGES, talk("Y"), "prefill"),
    ],
)
def test_a_reasoning_model_refuses_sampling_and_prefill(asked, path, changes, said):
    app = asked({"models": [{"name": "m", "reasoning": True}], "rules": YES})
    assert said in app.refused(path, **changes)["message"]
    assert app.post(path).status == 200
    assert app.post(path, model="unknown").status == 404


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_only_listed_keys_are_accepted_and_none_is_shown(asked, path, key):
    app = asked({"keys": ["another-key-0123456"], "rules": YES})
    answer = app.post(path)
    assert answer.status == 401
    assert key.encode() not in answer.body
    assert app.app.requests[0].key == "refused"
    assert asked({"keys": [key], "rules": YES}).post(path).status == 200
    assert app.app.handle(HttpRequest("POST", path, {}, b"{}")).status == 401


def test_other_methods_and_bodies_are_refused(echo, key):
    headers = {"authorization": f"Bearer {key}"}
    assert echo.app.handle(HttpRequest("GET", CHAT, headers, b"")).status == 405
    assert echo.app.handle(HttpRequest("POST", CHAT, headers, b"[]")).status == 400
    assert json.loads(echo.app.handle(HttpRequest("GET", "/v2", {}, b"")).body)["error"]
