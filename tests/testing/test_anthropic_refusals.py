"""What the Messages API refuses, the server refuses: status, error body and headers."""

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
    ("no model", without("model"), "model: Field required"),
    ("no limit", without("max_tokens"), "max_tokens: Field required"),
    ("no messages", without("messages"), "messages: Field required"),
    ("no message", {**body(), "messages": []}, "messages: List should have at least 1 item"),
    ("extra", body(maxTokens=1), "maxTokens: Extra inputs are not permitted"),
    ("no room", body(max_tokens=-1), "greater than or equal to 0"),
    ("system role", body({"role": "system", "content": "Be kind."}, USER), "messages.0.role"),
    ("tool role", body(USER, {"role": "tool", "content": "{}"}), "messages.1.role"),
    ("assistant first", body(assistant(TEXT), USER), 'first message must use the "user" role'),
    ("empty content", body({"role": "user", "content": ""}), "non-empty content"),
    ("empty blocks", body(user()), "non-empty content"),
    ("empty text", body(user({"type": "text", "text": ""})), "non-whitespace text"),
    ("blank text", body({"role": "user", "content": " \n"}), "non-whitespace text"),
    ("unknown block", body(user({"type": "note"})), "`note` blocks cannot be"),
    ("use by user", body(user(USE)), "`tool_use` blocks cannot be in `user`"),
    ("result by assistant", body(USER, assistant(RESULT), USER), "cannot be in `assistant`"),
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
    ("text before the result", body(USER, assistant(USE), user(TEXT, RESULT)), "toolu_1"),
    ("orphan", body(USER, assistant(TEXT), user(RESULT)), "unexpected `tool_use_id`"),
    ("answered twice", body(USER, assistant(USE), user(RESULT, RESULT)), "a single result"),
    ("same id twice", body(USER, assistant(USE, USE), user(RESULT)), "ids must be unique"),
    ("odd id", body(USER, assistant({**USE, "id": "a b"}), user(RESULT)), "should match pattern"),
    ("input as text", body(USER, assistant({**USE, "input": "{}"}), user(RESULT)), "dictionary"),
    ("prefill with a space", body(USER, {"role": "assistant", "content": "{ "}), "whitespace"),
    ("sampling", body(temperature=1), "temperature: Extra inputs are not permitted"),
    ("blank stop", body(stop_sequences=[" "]), "stop_sequences.0"),
    ("system as a number", body(system=5), "system.str: Input should be a valid string"),
    ("empty system block", body(system=[{"type": "text", "text": ""}]), "text content"),
    ("tool name", body(tools=[{**TOOL, "name": "look up"}]), "tools.0.name"),
    ("tool without schema", body(tools=[{"name": "look"}]), "input_schema: Field required"),
    ("schema no object", body(tools=[{**TOOL, "input_schema": {"type": "array"}}]), "'object'"),
    ("tools twice", body(tools=[TOOL, TOOL]), "names must be unique"),
    ("choice without tools", body(tool_choice={"type": "auto"}), "while providing tools"),
    (
        "choice of another tool",
        body(tools=[TOOL], tool_choice={"type": "tool", "name": "leap"}),
        "'leap' not found",
    ),
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


ACCEPTED = [
    body(USER, assistant(TEXT, USE), user(RESULT, TEXT)),
    body(USER, assistant(USE, OTHER_USE), user(OTHER_RESULT, RESULT)),
    body(USER, USER),
    body(USER, {"role": "assistant", "content": "You"}),
    body(USER, {"role": "assistant", "content": ""}),
    body(system=[{"type": "text", "text": "Be kind."}], stop_sequences=["x"]),
    body(tools=[TOOL], tool_choice={"type": "any"}),
]


@pytest.mark.parametrize("sent", ACCEPTED)
def test_a_right_request_is_answered(anthropic_echo, sent):
    assert anthropic_echo.post(sent)["type"] == "message"


OLDER = "2023-06-01"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 1.5}, "temperature: Input should be less than or equal to 1"),
        ({"top_p": -1}, "top_p: Input should be greater than or equal to 0"),
        ({"temperature": "1"}, "valid number"),
        ({"model": "claude-sonnet-4-5", "temperature": 1, "top_p": 1}, "only one"),
    ],
)
def test_the_older_version_takes_sampling_within_bounds(anthropic_echo, changes, message):
    refused = anthropic_echo.post(body(**changes), version=OLDER)
    assert message in refused.body["error"]["message"]
    accepted = anthropic_echo.post(body(temperature=0.5), version=OLDER)
    assert accepted["content"][0]["text"] == "You said: Hi"


def test_an_unknown_version_is_refused(anthropic_echo):
    refused = anthropic_echo.post(body(), version="2020-01-01")
    assert "not a valid version" in refused.body["error"]["message"]


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
