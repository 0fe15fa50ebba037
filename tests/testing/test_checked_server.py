"""The rules of the real APIs that tests hold kindlm's requests against."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from checked_server import faults_of

from kindlm.testing.loopback import LoggedRequest

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
USER = {"role": "user", "content": "Hi"}
OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "{}"}
USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
OTHER_USE = {**USE, "id": "t2"}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "{}"}
TEXT = {"type": "text", "text": "So?"}
TOOL = {"name": "look", "input_schema": {"type": "object"}}
OLDER = "2023-06-01"


def chat(*messages: Any, **changes: Any) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": list(messages) or [USER], **changes}


def message(*messages: Any, **changes: Any) -> dict[str, Any]:
    return {"model": "claude-x", "max_tokens": 9, "messages": list(messages) or [USER], **changes}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def tool(name: str, parameters: Any = None) -> dict[str, Any]:
    function = {"name": name} | ({} if parameters is None else {"parameters": parameters})
    return {"type": "function", "function": function}


def schema(**wanted: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": wanted}


def faults(path: str, body: Any, version: str = "2026-10-21") -> list[str]:
    raw, headers = json.dumps(body).encode(), {"anthropic-version": version}
    now = datetime.now(UTC)
    request = LoggedRequest(1, now, "POST", path, "m", "accepted", headers, raw, 200, "agent")
    return faults_of(request, by_types=True)


STRICT = {**OBJECT, "additionalProperties": False, "required": ["a"]}


@pytest.mark.parametrize(
    "body",
    [
        chat(USER, CALLED, ANSWER),
        chat({"role": "developer", "content": "Be kind."}, user(TEXT)),
        chat(tools=[tool("look", OBJECT)], tool_choice="required", stream=True),
        chat(temperature=2, top_p=0, seed=1, stop="x", max_tokens=1),
        chat(response_format=schema(name="s", strict=True, schema=STRICT)),
    ],
)
def test_chat_completions_takes_it(body):
    assert faults(CHAT, body) == []


@pytest.mark.parametrize(
    "body",
    [
        chat(maxTokens=5),
        chat({"role": "user", "content": None}),
        chat(USER, {**CALLED, "tool_calls": []}),
        chat(max_tokens=5, max_completion_tokens=5),
        chat(temperature=2.1),
        chat(stop=list("abcde")),
        chat(stream_options={"include_usage": True}),
        chat(tools=[]),
        chat(tools=[tool("look up")]),
        chat(tools=[tool("look", {"type": "string"})]),
        chat(tools=[tool("look")], tool_choice={"type": "function", "function": {"name": "leap"}}),
        chat(response_format={"type": "json_object"}),
        chat(response_format=schema(name="s", schema={"type": "array"})),
        chat(response_format=schema(name="s", strict=True, schema=OBJECT)),
        chat(
            response_format=schema(
                name="s", strict=True, schema={**OBJECT, "additionalProperties": False}
            )
        ),
    ],
)
def test_chat_completions_refuses_it(body):
    assert faults(CHAT, body)


@pytest.mark.parametrize(
    "body",
    [
        message(USER, assistant(TEXT, USE), user(RESULT, TEXT)),
        message(USER, USER),
        message(USER, {"role": "assistant", "content": "You"}),
        message(USER, {"role": "assistant", "content": ""}),
        message(system=[{"type": "text", "text": "Be kind."}], stop_sequences=["x"]),
        message(tools=[TOOL], tool_choice={"type": "any"}),
    ],
)
def test_messages_takes_it(body):
    assert faults(MESSAGES, body) == []


@pytest.mark.parametrize(
    "body",
    [
        message(temperature=1),
        message(assistant(TEXT), USER),
        message({"role": "user", "content": ""}),
        message(user({"type": "text", "text": ""})),
        message(USER, assistant(RESULT), USER),
        message(USER, assistant(USE), user(TEXT, RESULT)),
        message(USER, assistant(USE, USE), user(RESULT)),
        message(USER, assistant({**USE, "input": "{}"}), user(RESULT)),
        message(USER, {"role": "assistant", "content": "{ "}),
        message(system=5),
        message(tools=[{**TOOL, "input_schema": {"type": "array"}}]),
        message(tools=[TOOL, TOOL]),
        message(tools=[TOOL], tool_choice={"type": "tool", "name": "leap"}),
    ],
)
def test_messages_refuses_it(body):
    assert faults(MESSAGES, body)


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 1.5},
        {"top_p": -1},
        {"temperature": "1"},
        {"model": "claude-sonnet-4-5", "temperature": 1, "top_p": 1},
    ],
)
def test_the_older_version_of_messages_takes_sampling_within_bounds(changes):
    assert faults(MESSAGES, message(temperature=0.5), OLDER) == []
    assert faults(MESSAGES, message(**changes), OLDER)


def test_an_unknown_version_of_messages_is_refused():
    assert faults(MESSAGES, message(), "2020-01-01")
