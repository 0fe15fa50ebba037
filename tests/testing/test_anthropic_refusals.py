"""What the server refuses of Messages: with status, error body and headers of the API."""

from __future__ import annotations

from typing import Any

import pytest

USER = {"role": "user", "content": "Hi"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
OTHER_USE = {**USE, "id": "toolu_2"}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "{}"}
OTHER_RESULT = {**RESULT, "tool_use_id": "toolu_2"}
TEXT = {"type": "text", "text": "So?"}
TOOL = {"name": "look", "input_schema": {"type": "object"}}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def body(*messages: Any, **changes: Any) -> dict[str, Any]:
    return {"model": "claude-x", "max_tokens": 9, "messages": list(messages) or [USER], **changes}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in body().items() if key != name}


REFUSED = [
    ("no model", without("model"), "'model' is missing"),
    ("no limit", without("max_tokens"), "'max_tokens' is missing"),
    ("no messages", without("messages"), "'messages' is missing"),
    ("no message", {**body(), "messages": []}, "messages: expected at least one message"),
    ("no room", body(max_tokens=-1), "max_tokens: expected a number from 0"),
    ("system role", body({"role": "system", "content": "Be kind."}, USER), "messages[0].role"),
    ("system as a number", body(system=5), "system: expected a list, got a number"),
    ("no content", body({"role": "user", "content": None}), "messages[0].content"),
    ("unanswered", body(USER, assistant(USE), USER), "toolu_1"),
    ("unanswered at the end", body(USER, assistant(USE)), "without `tool_result` blocks"),
    (
        "one of two unanswered",
        body(USER, assistant(USE, OTHER_USE), user(RESULT)),
        "immediately after: toolu_2",
    ),
    (
        "results in two messages",
        body(USER, assistant(USE, OTHER_USE), user(RESULT), user(OTHER_RESULT)),
        "immediately after: toolu_2",
    ),
    ("orphan", body(USER, assistant(TEXT), user(RESULT)), "unexpected `tool_use_id`"),
    ("answered twice", body(USER, assistant(USE), user(RESULT, RESULT)), "a second result"),
    ("tool without a name", body(tools=[{}]), "tools[0]: 'name' is missing"),
    ("choice", body(tools=[TOOL], tool_choice={"type": "some"}), "tool_choice.type"),
]


@pytest.mark.parametrize(
    ("sent", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_a_wrong_request_is_refused_with_the_reason(anthropic_echo, sent, message):
    refused = anthropic_echo.post(sent)
    assert refused.status == 400
    assert refused.body["type"] == "error"
    assert refused.body["error"]["type"] == "invalid_request_error"
    assert message in refused.body["error"]["message"]
    assert refused.body["request_id"] == refused.headers["request-id"]


OLDER = "2023-06-01"


def test_no_room_means_that_nothing_is_generated(anthropic_echo):
    message = anthropic_echo.post(body(max_tokens=0))
    assert (message["content"], message["stop_reason"]) == ([], "max_tokens")


def test_reasoning_models_refuse_sampling_and_prefill(serve, anthropic_agent):
    script = {
        "models": [{"name": "claude-x", "reasoning": True}],
        "rules": [{"reply": {"text": "Yes."}}],
    }
    agent = anthropic_agent(serve(script).url)
    refused = agent.post(body(temperature=0), version=OLDER)
    assert "deprecated" in refused.body["error"]["message"]
    assert agent.post(body(temperature=1), version=OLDER)["type"] == "message"
    prefilled = body(USER, {"role": "assistant", "content": "Y"})
    assert "prefill" in agent.post(prefilled).body["error"]["message"]
    unknown = agent.post(body(model="claude-y"))
    assert (unknown.status, unknown.body["error"]["type"]) == (404, "not_found_error")


def test_only_listed_keys_are_accepted(serve, anthropic_agent, key):
    server = serve({"keys": [key], "rules": [{"reply": {"text": "Yes."}}]})
    refused = anthropic_agent(server.url, "example-wrong-key").post(body())
    assert (refused.status, refused.body["error"]["type"]) == (401, "authentication_error")
    assert anthropic_agent(server.url, key).post(body())["type"] == "message"
