"""HTTP agents that fail, hang, say too much or something else: which errors these are."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl

import pytest
from processes import time_passes_after

from kindlm.agents.agent_failures import Who
from kindlm.errors import ErrorCode
from kindlm.suite import AgentTarget

TOKEN = "tok-planted-0123456789"


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (400, ErrorCode.PROVIDER_API_ERROR, False),
        (401, ErrorCode.PROVIDER_AUTH_ERROR, False),
        (408, ErrorCode.PROVIDER_TIMEOUT, True),
        (409, ErrorCode.PROVIDER_API_ERROR, True),
        (429, ErrorCode.PROVIDER_RATE_LIMIT, True),
        (500, ErrorCode.PROVIDER_API_ERROR, True),
        (503, ErrorCode.PROVIDER_API_ERROR, True),
    ],
)
def test_a_status_has_its_code_and_is_asked_once(talk, http, failure, status, code, retryable):
    (result,), server = talk(http({"error": "nope"}, status=status, headers={"Retry-After": "2"}))
    error = failure(result)
    assert error.code is code
    assert error.details == {
        "status": status,
        "retry_after": 2.0,
        "retryable": retryable,
        "body": '{"error": "nope"}',
    }
    assert "nope" in error.message
    assert str(status) in error.message
    assert len(server.received) == 1


def test_a_failed_answer_of_line_ends_is_read_at_once(talk, http, failure):
    (result,), _ = talk(http("{" + "\n" * 200_000 + "x", status=500))
    assert failure(result).message == "Agent 'shop' returned 500: {"


CALLS = '{"tool_calls": [{"name": "refund", "arguments": %s}]}'


@pytest.mark.parametrize(
    ("body", "retryable"),
    [
        (CALLS % "{}", False),
        (CALLS % '"\\ud800"', False),
        (CALLS % '{"id": NaN}', True),  # no JSON
        ('{"error": [NaN]}', True),
        ('{"error": {"message": "caf\\ud800"}}', True),
        ("[" * 100_000, True),
    ],
)
def test_a_failed_answer_is_quoted_whatever_it_is(talk, http, failure, body, retryable):
    (result,), _ = talk(http(body, status=503))
    error = failure(result)
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert body[:30] in error.message
    assert error.details["retryable"] is retryable


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("cost", [0.02, None])
def test_an_error_holds_what_the_agent_spent(talk, http, failure, status, cost):
    usage = {"input_tokens": 7, "output_tokens": 2}
    body = {"error": "no tool", "usage": usage, "metadata": {"cost": cost, "model": "m"}}
    (result,), _ = talk(http(body, status=status))
    details = failure(result).details
    assert (details["tokens"], details["cost_usd"], details["model"]) == ([7, 2], cost, "m")


CHUNK = {"model": "m", "choices": [{"index": 0, "delta": {"content": "so far"}}]}
SPENT = {"usage": {"prompt_tokens": 7}, "cost": 0.02}
ERROR = {"error": {"message": "overloaded"}}
FAILED = {"model": "m", "status": "failed", "error": {"message": "overloaded"}, **SPENT}


@pytest.mark.parametrize("state", ["working", "failed"])
def test_the_error_of_a_task_holds_what_it_spent(talk, http, failure, state):
    task = {"id": "t", "status": {"state": state}, "metadata": {"model": "m", **SPENT}}
    (result,), _ = talk(http({"jsonrpc": "2.0", "result": {"task": task}}))
    details = failure(result).details
    assert (details["tokens"], details["cost_usd"], details["model"]) == ([7, None], 0.02, "m")


@pytest.mark.parametrize(
    "events",
    [
        [CHUNK | SPENT, ERROR, "[DONE]"],
        [CHUNK | SPENT],  # it breaks off
        [CHUNK, '{"cut": ', CHUNK | SPENT, "[DONE]"],
        [CHUNK, ERROR | SPENT | {"model": "m"}, "[DONE]"],
        [{"type": "response.failed", "response": FAILED}],
    ],
)
def test_the_error_of_a_stream_holds_what_it_reported_up_to_there(talk, http, failure, events):
    texts = (event if isinstance(event, str) else json.dumps(event) for event in events)
    body = "".join(f"data: {text}\n\n" for text in texts)
    (result,), _ = talk(http(body, kind="text/event-stream"))
    details = failure(result).details
    assert (details["tokens"], details["cost_usd"], details["model"]) == ([7, None], 0.02, "m")


@pytest.mark.parametrize(("wait", "fix"), [("2", "--concurrency 1"), ("4000", "Try again later")])
def test_what_to_do_about_a_rate_limit_depends_on_the_wait(talk, http, failure, wait, fix):
    (result,), _ = talk(http({"error": "slow"}, status=429, headers={"Retry-After": wait}))
    assert fix in failure(result).hint


@pytest.mark.parametrize(
    ("status", "fix"),
    [
        (400, '`body: { KEY: "{{message}}" }`'),
        (404, "path"),
        (422, "`body:"),
    ],
)
def test_a_request_that_is_not_understood_has_a_fix(talk, http, failure, status, fix):
    (result,), _ = talk(http({"detail": "KeyError: 'input'"}, status=status))
    assert fix in failure(result).hint


@pytest.mark.parametrize(
    ("body", "options", "said"),
    [
        ("<html>login</html>", {}, "it sent an HTML page"),
        ("[" * 100_000, {}, "too deeply"),
        ('{"message": NaN}', {}, "not valid JSON"),
        ({"message": "m"}, {"responsePath": "data.text"}, "data.text"),
    ],
)
def test_a_success_that_is_no_answer_is_an_error(talk, http, failure, body, options, said):
    (result,), _ = talk(http(body), **options)
    error = failure(result)
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert said in error.message
    assert error.details["retryable"] is False


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"text": "Order A-17 is refu', "Unterminated string starting at"),
        ('{"text": "m", "tool_calls": [], "tool_calls": []}', "a key occurs twice"),
        ('{"text": NaN}', "NaN"),
        ("", "it is empty"),
    ],
)
def test_what_is_not_valid_json_is_not_to_be_looked_for_elsewhere(
    talk, http, failure, body, reason
):
    (result,), _ = talk(http(body, headers={"content-type": "application/json"}))
    error = failure(result)
    assert f"(not valid JSON: {reason}" in error.message
    assert "valid JSON" in error.hint
    assert "responsePath" not in error.hint


def test_json_lines_need_another_adapter(talk, http, failure):
    lines = '{"delta": "all "}\n{"delta": "fine"}\n'
    (result,), _ = talk(http(lines, headers={"content-type": "application/x-ndjson"}))
    assert "for JSON Lines, write `adapter: streaming`" in failure(result).hint


@pytest.mark.parametrize("options", [{}, {"request": "query"}, {"responsePath": "response"}])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": "agent crashed"}, "agent crashed"),
        ({"response": None, "error": "boom"}, "boom"),
        ({"response": "", "error": "boom", "tool_calls": []}, "boom"),
        ({"status": "error", "error": {"message": "down"}}, "down"),
        ({"error": {"code": 7}}, '{"code":7}'),
        ({"error": True, "detail": "Internal error", "text": ""}, "Internal error"),
        ({"error": "ValueError", "message": "bad"}, "ValueError: bad"),
    ],
)
def test_an_agent_that_says_that_it_failed_has_not_answered(
    talk, http, failure, body, said, options
):
    (result,), _ = talk(http(body), **options)
    error = failure(result)
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert error.message == f"Agent 'shop' reported an error: {said}"
    assert json.loads(error.details["body"]) == body


@pytest.mark.parametrize(
    "body",
    [{"response": "ok", "error": "slow"}, {"tool_calls": [{"name": "t"}], "error": "x"}]
    + [{"response": "ok", "error": none} for none in (None, "", {}, False)],
)
def test_an_error_beside_an_answer_is_not_the_answer(reply, body):
    assert reply(body, request="query").text == body.get("response", "")


@pytest.mark.parametrize(
    ("beside", "said"),
    [
        ({"error": "slow"}, 'an error beside its answer: "slow"'),
        ({"success": False}, "`success: false`"),
        ({"ok": False}, "`ok: false`"),
        ({"statusCode": 500}, "`statusCode: 500`"),
        ({"status": 404}, "`status: 404`"),
        ({"ok": True, "status": 200}, None),
        ({"status": "Incomplete"}, "`status: Incomplete`"),
        ({"success": True, "status": "done"}, None),
    ],
)
def test_an_answer_that_says_that_it_failed_is_doubted(reply, beside, said):
    assert [said in each for each in reply({"text": "ok", **beside}).warnings] == (
        [True] if said else []
    )


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ({"error": True, "message": "fine"}, {"responsePath": "message"}),
        ({"error": True, "message": "late", "text": "fine"}, {"request": "query"}),
        ({"error": True, "message": "fine", "tool_calls": [{"name": "t"}]}, {}),
        *(({"error": none, "message": "fine"}, {}) for none in (None, "", {}, False, 0.02)),
    ],
)
def test_a_message_beside_an_error_is_an_answer_if_there_is_more_to_it(reply, body, options):
    assert reply(body, **options).text == "fine"


@pytest.mark.parametrize("kind", ["text/html", "text/plain", ""])
@pytest.mark.parametrize("page", ["\n <!DOCTYPE html>\n<p>Log in", '<HTML lang="en">'])
def test_a_page_is_no_answer_whatever_it_is_sent_as(talk, http, failure, kind, page):
    (result,), _ = talk(http(page, kind=kind))
    assert "it sent an HTML page" in failure(result).message


def test_a_text_that_mentions_html_is_an_answer(reply):
    assert reply("Use <html> first", kind="text/plain").text == "Use <html> first"
    assert reply({"message": "<html></html>"}).text == "<html></html>"


def test_a_text_that_a_framework_calls_html_is_an_answer(reply):
    assert reply("Refunded. 3 < 4", kind="text/html; charset=utf-8").text == "Refunded. 3 < 4"


def test_an_endless_answer_is_an_error(talk, http, failure):
    (result,), _ = talk(http(b"x" * 10_000_001, kind="text/plain"))
    assert "10 MB" in failure(result).message


def test_an_agent_that_is_not_there_is_a_network_error(make, ask, failure):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://user:{TOKEN}@127.0.0.1:{probe.getsockname()[1]}/chat"

        async def run():
            async with make(AgentTarget("shop", "http", url)) as agent:
                return await agent.send(ask())

        error = failure(asyncio.run(run()))
    assert error.code is ErrorCode.PROVIDER_NETWORK_ERROR
    assert error.details["retryable"] is True
    assert error.message.endswith("/chat: connection refused")
    assert error.hint == "Check that the agent runs, and its URL"
    assert TOKEN not in repr(error)


def test_a_cut_connection_is_a_network_error(talk, failure):
    (result,), _ = talk(None)
    error = failure(result)
    assert (error.code, error.details["retryable"]) == (ErrorCode.PROVIDER_NETWORK_ERROR, True)


def test_an_agent_that_broke_off_while_it_answered_is_not_asked_again(talk, failure):
    (result,), _ = talk(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 99\r\n\r\n{")
    error = failure(result)
    assert (error.code, error.details["retryable"]) == (ErrorCode.PROVIDER_NETWORK_ERROR, False)
    assert error.message.endswith("broke off")
    assert error.hint == "See the agent's log for why it stopped"


def test_a_certificate_that_is_not_trusted_can_be_named():
    cause = ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate")
    error = Who("shop").unreachable("https://127.0.0.1:8443/chat", cause, retryable=True)
    assert error.message.endswith("TLS failed (certificate verify failed: self-signed certificate)")
    assert "SSL_CERT_FILE" in str(error.hint)


@pytest.mark.parametrize(
    "body",
    [
        {"error": "boom", "tool_calls": [{"name": "refund"}]},
        {"detail": {"steps": [{"tool": "refund", "input": {}}]}},
        {"tool_calls": "refund"},
        'data: {"tool": "refund"}',
    ],
)
def test_an_agent_whose_error_shows_what_it_did_is_not_asked_again(talk, http, failure, body):
    (result,), _ = talk(http(body, status=500))
    assert failure(result).details["retryable"] is False


SLOW = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"


@pytest.mark.parametrize(
    ("answer", "retryable"), [(SLOW, False), (b"", True)], ids=["in the body", "before the head"]
)
def test_a_timeout_covers_everything_and_closes_the_connection(
    make, ask, peer, failure, answer, retryable
):
    async def run():
        async with peer(answer) as server, make(AgentTarget("s", "http", server.url)) as agent:
            async with time_passes_after(server.arrived.is_set):
                result = await agent.send(ask(timeout_s=600))
            await asyncio.wait_for(server.left.wait(), 10)
            return result

    error = failure(asyncio.run(run()))
    assert error.code is ErrorCode.PROVIDER_TIMEOUT
    assert error.details["retryable"] is retryable
    assert "600000 ms" in error.message
    assert "`adapter_config.timeout`" in str(error.hint)


def test_a_cancelled_call_closes_the_connection(make, ask, peer):
    async def run():
        async with peer(SLOW) as server, make(AgentTarget("s", "http", server.url)) as agent:
            sending = asyncio.create_task(agent.send(ask()))
            await server.arrived.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await asyncio.wait_for(server.left.wait(), 10)

    asyncio.run(run())


@pytest.mark.parametrize("between", [155, 180])
def test_credentials_never_show(talk, http, failure, between):
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Api-Key": "k-planted-98765"}
    body = {"error": f"bad token {TOKEN} {'x' * between}{TOKEN} k-planted-98765"}
    (result,), _ = talk(http(body, status=401), headers=headers)
    error = failure(result)
    assert "planted" not in repr(error)
    assert "[hidden]" in error.message


def test_nothing_is_left_of_a_credential_that_begins_with_another_one(talk, http, failure):
    headers = {"X-Api-Key": TOKEN, "X-Session": f"{TOKEN}-and-more"}
    (result,), _ = talk(http({"error": f"bad {TOKEN}-and-more"}, status=401), headers=headers)
    assert "and-more" not in repr(failure(result))


def test_what_is_too_short_to_be_a_credential_leaves_words_whole(talk, http, failure):
    headers = {"X-Api-Key": "s3cr3t", "X-Shop": "order"}
    (result,), _ = talk(http({"error": "s3cr3t: no such order"}, status=401), headers=headers)
    assert "[hidden]: no such order" in failure(result).message


@pytest.mark.parametrize("charset", ["nonsense", "hex", "idna", "punycode", "undefined"])
def test_an_unknown_charset_does_no_harm(charset, peer, http, make, ask, success):
    async def run():
        body = '{"message": "schön"}'
        answer = http(body, kind=f"application/json; charset={charset}")
        async with peer(answer) as it, make(AgentTarget("a", "http", it.url)) as agent:
            return await agent.send(ask())

    assert success(asyncio.run(run())).text == "schön"


def test_an_answer_in_another_charset_than_it_names_is_an_error_of_the_agent(talk, http, failure):
    (result,), _ = talk(http('{"message": "ok"}', kind="application/json; charset=utf-16"))
    error = failure(result)
    assert error.message.startswith("Agent 'shop' sent bytes that cannot be decoded: ")
    assert "utf-16" in error.message.lower()
    assert "`charset`" in error.hint


def test_json_may_begin_with_a_byte_order_mark(talk, http, success):
    (result,), _ = talk(http('\ufeff{"message": "ok"}', kind="application/json"))
    assert success(result).text == "ok"


def test_more_than_any_answer_holds_is_refused(talk, http, failure, monkeypatch):
    monkeypatch.setattr("kindlm.agents.reply_reading.MAX_CALLS", 10)
    monkeypatch.setattr("kindlm.agents.event_framing.MAX_EVENTS", 20)
    (result,), _ = talk(http({"message": "ok", "tool_calls": [{}] * 11}))
    assert "more than 10 tool calls" in failure(result).message
    assert failure(result).hint == "Check whether the agent is caught in a loop"
    (result,), _ = talk(http("data: x\n\n" * 21, kind="text/event-stream"))
    assert "more than 20 events" in failure(result).message
