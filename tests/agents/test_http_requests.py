"""Requests to HTTP agents: what is sent, where to, and over which connections."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64decode
from dataclasses import replace

import pytest

from kindlm.agents.served import kept_connections
from kindlm.errors import ErrorCode
from kindlm.strict_json import compact_json
from kindlm.suite import AgentTarget
from kindlm.transcript import Message, Role

TOKEN = "tok-planted-0123456789"
SYSTEM = Message(Role.SYSTEM, "Be kind.")
FIRST = Message(Role.USER, "one")
ANSWER = Message(Role.ASSISTANT, "ok")
SECOND = Message(Role.USER, "two")


def test_a_message_is_sent_once_with_its_conversation(talk, http, ask, success):
    requests = [ask(FIRST), ask(FIRST, ANSWER, SECOND)]
    results, server = talk(http({"message": "ok"}), requests=requests)
    assert [success(result).text for result in results] == ["ok", "ok"]
    assert [request.body for request in server.received] == [
        {"message": "one", "conversation_id": "conv-1"},
        {"message": "two", "conversation_id": "conv-1"},
    ]
    assert server.received[0].path == "/chat"
    assert server.received[0].headers["content-type"] == "application/json"


def test_a_conversation_keeps_its_connection_and_cookies(talk, http, ask):
    answer = http({"message": "ok"}, headers={"Set-Cookie": "session=7; Path=/"})
    _, server = talk(answer, requests=[ask(FIRST), ask(FIRST, ANSWER, SECOND)])
    assert server.connections == 1
    assert "cookie" not in server.received[0].headers
    assert server.received[1].headers["cookie"] == "session=7"


def test_conversations_share_no_cookies(make, ask, peer, http, success):
    async def run():
        answer = http({"message": "ok"}, headers={"Set-Cookie": "session=7; Path=/"})
        async with peer(answer) as server:
            target = AgentTarget("shop", "http", server.url)
            async with make(target) as one, make(target) as other:
                for agent in (one, other, one):
                    success(await agent.send(ask()))
            return server

    first, second, third = asyncio.run(run()).received
    assert "cookie" not in first.headers
    assert "cookie" not in second.headers
    assert third.headers["cookie"] == "session=7"


def test_a_run_keeps_connections_between_conversations(make, ask, peer, http):
    async def run():
        async with peer(http({"message": "ok"})) as server:
            async with kept_connections():
                for _ in range(3):
                    async with make(AgentTarget("shop", "http", server.url)) as agent:
                        await agent.send(ask())
            await asyncio.wait_for(server.left.wait(), 10)
            return server.connections

    assert asyncio.run(run()) == 1


def test_connections_are_shared_while_in_use_and_closed_after(make, ask, peer, http):
    async def run():
        async with peer(http({"message": "ok"})) as server:
            target = AgentTarget("shop", "http", server.url)
            async with make(target) as first:
                await first.send(ask())
                async with make(target) as second:
                    await second.send(ask())
                assert not server.left.is_set()
                await first.send(ask())
            await asyncio.wait_for(server.left.wait(), 10)
            return server.connections

    assert asyncio.run(run()) == 1


def test_messages_are_all_that_was_said(talk, http, ask, success):
    request = ask(SYSTEM, FIRST, ANSWER, SECOND)
    (result,), server = talk(http({"message": "ok"}), requests=[request], request="messages")
    assert server.received[0].body == {
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "ok"},
            {"role": "user", "content": "two"},
        ]
    }
    assert success(result).warnings == ()


def test_a_query_has_what_was_said_before_in_its_context(talk, http, ask):
    requests = [ask(FIRST), ask(FIRST, ANSWER, SECOND)]
    _, server = talk(http({"response": "ok"}), requests=requests, request="query")
    assert [request.body for request in server.received] == [
        {"query": "one", "context": {}, "enable_tracing": True},
        {
            "query": "two",
            "context": {
                "conversation_history": [
                    {"role": "user", "content": "one"},
                    {"role": "assistant", "content": "ok"},
                ]
            },
            "enable_tracing": True,
        },
    ]


@pytest.mark.parametrize(
    "options", [{}, {"request": "messages"}, {"request": "query", "body": {"q": "{{message}}"}}]
)
def test_a_context_that_is_not_sent_is_reported(talk, http, ask, success, options):
    request = replace(ask(FIRST), context={"user": 7})
    (result,), server = talk(http({"message": "ok"}), requests=[request], **options)
    assert success(result).warnings[0].startswith("the context was not sent")
    assert "user" not in server.received[0].body


@pytest.mark.parametrize("form", ["message", "query"])
def test_a_system_text_that_is_not_sent_is_reported(talk, http, ask, success, form):
    (result,), server = talk(http({"message": "ok"}), requests=[ask(SYSTEM, FIRST)], request=form)
    assert "system prompt" in success(result).warnings[0]
    assert "Be kind." not in json.dumps(server.received[0].body)


def test_a_prefill_is_not_sent_and_reported(talk, http, ask, success):
    prefill = Message(Role.ASSISTANT, "{", prefill=True)
    (result,), server = talk(
        http({"message": "ok"}), requests=[ask(FIRST, prefill)], request="messages"
    )
    assert server.received[0].body == {"messages": [{"role": "user", "content": "one"}]}
    assert "prefill" in success(result).warnings[0]


def test_a_template_keeps_values_and_cannot_be_broken(talk, http, ask, success):
    hostile = Message(Role.USER, 'say "hi" {{conversation_id}} \\ \ud800')
    template = {
        "input": {"text": "> {{ message }}", "history": "{{messages}}", "n": 1},
        "ids": ["{{conversation_id}}", True, None],
        "s": "{{system}}",
        "all": "{{system}} {{conversation_id}}: {{messages}}.",
    }
    (result,), server = talk(
        http({"message": "ok"}), requests=[ask(SYSTEM, hostile)], body=template
    )
    said = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": hostile.text},
    ]
    assert server.received[0].body == {
        "input": {
            "text": f"> {hostile.text}",
            "history": said,
            "n": 1,
        },
        "ids": ["conv-1", True, None],
        "s": "Be kind.",
        "all": f"Be kind. conv-1: {compact_json(said)}.",
    }
    assert success(result).warnings == ()


def test_headers_are_sent_and_may_replace_ours(talk, http):
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json; v=2"}
    _, server = talk(http({"message": "ok"}), headers=headers)
    got = server.received[0].headers
    assert got["authorization"] == f"Bearer {TOKEN}"
    assert got["content-type"] == "application/json; v=2"


def test_who_is_named_in_the_address_is_sent_as_basic_authorization(make, ask, peer, http):
    async def run():
        async with peer(http({"message": "ok"})) as server:
            target = AgentTarget("s", "http", server.url.replace("//", "//ada:open%2Fsesame@"))
            async with make(target) as agent:
                await agent.send(ask())
            return server

    (received,) = asyncio.run(run()).received
    sent = received.headers["authorization"].removeprefix("Basic ")
    assert b64decode(sent) == b"ada:open/sesame"


def test_a_redirect_elsewhere_is_not_followed(make, ask, peer, http, failure):
    async def run():
        async with peer(http({"message": "stolen"})) as thief:
            there = thief.url.replace("//", "//user:sesame@")
            place = {"Location": f"{there}/x?session=open"}
            async with peer(http("", status=307, headers=place)) as server:
                target = AgentTarget("s", "http", server.url, {"Authorization": TOKEN})
                async with make(target) as agent:
                    return await agent.send(ask()), thief

    result, thief = asyncio.run(run())
    error = failure(result)
    assert error.details["status"] == 307
    assert thief.url in error.message
    assert not any(secret in repr(error) for secret in (TOKEN, "sesame", "open"))
    assert thief.received == []


@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("place", ["/chat/", "http://[", "http://agent:x/", "//[::1]]/x"])
def test_a_redirect_is_quoted_and_not_followed(talk, http, failure, status, place):
    (result,), server = talk(http("", status=status, headers={"Location": place}))
    error = failure(result)
    assert error.message == f"Agent 'shop' returned {status}: redirects to {place}"
    assert not error.details["retryable"]
    assert len(server.received) == 1


@pytest.mark.parametrize(("body", "says"), [("", "no explanation"), ("Pick one", "Pick one")])
def test_a_redirect_without_a_place_is_quoted_by_its_body(talk, http, failure, body, says):
    (result,), _ = talk(http(body, status=300))
    assert failure(result).message == f"Agent 'shop' returned 300: {says}"


def test_the_proxy_of_the_environment_is_used(make, ask, peer, http, success, monkeypatch):
    async def run():
        async with peer(http({"message": "by proxy"})) as proxy:
            monkeypatch.setenv("http_proxy", proxy.url)
            monkeypatch.setenv("no_proxy", "")
            async with make(AgentTarget("s", "http", "http://agent.invalid/chat")) as agent:
                return await agent.send(ask()), proxy

    result, proxy = asyncio.run(run())
    assert success(result).text == "by proxy"
    assert proxy.received[0].path == "http://agent.invalid/chat"


def test_a_proxy_gets_no_message_for_this_machine(make, ask, peer, http, success, monkeypatch):
    async def run():
        async with peer(http({"message": "by proxy"})) as proxy, peer(http({"message": "m"})) as it:
            monkeypatch.setenv("http_proxy", proxy.url)
            monkeypatch.setenv("no_proxy", "")
            async with make(AgentTarget("s", "http", f"{it.url}/chat")) as agent:
                return await agent.send(ask()), proxy

    result, proxy = asyncio.run(run())
    assert success(result).text == "m"
    assert not proxy.received


@pytest.mark.parametrize("proxy", ["::bad", "socks5://127.0.0.1:9"])
def test_a_proxy_that_cannot_be_used_is_an_error_of_the_call(
    proxy, make, ask, failure, monkeypatch
):
    monkeypatch.setenv("all_proxy", proxy)

    async def run():
        async with make(AgentTarget("s", "http", "http://agent.invalid/chat")) as agent:
            return await agent.send(ask())

    error = failure(asyncio.run(run()))
    assert "proxy of the environment" in error.message
    assert error.hint == "Correct ALL_PROXY, HTTP_PROXY or HTTPS_PROXY, or unset it"


@pytest.mark.parametrize("proxies", [{}, {"https_proxy": "http://127.0.0.1:9"}])
def test_certificates_that_cannot_be_loaded_are_an_error_of_the_call(
    proxies, make, ask, failure, monkeypatch
):
    def create() -> ssl.SSLContext:
        raise FileNotFoundError(2, "No such file or directory")

    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in proxies.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("kindlm.http_client._tls_context", create)

    async def run():
        async with make(AgentTarget("s", "http", "https://agent.invalid/chat")) as agent:
            return await agent.send(ask())

    error = failure(asyncio.run(run()))
    assert error.code is ErrorCode.PROVIDER_NETWORK_ERROR
    assert "SSL_CERT_FILE" in error.message
