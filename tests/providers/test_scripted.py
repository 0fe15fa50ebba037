"""The scripted provider: replies by their place in the conversation."""

from __future__ import annotations

import asyncio

import pytest

from kindlm.errors import Err, ErrorCode, Ok
from kindlm.ports import ResponseSchema
from kindlm.providers.provider_registry import make_client
from kindlm.providers.scripted_provider import Scripted
from kindlm.suite import ProviderSettings
from kindlm.transcript import FinishReason, Message, Role, ToolCall

USER = Message(Role.USER, "where is {{message}}?")
REPLIES = (
    {"text": "hello {{message}}"},
    {"toolCalls": [{"name": "find", "arguments": {"q": "{{ message }}", "n": 1}}, {"name": "go"}]},
    {"text": "{{other}}", "delayMs": 1},
)


def ask(request, *replies):
    made = make_client(
        ProviderSettings(
            "fake", "scripted", options=Scripted.model_validate({"replies": [*replies]})
        ),
        environ={},
    )
    assert isinstance(made, Ok)
    return asyncio.run(made.value.complete(request))


def said(request, *replies):
    result = ask(request, *replies)
    assert isinstance(result, Ok)
    return result.value


def after(turns: int) -> tuple[Message, ...]:
    return (USER, *(Message(Role.ASSISTANT, "…") for _ in range(turns)))


def test_the_nth_call_gets_the_nth_reply_and_the_last_one_stays(make_request):
    texts = [said(make_request(*after(n)), *REPLIES).text for n in (0, 1, 2, 3, 9)]
    assert texts == ["hello where is {{message}}?", "", "{{other}}", "{{other}}", "{{other}}"]


def test_a_prefill_is_no_turn(make_request):
    prefilled = make_request(USER, Message(Role.ASSISTANT, "{", prefill=True))
    assert said(prefilled, *REPLIES).text.startswith("hello")


def test_tool_calls_have_ids_that_are_always_the_same(make_request):
    reply = said(make_request(*after(1)), *REPLIES)
    assert reply.tool_calls == (
        ToolCall("call_1_0", "find", {"q": "where is {{message}}?", "n": 1}),
        ToolCall("call_1_1", "go", {}),
    )
    assert reply.finish_reason is FinishReason.TOOL_CALLS


def test_the_same_request_has_the_same_reply(make_request):
    first, second = (said(make_request(*after(2)), *REPLIES) for _ in range(2))
    assert (first.text, first.raw, first.usage) == (second.text, second.raw, second.usage)
    assert first.usage.input_tokens
    assert first.usage.output_tokens


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ("rate_limit", ErrorCode.PROVIDER_RATE_LIMIT, True),
        ("timeout", ErrorCode.PROVIDER_TIMEOUT, True),
        ("auth", ErrorCode.PROVIDER_AUTH_ERROR, False),
        ("api", ErrorCode.PROVIDER_API_ERROR, False),
        ("network", ErrorCode.PROVIDER_NETWORK_ERROR, True),
    ],
)
def test_errors_are_played(make_request, error, code, retryable):
    result = ask(make_request(), {"error": error, "retryAfter": 1})
    assert isinstance(result, Err)
    assert result.error.code is code
    assert result.error.details["retryable"] is retryable
    assert result.error.details["retry_after"] == 1


def test_a_reply_that_is_later_than_the_timeout_is_a_timeout(make_request):
    result = ask(make_request(timeout_s=0.01), {"text": "late", "delayMs": 60_000})
    assert isinstance(result, Err)
    assert result.error.code is ErrorCode.PROVIDER_TIMEOUT


def test_structured_output_is_the_text_as_it_is(make_request):
    request = make_request(USER, response_schema=ResponseSchema("verdict", {"type": "object"}))
    assert said(request, {"text": '{"score": 1}'}).text == '{"score": 1}'
