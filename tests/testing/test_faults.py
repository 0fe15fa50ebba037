"""What each fault does to an answer; how it is played on a socket, tests of providers show."""

from __future__ import annotations

import asyncio
import json
import socket

import httpx
import pytest

from kindlm.testing import ScriptError

CHAT, EMBEDDINGS, MESSAGES = "/v1/chat/completions", "/v1/embeddings", "/v1/messages"
ECHO = {"rules": [{"reply": {"text": "You said: {{user}}"}}]}


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
def test_statuses_have_the_shape_of_their_api(asked, status, kind):
    app = asked(ECHO, [{"status": status, "next": 2, "retryAfter": 1.5}])
    for path in (CHAT, MESSAGES):
        answer = app.post(path)
        assert answer.status == status
        assert ("retry-after", "1.5") in answer.headers
        error = json.loads(answer.body)["error"]
        assert (error["type"] == kind) if path == MESSAGES else ("code" in error)
    assert app.message()["content"] == "You said: Hi"
    assert [entry.fault for entry in app.app.requests] == [f"status {status}"] * 2 + [None]


def test_every_third(asked):
    app = asked(ECHO, [{"status": 500, "every": 3}])
    assert [app.post(CHAT).status for _ in range(6)] == [200, 200, 500, 200, 200, 500]


def test_faults_choose_their_requests(asked):
    judged = {"type": "json_schema", "json_schema": {"name": "kindlm_judgement", "schema": {}}}
    app = asked(
        ECHO,
        [
            {"status": 500, "path": "messages"},
            {"status": 503, "model": "gpt-*", "contains": "BREAK"},
            {"status": 429, "asks": "judge"},
        ],
    )
    assert app.post(MESSAGES).status == 500
    assert app.post(CHAT).status == 200
    broken = [{"role": "user", "content": "please break"}]
    assert app.post(CHAT, model="gpt-4o", messages=broken).status == 503
    assert app.post(CHAT, model="other", messages=broken).status == 200
    assert app.post(CHAT, response_format=judged).status == 429


def test_how_an_answer_is_delivered(asked):
    for fault, expected in (
        ({"cut": "before"}, {"cut": "before"}),
        ({"cut": "body"}, {"cut": "body"}),
        ({"stallMs": 500}, {"stall_s": 0.5}),
        ({"latencyMs": 500}, {"delay_s": 0.5}),
    ):
        answer = asked(ECHO, [{"latencyMs": 0}, fault]).post(CHAT)
        assert {name: getattr(answer, name) for name in expected} == expected
        assert answer.status == 200


@pytest.mark.parametrize(("path", "body"), [(CHAT, {}), (EMBEDDINGS, {"input": "Hi"})])
def test_the_log_names_faults_of_the_delivery(asked, path, body):
    app = asked(ECHO, [{"cut": "body", "next": 1}])
    assert [app.post(path, **body).cut for _ in range(2)] == ["body", None]
    assert [entry.fault for entry in app.app.requests] == ["cut body", None]


def test_a_malformed_body_cannot_be_read(asked):
    answer = asked(ECHO, [{"malformed": True}]).post(CHAT)
    with pytest.raises(json.JSONDecodeError):
        json.loads(answer.body)


def test_an_empty_answer_has_no_text_and_no_calls(asked):
    app = asked(ECHO, [{"empty": True}])
    assert app.message().get("tool_calls", app.message()["content"]) is None
    assert json.loads(app.post(MESSAGES).body)["content"] == []


def test_a_rule_can_break_its_own_reply(asked):
    fails = {"when": {"user": "fail"}, "reply": {"fault": {"status": 503, "retryAfter": 2}}}
    app = asked({"rules": [fails, {"reply": {"text": "late", "delayMs": 500}}]})
    assert app.post(CHAT, messages=[{"role": "user", "content": "fail"}]).status == 503
    assert app.post(CHAT).delay_s == 0.5


def test_faults_and_scripts_change_while_it_runs(serve, key):
    server = serve(ECHO)
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"authorization": f"Bearer {key}"}

    def ask() -> httpx.Response:
        return httpx.post(f"{server.url}{CHAT}", json=body, headers=headers)

    with pytest.raises(ScriptError, match='Did you mean "status"'):
        server.use_faults([{"staus": 500}])
    server.use_faults([{"status": 500, "next": 1}])
    assert [ask().status_code, ask().status_code] == [500, 200]
    server.use_script({"rules": [{"reply": {"text": "changed"}}]})
    assert "changed" in ask().text
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok", "script": "script"}
    # A client that goes away while it waits does no harm.
    server.use_faults([{"latencyMs": 60_000, "next": 1}])
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer x\r\n"
            b"content-length: 2\r\n\r\n{}"
        )
        while len(server.requests) < 4:
            asyncio.run(asyncio.sleep(0))
    assert "changed" in ask().text
