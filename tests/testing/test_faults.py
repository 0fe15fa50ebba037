"""Each fault, as the SDKs meet it."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import quote, unquote

import anthropic
import httpx
import openai
import pytest

from kindlm.providers.quota import quotas
from kindlm.testing import ScriptError

HI = [{"role": "user", "content": "Hi"}]
CONNECTION_ERRORS = (openai.APIConnectionError, anthropic.APIConnectionError)
STATUS_ERRORS = (openai.APIStatusError, anthropic.APIStatusError)


def body(speak):
    return {"model": speak.model, "messages": HI} | (
        {"max_tokens": 100} if speak.wire == "anthropic" else {}
    )


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "api_error"),
        (529, "overloaded_error"),
        (401, "authentication_error"),
    ],
)
def test_statuses_have_the_shape_of_their_api(echo, speak, status, kind):
    echo.use_faults([{"status": status, "next": 1}])
    agent = speak(echo.url)
    refused = agent.post(body(speak))
    assert refused.status == status
    error = refused.body["error"]
    assert (error["type"] == kind) if speak.wire == "anthropic" else ("code" in error)
    assert agent.answer("Hi") == "You said: Hi"
    assert [entry.fault for entry in echo.requests] == [f"status {status}", None]


def test_retry_after_comes_in_seconds_or_as_a_date(echo, speak):
    echo.use_faults([{"status": 429, "retryAfter": 1.5}])
    assert speak(echo.url).post(body(speak)).headers["retry-after"] == "1.5"
    echo.use_faults([{"status": 429, "retryAfter": 30, "retryAfterDate": True}])
    before = datetime.now(UTC).replace(microsecond=0)
    at = parsedate_to_datetime(speak(echo.url).post(body(speak)).headers["retry-after"])
    assert 30 <= (at - before).total_seconds() <= 60


def test_every_third_and_the_next_two(echo, openai_echo):
    echo.use_faults([{"status": 500, "every": 3}])
    for _ in range(6):
        openai_echo.post(body(type(openai_echo)))
    assert [entry.status for entry in echo.requests] == [200, 200, 500, 200, 200, 500]


def test_faults_choose_their_requests(echo, openai_echo, anthropic_echo):
    echo.use_faults(
        [
            {"status": 500, "path": "messages"},
            {"status": 503, "model": "gpt-*", "contains": "BREAK"},
            {"status": 429, "asks": "judge"},
        ]
    )
    assert anthropic_echo.post(body(anthropic_echo)).status == 500
    assert openai_echo.answer("Hi") == "You said: Hi"
    broken = {"model": "gpt-4o", "messages": [{"role": "user", "content": "please break"}]}
    assert openai_echo.post(broken).status == 503
    with pytest.raises(openai.RateLimitError):
        openai_echo.judge("a question")


def test_a_rate_limit_says_when_to_come_back(serve, openai_agent):
    server = serve({"faults": [{"perMinute": 2}], "rules": [{"reply": {"text": "Yes."}}]})
    answers = [openai_agent(server.url).post(body(openai_agent)) for _ in range(3)]
    assert [entry.status for entry in server.requests] == [200, 200, 429]
    assert 0 < int(answers[2].headers["retry-after"]) <= 60


def test_a_bucket_lets_a_burst_through_and_then_so_many_a_minute(serve, openai_agent):
    server = serve({"faults": [{"perMinute": 30, "burst": 3}], "rules": [{"reply": {"text": "Y"}}]})
    answers = [_posted(server, openai_agent) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert 0 < int(answers[3].headers["retry-after"]) <= 2


@pytest.mark.parametrize(
    ("tells", "left", "comes_back"),
    [
        ("retryAfter", [9999, 9999], True),
        ("quotas", [0, 0], False),
        ("both", [0, 0], True),
        ("nothing", [9999, 9999], False),
    ],
)
def test_a_limit_reports_itself_in_given_words(serve, speak, tells, left, comes_back):
    fault = {"perMinute": 1, "tells": tells}
    server = serve({"faults": [fault], "rules": [{"reply": {"text": "Yes."}}]})
    answers = [_posted(server, speak) for _ in range(2)]
    told = [quotas(answer.headers, datetime.now(UTC))[0] for answer in answers]
    assert [quota.left for quota in told] == left
    assert ("retry-after" in answers[1].headers) is comes_back
    if not left[0]:
        assert all(0 < quota.reset_s <= 60 and quota.limit == 1 for quota in told)


@pytest.mark.parametrize("place", ["before", "headers", "body"])
def test_a_cut_connection_is_a_connection_error(echo, speak, place):
    echo.use_faults([{"cut": place}])
    with pytest.raises(CONNECTION_ERRORS):
        speak(echo.url).create(messages=HI)
    assert echo.requests[0].fault == f"cut {place}"


def test_a_malformed_body_cannot_be_read(echo, speak):
    echo.use_faults([{"malformed": True}])
    answer = _posted(echo, speak)
    assert answer.status_code == 200
    with pytest.raises(json.JSONDecodeError):
        answer.json()


def test_an_empty_answer_has_no_text_and_no_calls(echo, openai_echo, anthropic_echo):
    echo.use_faults([{"empty": True}])
    message = openai_echo.create(messages=HI).choices[0].message
    assert (message.content, message.tool_calls) == (None, None)
    assert anthropic_echo.create(messages=HI).content == []


def test_a_stalled_body_outlasts_a_timeout(echo, speak):
    echo.use_faults([{"stallMs": 60_000}])
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{echo.url}{_path(speak)}", json=body(speak), headers=_headers(speak), timeout=0.3
        )


def test_latency_and_stall_change_no_answer(echo, speak):
    echo.use_faults([{"latencyMs": 5}, {"stallMs": 5}])
    assert speak(echo.url).answer("Hi") == "You said: Hi"
    assert echo.requests[0].fault == "stall"


@pytest.mark.parametrize("encoding", ["plain", "base64", "percent"])
@pytest.mark.parametrize("place", ["error", "header", "url", "text", "toolArgument"])
def test_the_key_is_repeated_where_reported(echo, speak, key, place, encoding):
    echo.use_faults([{"echoKey": place, "encoding": encoding}])
    answer = httpx.post(f"{echo.url}{_path(speak)}", json=body(speak), headers=_headers(speak, key))
    shown = {
        "plain": key,
        "base64": base64.b64encode(key.encode()).decode(),
        "percent": "".join(f"%{byte:02X}" for byte in key.encode()),
    }[encoding]
    seen = answer.text + " ".join(answer.headers.values())
    assert (quote(shown, safe="%") if place == "url" else shown) in seen
    assert (answer.status_code == 200) == (place in ("text", "toolArgument"))
    if encoding == "percent":
        assert unquote(shown) == key


@pytest.mark.parametrize(
    ("kind", "holds"),
    [("control", "\x07"), ("surrogate", "\ud800"), ("nul", "\x00"), ("ansi", "\x1b[31m")],
)
def test_odd_texts_arrive_as_they_are(echo, speak, kind, holds):
    echo.use_faults([{"text": kind}])
    assert holds in speak(echo.url).answer("Hi")


def test_a_megabyte_of_text_is_not_cut(echo, speak):
    echo.use_faults([{"text": "huge"}])
    assert len(speak(echo.url).answer("Hi")) == 1_000_000


def test_five_hundred_parallel_calls(echo, openai_echo, anthropic_echo):
    echo.use_faults([{"toolCalls": 500}])
    calls = openai_echo.create(messages=HI).choices[0].message.tool_calls
    assert len({call.id for call in calls}) == 500
    assert len({block.id for block in anthropic_echo.create(messages=HI).content}) == 500


def test_a_rule_can_break_its_own_reply(serve, speak):
    script = {
        "rules": [
            {"when": {"user": "fail"}, "reply": {"fault": {"status": 503, "retryAfter": 2}}},
            {"when": {"user": "late"}, "reply": {"text": "late", "delayMs": 5}},
        ]
    }
    agent = speak(serve(script).url)
    with pytest.raises(STATUS_ERRORS):
        agent.answer("fail")
    assert agent.answer("late") == "late"


def test_faults_and_script_change_over_http(echo, speak):
    httpx.post(f"{echo.url}/faults", json={"faults": [{"status": 500}]}).raise_for_status()
    assert speak(echo.url).post(body(speak)).status == 500
    assert httpx.get(f"{echo.url}/faults").json() == {"fired": [1]}
    httpx.post(f"{echo.url}/faults", json={"faults": []}).raise_for_status()
    assert speak(echo.url).answer("Hi") == "You said: Hi"
    script = {"rules": [{"reply": {"text": "changed"}}]}
    httpx.post(f"{echo.url}/script", json={"script": script}).raise_for_status()
    assert speak(echo.url).answer("Hi") == "changed"
    httpx.post(f"{echo.url}/script", json={"script": "support"}).raise_for_status()
    assert httpx.get(f"{echo.url}/health").json() == {"status": "ok", "script": "support"}


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("faults", {"faults": [{"staus": 500}]}),
        ("faults", {}),
        ("faults", []),
        ("script", {"script": "/etc/hostname"}),
        ("script", {"script": {"rules": [{}]}}),
    ],
)
def test_a_wrong_change_is_refused_and_changes_nothing(echo, openai_echo, path, sent):
    answer = httpx.post(f"{echo.url}/{path}", json=sent)
    assert answer.status_code == 400
    assert openai_echo.answer("Hi") == "You said: Hi"


def test_a_wrong_fault_is_reported_in_process(echo):
    with pytest.raises(ScriptError, match="did you mean 'status'"):
        echo.use_faults([{"staus": 500}])


def test_clients_that_go_away_while_they_wait_do_no_harm(echo, openai_echo):
    echo.use_faults([{"latencyMs": 60_000, "next": 1}])
    with socket.create_connection(("127.0.0.1", echo.port)) as client:
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer x\r\n"
            b"content-length: 2\r\n\r\n{}"
        )
        while not echo.requests:
            asyncio.run(asyncio.sleep(0))
    assert openai_echo.answer("Hi") == "You said: Hi"


def _path(speak):
    return "/v1/messages" if speak.wire == "anthropic" else "/v1/chat/completions"


def _headers(speak, key="any"):
    if speak.wire == "anthropic":
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}
    return {"authorization": f"Bearer {key}"}


def _posted(server, speak):
    return httpx.post(f"{server.url}{_path(speak)}", json=body(speak), headers=_headers(speak))
