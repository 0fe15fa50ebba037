"""Retry-After, refusals and strict schemas: small rules with many cases."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from kindlm.providers.client import refused_parameters
from kindlm.providers.openai_provider import allows_strict
from kindlm.providers.provider_failures import Endpoint, HttpAnswer
from kindlm.unreachable import retry_after

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": " 0.25 "}, 0.25),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:45 GMT"}, 45.0),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:45 -0000"}, 45.0),
        ({"retry-after": "30", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "30", "retry-after-ms": "soon"}, 30.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:45 +99999999999999"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_when_to_come_back(headers, seconds):
    assert retry_after(headers, NOW) == seconds


SENT = ("model", "messages", "temperature", "top_p", "max_tokens", "response_format", "tool_choice")


@pytest.mark.parametrize(
    ("status", "body", "names"),
    [
        (400, {"error": {"message": "no", "param": "temperature"}}, {"temperature"}),
        (400, {"error": {"param": "response_format.json_schema"}}, {"response_format"}),
        (400, {"error": {"message": "bad", "param": "messages[0].content"}}, {"messages"}),
        (400, {"error": {"message": "bad", "param": "stop"}}, set()),
        (
            400,
            {"error": {"message": "Unsupported parameter: 'max_tokens' is not supported."}},
            {"max_tokens"},
        ),
        (
            400,
            {"error": {"message": "`temperature` and `top_p` cannot both be specified."}},
            {"temperature", "top_p"},
        ),
        (
            400,
            {"error": {"message": "temperature: Extra inputs are not permitted"}},
            {"temperature"},
        ),
        (
            400,
            {"error": {"message": "`temperature` may only be set to 1 when thinking is enabled."}},
            {"temperature"},
        ),
        (
            400,
            {"error": {"message": "Thinking may not be enabled when tool_choice forces tool use."}},
            {"tool_choice"},
        ),
        (
            422,
            {"detail": [{"loc": ["body", "top_p"], "msg": "Extra inputs are not permitted"}]},
            {"top_p"},
        ),
        (
            400,
            {"error": {"message": "'response_format.type' must be text or json_object"}},
            {"response_format"},
        ),
        (
            400,
            {"object": "error", "message": "response_format Input should be json_object"},
            {"response_format"},
        ),
        (422, {"error": {"message": "Unsupported: json_schema"}}, {"response_format"}),
        (400, {"error": {"message": "response_format is bad", "param": "messages"}}, {"messages"}),
        (400, {"error": {"message": "the temperature is 0.2"}}, set()),
        (400, {"error": {"message": "unsupported: my_temperature"}}, set()),
        (500, {"error": {"message": "no", "param": "temperature"}}, set()),
        (429, {"error": {"message": "temperature is not supported"}}, set()),
    ],
)
def test_which_parameter_is_refused(status, body, names):
    assert refused_parameters(status, json.dumps(body), SENT) == names


def test_a_limit_that_is_too_large_is_no_refused_parameter():
    message = "max_tokens is too large: 43000. This model supports at most 16384 completion tokens."
    body = {"error": {"message": message, "param": "max_tokens", "code": "invalid_value"}}
    assert refused_parameters(400, json.dumps(body), SENT) == frozenset()


def test_a_refusal_may_be_plain_text():
    assert refused_parameters(400, "unknown field top_p", SENT) == {"top_p"}


CLOSED = {"type": "object", "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "allowed"),
    [
        ({**CLOSED, "properties": {"a": {"type": "string"}}, "required": ["a"]}, True),
        ({**CLOSED}, True),
        ({"type": "object", "properties": {}}, False),
        ({**CLOSED, "properties": {"a": {"type": "string"}}}, False),
        ({"type": "array", "items": {"type": "string"}}, False),
        ({}, False),
    ],
)
def test_which_schemas_are_strict(schema, allowed):
    assert allows_strict(schema) is allowed


@pytest.mark.parametrize(
    ("seconds", "said"), [("1", "1 second"), ("2", "2 seconds"), ("0.5", "0.5 seconds")]
)
def test_the_time_to_wait_is_in_the_message(seconds: str, said: str) -> None:
    answer = HttpAnswer(429, {"retry-after": seconds}, "{}")
    error = Endpoint("openai", "https://x").refused(answer)
    assert error.message.endswith(f"rate limit hit. Retry after {said}")
