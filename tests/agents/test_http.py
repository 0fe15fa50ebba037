"""HTTP agents over real sockets: what is sent, what is understood, what fails, what is closed."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from dataclasses import replace

import pytest

from kindlm.agents.http_connections import kept_connections
from kindlm.errors import ErrorCode
from kindlm.strict_json import parse_json
from kindlm.suite import AgentTarget
from kindlm.transcript import Message, Role, ToolCall, ToolUse, Usage

TOKEN = "tok-planted-0123456789"
SYSTEM = Message(Role.SYSTEM, "Be kind.")
FIRST = Message(Role.USER, "one")
ANSWER = Message(Role.ASSISTANT, "ok")
SECOND = Message(Role.USER, "two")


@pytest.fixture
def talk(make, ask, peer):
    """Send requests to an agent whose server gives these answers; return results and server."""

    def talk(*answers, requests=None, headers=None, path="/chat", **options):
        async def run():
            async with peer(*answers) as server:
                target = AgentTarget("shop", "http", server.url + path, headers or {}, options)
                async with make(target) as agent:
                    results = [await agent.send(request) for request in requests or [ask()]]
                return results, server

        return asyncio.run(run())

    return talk


@pytest.fixture
def reply(talk, http, success):
    """Return what is understood of one answer."""

    def reply(body, *, kind="application/json", **options):
        (result,), _ = talk(http(body, kind=kind), **options)
        return success(result)

    return reply


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


def test_many_conversations_at_once_are_all_answered(make, ask, peer, http, success):
    async def run():
        async with peer(http({"message": "ok"})) as server:
            target = AgentTarget("shop", "http", server.url)

            async def one():
                async with make(target) as agent:
                    return await agent.send(ask())

            return await asyncio.gather(*(one() for _ in range(100)))

    assert {success(result).text for result in asyncio.run(run())} == {"ok"}


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


def test_a_query_has_the_context_of_its_message(talk, http, ask):
    first = replace(ask(FIRST), context={"user": 7})
    second = replace(ask(FIRST, ANSWER, SECOND), context={"conversation_history": [], "plan": None})
    _, server = talk(http({"response": "ok"}), requests=[first, second], request="query")
    contexts = [request.body["context"] for request in server.received]
    assert contexts[0] == {"user": 7}
    assert contexts[1]["plan"] is None
    assert [said["content"] for said in contexts[1]["conversation_history"]] == ["one", "ok"]


@pytest.mark.parametrize(
    "options", [{}, {"request": "messages"}, {"request": "query", "body": {"q": "{{message}}"}}]
)
def test_a_context_that_is_not_sent_is_told_of(talk, http, ask, success, options):
    request = replace(ask(FIRST), context={"user": 7})
    (result,), server = talk(http({"message": "ok"}), requests=[request], **options)
    assert success(result).warnings[0].startswith("the context was not sent")
    assert "user" not in server.received[0].body


@pytest.mark.parametrize("form", ["message", "query"])
def test_a_system_text_that_is_not_sent_is_told_of(talk, http, ask, success, form):
    (result,), server = talk(http({"message": "ok"}), requests=[ask(SYSTEM, FIRST)], request=form)
    assert "system prompt" in success(result).warnings[0]
    assert "Be kind." not in json.dumps(server.received[0].body)


def test_a_prefill_is_not_sent_and_told_of(talk, http, ask, success):
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
    }
    (result,), server = talk(
        http({"message": "ok"}), requests=[ask(SYSTEM, hostile)], body=template
    )
    assert server.received[0].body == {
        "input": {
            "text": f"> {hostile.text}",
            "history": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": hostile.text},
            ],
            "n": 1,
        },
        "ids": ["conv-1", True, None],
        "s": "Be kind.",
    }
    assert success(result).warnings == ()


def test_headers_are_sent_and_may_replace_ours(talk, http):
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json; v=2"}
    _, server = talk(http({"message": "ok"}), headers=headers)
    got = server.received[0].headers
    assert got["authorization"] == f"Bearer {TOKEN}"
    assert got["content-type"] == "application/json; v=2"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('"bare string"', "bare string"),
        ({"text": "b", "content": "c", "response": "d"}, "b"),
        ({"answer": "g", "result": "f", "output": "e"}, "e"),
        ({"message": {"no": "text"}, "text": "b"}, "b"),
        ({"message": "", "tool_calls": []}, ""),
        ({"choices": [{"message": {"content": "oai"}}]}, "oai"),
        ({"choices": [{"message": {"content": None}}]}, ""),
        ({"data": {"answer": "42"}}, '{"data":{"answer":"42"}}'),
        (["a", 1], '["a",1]'),
        (None, "null"),
        (5, "5"),
        ({"message": "ünï\ud83d"}, "ünï\ud83d"),
    ],
)
def test_the_text_is_found(reply, body, text):
    assert reply(body).text == text


def test_an_answer_in_which_no_text_is_known_gets_a_warning(reply):
    quota = reply({"detail": "quota exceeded"})
    assert quota.text == '{"detail":"quota exceeded"}'
    assert "`responsePath`" in quota.warnings[0]
    for body in ({"message": ""}, {"choices": [{"message": {"content": None}}]}, ["a"], '"bare"'):
        assert reply(body).warnings == ()
    assert reply({"error": "quota exceeded"}, responsePath="error").warnings == ()


def test_the_body_is_kept_as_received(reply):
    body = '{ "message":\t"x" }'
    assert reply(body).raw == body


@pytest.mark.parametrize(
    ("path", "text"),
    [("data.items[1].text", "b"), ("data.items.0.text", "a"), ("data.items[0]", '{"text":"a"}')],
)
def test_a_path_wins_over_what_is_looked_for(reply, path, text):
    body = {"message": "m", "data": {"items": [{"text": "a"}, {"text": "b"}]}}
    assert reply(body, responsePath=path).text == text


@pytest.mark.parametrize("kind", ["text/plain", "text/plain; charset=latin-1", ""])
def test_plain_text_is_the_text(reply, kind):
    body = "Options:\n  1: red\n\n  2: blau\n"
    assert reply(body, kind=kind).text == body


def test_tool_calls_are_read_in_every_shape(reply):
    calls = [
        {"name": "a", "arguments": {"x": 1}, "result": 0},
        {"id": "c7", "function": {"name": "b", "arguments": '{"y": 2}'}, "output": False},
        {"function": "c", "arguments": "[1"},
        {"tool": "d", "name": "Step 4", "params": {"k": "v"}, "output": ""},
        {"tool_name": "e", "error": "no connection"},
        {},
    ]
    read = reply({"message": "m", "tool_calls": calls})
    assert read.tool_uses == (
        ToolUse(ToolCall("call_0", "a", {"x": 1}), 0, "agent"),
        ToolUse(ToolCall("c7", "b", {"y": 2}), False, "agent"),
        ToolUse(ToolCall("call_2", "c", {}, malformed="[1"), None, "agent"),
        ToolUse(ToolCall("call_3", "d", {"k": "v"}), "", "agent"),
        ToolUse(ToolCall("call_4", "e", {}), {"error": "no connection"}, "agent"),
        ToolUse(ToolCall("call_5", "unknown", {}), None, "agent"),
    )
    assert read.warnings == (
        'the arguments of tool call 2, "c", are no JSON object',
        "tool call 5 has no name; it is recorded as 'unknown'",
    )


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ({"steps": [{"tool": "t", "parameters": {"q": 1}}]}, {}),
        ({"choices": [{"message": {"tool_calls": [{"function": {"name": "t"}}]}}]}, {}),
        ({"tool_calls": [], "trace": {"used": [{"name": "t"}]}}, {"toolCallsPath": "trace.used"}),
    ],
)
def test_tool_calls_are_found_where_they_are(reply, body, options):
    assert [use.call.name for use in reply(body, **options).tool_uses] == ["t"]


@pytest.mark.parametrize(
    ("body", "options", "place"),
    [
        ({"tool_calls": {"name": "t"}}, {}, "tool_calls"),
        ({"tool_calls": ["t"]}, {}, "tool_calls"),
        ({"tool_calls": [{"name": "t"}, "u"]}, {}, "tool_calls"),
        ({"steps": {"tool": "t"}}, {}, "steps"),
        ({"steps": [{"tool": "t"}, "then more"]}, {}, "steps"),
        ({"did": "t"}, {"toolCallsPath": "did"}, "did"),
        ({"data": {}}, {"toolCallsPath": "trace.used"}, "trace.used"),
    ],
)
def test_tool_calls_that_can_not_be_read_are_an_error(talk, http, failure, body, options, place):
    (result,), _ = talk(http({"message": "m", **body}), **options)
    error = failure(result)
    assert "tool calls" in error.message
    assert f"`{place}`" in error.message


@pytest.mark.parametrize(
    ("body", "options", "names"),
    [
        ({"tool_calls": None}, {}, []),
        ({"steps": 3, "tool_calls": [{"name": "t"}]}, {}, ["t"]),
        ({"steps": ["looked", "found"], "tool_calls": [{"name": "t"}]}, {}, ["t"]),
        ({"tool_calls": [{"name": "t"}]}, {"toolCallsPath": "used"}, []),
        ({"trace": {}}, {"toolCallsPath": "trace.used"}, []),
    ],
)
def test_an_agent_may_tell_of_no_tool_calls(reply, body, options, names):
    read = reply({"message": "m", **body}, **options)
    assert [use.call.name for use in read.tool_uses] == names


@pytest.mark.parametrize(
    "event", [{"tool_calls": {"name": "t"}}, {"choices": [{"delta": {"tool_calls": ["t"]}}]}]
)
def test_tool_calls_in_a_stream_that_can_not_be_read_are_an_error(talk, http, failure, event):
    (result,), _ = talk(http(events({"text": "a"}, event), kind=STREAM))
    assert "tool calls" in failure(result).message


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 99}}, Usage(3, 4)),
        ({"usage": {"input_tokens": 5, "output_tokens": 0}}, Usage(5, 0)),
        ({"usage": {"input": 5, "output": 6}}, Usage(5, 6)),
        ({"metadata": {"tokens": {"input": 5, "output": 6}}}, Usage(5, 6)),
        ({"tokens": 150}, Usage(None, 150)),
        ({"usage": {"prompt_tokens": "3", "completion_tokens": True}}, Usage(None, None)),
        ({"usage": {"prompt_tokens": 10**20, "completion_tokens": 2**53}}, Usage(None, None)),
        ({}, Usage(None, None)),
    ],
)
def test_usage_is_read_under_either_spelling_and_never_made_up(reply, body, usage):
    assert reply({"message": "m", **body}).usage == usage


@pytest.mark.parametrize(
    ("body", "cost"),
    [
        ({"cost": 0}, 0.0),
        ({"metadata": {"cost": 0.5}}, 0.5),
        ({"steps": [{"tool": "a", "cost": 0.25}, {"tool": "b", "cost": 0.5}]}, 0.75),
        ({"cost": -1}, None),
        ({"cost": 10**400}, None),
        ({"cost": "0.5"}, None),
        ({}, None),
    ],
)
def test_a_reported_cost_is_read(reply, body, cost):
    assert reply({"message": "m", **body}).reported_cost_usd == cost


def test_the_model_is_read(reply):
    assert reply({"message": "m", "metadata": {"model": "gpt-4o"}}).model == "gpt-4o"


@pytest.mark.parametrize(
    ("told", "numbers"),
    [
        ({"confidence": 0.9, "retries": 2}, {"confidence": 0.9, "retries": 2}),
        ({"metadata": {"confidence": 0.9}, "meta": {"depth": 1}}, {"confidence": 0.9, "depth": 1}),
        ({"metrics": {"a": 1}, "a": 2, "meta": {"metrics": {"a": 3, "b": 4}}}, {"a": 1, "b": 4}),
        ({"a": True, "b": "1", "c": None, "d": [1], "x" * 101: 1}, {}),
        ({f"n{number}": number for number in range(99)}, {f"n{n}": n for n in range(50)}),
    ],
)
def test_numbers_are_read_by_their_names(reply, told, numbers):
    assert reply({"message": "m"} | told).reported == numbers


STREAM = "text/event-stream; charset=utf-8"


def events(*data) -> str:
    return "".join(
        f"data: {item if isinstance(item, str) else json.dumps(item)}\n\n" for item in data
    )


def test_a_stream_of_completions_is_put_together(reply):
    def chunk(**delta):
        return {"model": "m-1", "choices": [{"delta": delta}]}

    def call(index, **parts):
        return chunk(tool_calls=[{"index": index, **parts}])

    body = events(
        chunk(role="assistant", content="Hel"),
        chunk(content="lo"),
        call(0, id="c1", function={"name": "look", "arguments": ""}),
        call(1, id="c2", function={"name": "pay", "arguments": "{}"}),
        call(0, function={"arguments": '{"id":'}),
        call(0, function={"arguments": '"A1"}'}),
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}},
        "[DONE]",
        chunk(content="never"),
    )
    told = reply(body, kind=STREAM)
    assert told.text == "Hello"
    assert [use.call for use in told.tool_uses] == [
        ToolCall("c1", "look", {"id": "A1"}),
        ToolCall("c2", "pay", {}),
    ]
    assert told.usage == Usage(7, 9)
    assert told.model == "m-1"


def test_a_stream_of_content_blocks_is_put_together(reply):
    tool = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    body = events(
        {"type": "message_start", "message": {"model": "c-1", "usage": {"input_tokens": 5}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_start", "index": 1, "content_block": tool},
        {"type": "content_block_delta", "index": 1, "delta": {"partial_json": '{"id":1'}},
        {"type": "content_block_delta", "index": 1, "delta": {"partial_json": "}"}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 6}},
    )
    told = reply(body, kind=STREAM)
    assert told.text == "Hi"
    assert [use.call for use in told.tool_uses] == [ToolCall("t1", "look", {"id": 1})]
    assert (told.usage, told.model) == (Usage(5, 6), "c-1")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("event: msg\ndata:plain words\n", "plain words"),
        (": comment\ndata: a\ndata: b\n\nid: 7\nretry: 5\n\ndata: c\n\n", "a\nbc"),
        ("data: a\r\n\r\ndata: b\r\rdata: c\u2028d\n\n", "abc\u2028d"),
        ('data: "quo\\"ted"\n\ndata: 5\n\n', 'quo"ted5'),
        (events({"text": "a"}, {"type": "ping"}, {"message": "b"}), "ab"),
        (events({"content": [{"type": "text", "text": "X"}, {"type": "text", "text": "Y"}]}), "XY"),
        ("\ufeffdata: a\n\n", "a"),
        ("", ""),
    ],
)
def test_events_are_read_by_the_rules(reply, body, text):
    assert reply(body, kind=STREAM).text == text


def test_whole_tool_calls_in_a_stream_are_read(reply):
    body = events({"text": "a"}, {"tool_calls": [{"name": "t", "result": 0}]}, {"text": "b"})
    told = reply(body, kind=STREAM)
    assert told.text == "ab"
    assert told.tool_uses == (ToolUse(ToolCall("call_0", "t", {}), 0, "agent"),)


def test_a_path_says_where_the_pieces_are(reply):
    body = events({"d": {"t": "a"}, "text": "no"}, {"d": {}}, {"d": {"t": "b"}})
    assert reply(body, kind=STREAM, responsePath="d.t").text == "ab"


def test_a_stream_that_ends_and_is_left_open_is_answered(talk, success):
    head = (
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    chunks = ["data: Hi\n\nda", "ta: [DO", "NE]\n\n"]
    body = "".join(f"{len(chunk):x}\r\n{chunk}\r\n" for chunk in chunks)
    (result,), _ = talk((head + body).encode())
    assert success(result).text == "Hi"


@pytest.mark.parametrize(
    "body",
    [
        events({"text": "a"}, {"error": {"message": "bad model"}}),
        "event: error\ndata: bad model\n\n",
    ],
)
def test_an_error_in_a_stream_is_no_answer(talk, http, failure, body):
    (result,), _ = talk(http(body, kind=STREAM))
    error = failure(result)
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert "bad model" in error.message


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (400, ErrorCode.PROVIDER_API_ERROR, False),
        (401, ErrorCode.PROVIDER_AUTH_ERROR, False),
        (403, ErrorCode.PROVIDER_AUTH_ERROR, False),
        (404, ErrorCode.PROVIDER_API_ERROR, False),
        (408, ErrorCode.PROVIDER_TIMEOUT, True),
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


@pytest.mark.parametrize(
    ("body", "options", "said"),
    [
        ("<html>login</html>", {}, "an HTML page came"),
        ("[" * 100_000, {}, "too deeply"),
        ('{"message": NaN}', {}, "no JSON"),
        ({"message": "m"}, {"responsePath": "data.text"}, "data.text"),
    ],
)
def test_a_success_that_is_no_answer_is_an_error(talk, http, failure, body, options, said):
    (result,), _ = talk(http(body), **options)
    error = failure(result)
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert said in error.message
    assert error.details["retryable"] is False


FORMS = [{"request": form} for form in ("message", "messages", "query")]


@pytest.mark.parametrize("options", [*FORMS, {"responsePath": "response"}])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": "agent crashed"}, "agent crashed"),
        ({"response": None, "error": "boom"}, "boom"),
        ({"response": "", "error": "boom", "tool_calls": []}, "boom"),
        ({"status": "error", "error": {"message": "down"}}, "down"),
        ({"error": {"code": 7}}, '{"code":7}'),
        ({"error": True, "message": "Internal error"}, "Internal error"),
        ({"error": True, "detail": "Internal error", "text": ""}, "Internal error"),
        ({"error": "ValueError", "message": "bad"}, "ValueError: bad"),
        ({"error": {"code": 7}, "message": "bad"}, "bad"),
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


@pytest.mark.parametrize("body", [{"detail": "not here"}, {}, None, ["a"], {"response": None}])
def test_an_answer_to_a_query_has_its_text_where_it_is_looked_for(reply, body):
    empty = reply(body, request="query")
    assert (empty.text, empty.tool_uses, empty.warnings) == ("", (), ())


@pytest.mark.parametrize("options", FORMS)
@pytest.mark.parametrize("kind", ["text/html", "TEXT/HTML; charset=utf-8", "application/xhtml+xml"])
def test_a_page_is_no_answer(talk, http, failure, kind, options):
    (result,), _ = talk(http("<html><h1>Log in</h1></html>", kind=kind), **options)
    error = failure(result)
    assert error.code is ErrorCode.PROVIDER_API_ERROR
    assert "an HTML page came" in error.message


@pytest.mark.parametrize("kind", ["text/plain", "text/markdown", "application/octet-stream", ""])
@pytest.mark.parametrize("page", ["\n <!DOCTYPE html>\n<p>Log in", '<HTML lang="en">', "<html>"])
def test_a_page_is_no_answer_whatever_it_is_sent_as(talk, http, failure, kind, page):
    (result,), _ = talk(http(page, kind=kind))
    assert "an HTML page came" in failure(result).message


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
    assert "connection refused" in error.message
    assert TOKEN not in repr(error)


def test_a_cut_connection_is_a_network_error(talk, failure):
    (result,), _ = talk(None)
    assert failure(result).code is ErrorCode.PROVIDER_NETWORK_ERROR


SLOW = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"


@pytest.mark.parametrize("answer", [SLOW, b""], ids=["in the body", "before the head"])
def test_a_timeout_covers_everything_and_closes_the_connection(make, ask, peer, failure, answer):
    async def run():
        async with peer(answer) as server, make(AgentTarget("s", "http", server.url)) as agent:
            result = await agent.send(ask(timeout_s=0.3))
            await asyncio.wait_for(server.left.wait(), 10)
            return result

    error = failure(asyncio.run(run()))
    assert error.code is ErrorCode.PROVIDER_TIMEOUT
    assert error.details["retryable"] is True
    assert "300 ms" in error.message
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


def test_the_conversation_goes_on_after_a_failed_try(talk, http, ask, failure, success):
    answers = [http({}, status=500), http({"message": "ok"})]
    (first, second), _ = talk(*answers, requests=[ask(), ask()])
    assert failure(first).details["retryable"] is True
    assert success(second).text == "ok"


def test_credentials_never_show(talk, http, failure):
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Api-Key": "k-planted-98765"}
    body = {"error": f"bad token {TOKEN} {'x' * 180}{TOKEN} k-planted-98765"}
    (result,), _ = talk(http(body, status=401), headers=headers)
    error = failure(result)
    assert "planted" not in repr(error)
    assert "[hidden]" in error.message


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_at_the_same_server_is_followed_as_it_is(talk, http, success, status):
    moved = http("", status=status, headers={"Location": "/chat/"})
    (result,), server = talk(moved, http({"message": "ok"}), headers={"X-Api-Key": TOKEN})
    assert success(result).text == "ok"
    assert [request.path for request in server.received] == ["/chat", "/chat/"]
    assert server.received[1].body == server.received[0].body
    assert server.received[1].headers["x-api-key"] == TOKEN


def test_a_redirect_elsewhere_is_not_followed(make, ask, peer, http, failure):
    async def run():
        async with peer(http({"message": "stolen"})) as thief:
            place = {"Location": f"{thief.url}/x?token={TOKEN}"}
            async with peer(http("", status=307, headers=place)) as server:
                target = AgentTarget("s", "http", server.url, {"Authorization": TOKEN})
                async with make(target) as agent:
                    return await agent.send(ask()), thief

    result, thief = asyncio.run(run())
    error = failure(result)
    assert error.details["status"] == 307
    assert thief.url in error.message
    assert TOKEN not in repr(error)
    assert thief.received == []


def test_a_redirect_that_turns_in_circles_ends(talk, http, failure):
    (result,), server = talk(http("", status=307, headers={"Location": "/chat"}))
    assert failure(result).details["status"] == 307
    assert len(server.received) < 20


def test_a_redirect_that_changes_the_method_is_told(talk, http, failure):
    (result,), server = talk(http("", status=302, headers={"Location": "/login"}))
    assert "/login" in failure(result).message
    assert len(server.received) == 1


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


@pytest.mark.parametrize("charset", ["idna", "zip", "undefined", "nonsense", "rot13", "utf-8\\"])
def test_a_charset_that_is_none_does_no_harm(peer, http, make, ask, success, charset):
    async def run():
        body = '{"message": "schön"}'
        answer = http(body, kind=f"application/json; charset={charset}")
        async with peer(answer) as it, make(AgentTarget("a", "http", it.url)) as agent:
            return await agent.send(ask())

    assert success(asyncio.run(run())).text == "schön"


@pytest.mark.parametrize(
    ("entry", "response"),
    [
        ({"output": None, "error": "boom"}, {"error": "boom"}),
        ({"output": "half", "error": "boom"}, {"error": "boom", "result": "half"}),
        ({"output": "x", "success": True, "error": None}, "x"),
    ],
)
def test_a_tool_that_failed_says_so(reply, entry, response):
    told = reply({"message": "ok", "tool_calls": [{"name": "a", **entry}]})
    assert told.tool_uses[0].response == response


def test_a_tool_without_success_failed(reply):
    told = reply({"message": "ok", "tool_calls": [{"name": "a", "output": 0, "success": False}]})
    assert set(told.tool_uses[0].response) == {"error", "result"}


@pytest.mark.parametrize("usage", [None, {}, "many"])
def test_a_usage_without_counts_does_not_hide_tokens(reply, usage):
    told = reply({"message": "ok", "usage": usage, "tokens": {"input": 3, "output": 4}})
    assert told.usage == Usage(3, 4)


STEPS = {"steps": [{"tool": "a"}], "tool_calls": [{"name": "b"}]}


def test_steps_count_before_tool_calls(reply):
    assert [use.call.name for use in reply({"message": "ok", **STEPS}).tool_uses] == ["a"]
    streamed = reply(f"data: {json.dumps(STEPS)}\n\n", kind="text/event-stream")
    assert [use.call.name for use in streamed.tool_uses] == ["a"]
    assert [use.call.name for use in reply({"message": "ok", **STEPS, "steps": []}).tool_uses] == [
        "b"
    ]


def test_more_than_any_answer_holds_is_refused(talk, http, failure):
    (result,), _ = talk(http({"message": "ok", "tool_calls": [{}] * 10_001}))
    assert "more than 10,000 tool calls" in failure(result).message
    (result,), _ = talk(http("data: x\n\n" * 100_001, kind="text/event-stream"))
    assert "more than 100,000 events" in failure(result).message


def test_a_long_answer_is_read_beside_the_event_loop(make, ask, peer, http, success, monkeypatch):
    read_in = []

    def parse(text):
        read_in.append(threading.current_thread())
        return parse_json(text)

    monkeypatch.setattr("kindlm.agents.http_agent.parse_json", parse)

    async def run():
        async with (
            peer(http({"message": "x" * 100_000})) as server,
            make(AgentTarget("shop", "http", server.url)) as agent,
        ):
            success(await agent.send(ask()))

    asyncio.run(run())
    assert threading.main_thread() not in read_in
    assert read_in
