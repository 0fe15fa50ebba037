"""Answers of HTTP agents that come as streams of events."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest
from options import options_of

from kindlm.errors import ErrorCode
from kindlm.suite import AgentTarget
from kindlm.transcript import Extras, ToolCall, Usage

STREAM = "text/event-stream; charset=utf-8"


@pytest.fixture
def talk_and_close(make, ask):
    """Return what comes of bytes after which the server closes the connection."""

    def talk_and_close(answer, adapter, **options):
        async def serve(reader, writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
            writer.write(answer)
            await writer.drain()
            writer.close()

        async def run():
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            known = options if adapter != "http" else {}
            async with (
                server,
                make(AgentTarget("shop", adapter, url, {}, options_of(adapter, known))) as agent,
            ):
                return await agent.send(ask())

        return asyncio.run(run())

    return talk_and_close


def events(*data) -> str:
    return "".join(
        f"data: {item if isinstance(item, str) else json.dumps(item)}\n\n" for item in data
    )


@pytest.mark.parametrize(
    "event", [{"tool_calls": {"name": "t"}}, {"choices": [{"delta": {"tool_calls": ["t"]}}]}]
)
def test_tool_calls_in_a_stream_that_cannot_be_read_are_an_error(talk, http, failure, event):
    (result,), _ = talk(http(events({"text": "a"}, event), kind=STREAM))
    assert "tool calls" in failure(result).message


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


def piece(call_id, name, arguments, **more):
    return {"id": call_id, "function": {"name": name, "arguments": arguments}, **more}


@pytest.mark.parametrize(
    "deltas",
    [
        [[piece("c1", "look", "{}", index=0)], [piece("c2", "pay", '{"id":1}', index=0)]],
        [[piece("c1", "look", "{}")], [piece("c2", "pay", {"id": 1})]],
        [[piece(None, "look", "{}"), piece(None, "pay", '{"id":1}')]],
        [[piece(None, "look", "{}", index=0)], [piece(None, "pay", '{"id":1}', index=0)]],
        [
            [piece("c1", "look", "{}", index=0)],
            [piece("c2", "pay", '{"id"', index=1)],
            [piece("c2", "pay", ":1}", index=1)],
        ],
    ],
)
def test_calls_in_one_stream_are_told_apart(reply, deltas):
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": calls}}]} for calls in deltas]
    told = reply(events(*chunks, "[DONE]"), kind=STREAM)
    assert [(use.call.name, use.call.arguments) for use in told.tool_uses] == [
        ("look", {}),
        ("pay", {"id": 1}),
    ]


def test_chunks_of_a_message_may_have_ids_of_their_own(reply):
    pieces = [piece("c1", "pay", '{"id"', index=0)], [piece(None, None, ":1}", index=0)]
    chunks = [
        {"id": f"chunk-{number}", "choices": [{"index": 0, "delta": {"tool_calls": calls}}]}
        for number, calls in enumerate(pieces)
    ]
    told = reply(events(*chunks, "[DONE]"), kind=STREAM)
    assert [(use.call.name, use.call.arguments) for use in told.tool_uses] == [("pay", {"id": 1})]


def test_the_calls_of_several_messages_of_anthropic_are_told_apart(reply):
    def message(block):
        start = {"type": "content_block_start", "index": 0, "content_block": block}
        return ({"type": "message_start", "message": {}}, start, {"type": "message_stop"})

    look, pay = ({"type": "tool_use", "id": it, "name": it, "input": {}} for it in ("look", "pay"))
    said = {"type": "text", "text": "Paid."}
    body = events(*message(look), *message(pay), *message(said))
    told = reply(body, kind=STREAM)
    assert [use.call.name for use in told.tool_uses] == ["look", "pay"]
    assert told.text == "Paid."


CALLED, ANSWERED = (
    Usage(100, 50),
    Usage(200, 20, Extras(cache_read=150)),
)


def anthropic_message(block, usage):
    cached = usage.extras.cache_read if usage.extras else 0
    begun = {"input_tokens": usage.input_tokens - cached, "cache_read_input_tokens": cached}
    return (
        {"type": "message_start", "message": {"usage": begun | {"output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": usage.output_tokens}},
        {"type": "message_stop"},
    )


def completion(name, delta, usage):
    cached = {"cached_tokens": usage.extras.cache_read} if usage.extras else {}
    counts = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
    return (
        {"id": name, "choices": [{"index": 0, "delta": delta}]},
        {"id": name, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"id": name, "choices": [], "usage": counts | {"prompt_tokens_details": cached}},
    )


def response(item, usage, status="completed"):
    cached = {"cached_tokens": usage.extras.cache_read} if usage.extras else {}
    counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    whole = {"object": "response", "status": status, "output": [item]}
    return (
        {"type": "response.created", "response": {"object": "response", "output": []}},
        {
            "type": f"response.{status}",
            "response": whole | {"usage": counts | {"input_tokens_details": cached}},
        },
    )


def called(name):
    return {"type": "function_call", "call_id": name, "name": name, "arguments": "{}"}


FORWARDED = {
    "Anthropic messages": (
        *anthropic_message({"type": "tool_use", "id": "c1", "name": "pay", "input": {}}, CALLED),
        *anthropic_message({"type": "text", "text": "Paid."}, ANSWERED),
    ),
    "chat completions": (
        *completion("a", {"tool_calls": [piece("c1", "pay", "{}", index=0)]}, CALLED),
        *completion("b", {"content": "Paid."}, ANSWERED),
    ),
    "OpenAI responses": (
        *response(called("pay"), CALLED),
        *response(
            {"type": "message", "content": [{"type": "output_text", "text": "Paid."}]}, ANSWERED
        ),
    ),
}


@pytest.mark.parametrize("told", FORWARDED.values(), ids=FORWARDED)
def test_the_tokens_of_all_messages_that_an_agent_forwards_count(reply, told):
    read = reply(events(*told, "[DONE]"), kind=STREAM)
    assert (read.text, [use.call.name for use in read.tool_uses]) == ("Paid.", ["pay"])
    assert read.usage == Usage(300, 70, Extras(cache_read=150))


@pytest.mark.parametrize(
    ("models", "costs", "model", "cost"),
    [
        (("m-1", "m-1"), (0.25, 0.5), "m-1", 0.75),
        (("m-1", "m-2"), (None, None), None, None),
        (("m-1", None), (0.25, None), "m-1", None),
    ],
)
@pytest.mark.parametrize("name", FORWARDED)
def test_messages_of_several_models_have_no_price(reply, name, models, costs, model, cost):
    """Nor have they a cost of which only a part is known."""
    told, about = list(FORWARDED[name]), list(zip(models, costs, strict=True))
    half = len(told) // 2
    for at, event in enumerate(told):
        named = dict(zip(("model", "cost"), about[at >= half], strict=True))
        for part in ("message", "response") if name != "chat completions" else ():
            if part in event:
                told[at] = event | {part: event[part] | named}
        if name == "chat completions":
            told[at] = event | named
    read = reply(events(*told, "[DONE]"), kind=STREAM)
    assert (read.model, read.reported_cost_usd) == (model, cost)


def test_the_tokens_of_messages_of_which_one_reports_none_are_unknown(reply):
    told = [event | {"model": "m-1"} for event in FORWARDED["chat completions"]]
    silent = [event for event in told if event.get("usage") != told[2]["usage"]]
    assert len(silent) == len(told) - 1
    read = reply(events(*silent, "[DONE]"), kind=STREAM)
    assert (read.usage, read.model) == (Usage(), "m-1")


def test_a_number_of_tokens_that_one_message_does_not_report_is_unknown(reply):
    told = [event | {"model": "m-1"} for event in FORWARDED["chat completions"]]
    (last,) = [event for event in told if event.get("usage") == told[2]["usage"]]
    partly = {"completion_tokens": last["usage"]["completion_tokens"]}
    told[told.index(last)] = last | {"usage": partly}
    read = reply(events(*told, "[DONE]"), kind=STREAM)
    assert read.usage.input_tokens is None
    assert read.usage.output_tokens


@pytest.mark.parametrize("name", ["Anthropic messages", "chat completions"])
def test_the_tokens_that_an_agent_counts_itself_are_not_added_to_those_of_its_model(reply, name):
    own = {"type": "done", "usage": {"input_tokens": 310, "output_tokens": 75}}
    read = reply(events(*FORWARDED[name], own), kind=STREAM)
    assert (read.usage.input_tokens, read.usage.output_tokens) == (310, 75)


def test_the_calls_of_all_responses_that_an_agent_forwards_count(reply):
    told = [*response(called("look"), CALLED), *response(called("pay"), CALLED)]
    read = reply(events(*told, {"type": "done"}, "[DONE]"), kind=STREAM)
    assert [use.call.name for use in read.tool_uses] == ["look", "pay"]


def test_the_last_of_several_responses_decides_whether_the_agent_failed(talk, http, failure, reply):
    said = {"type": "message", "content": [{"type": "output_text", "text": "Paid."}]}
    failed, good = response(said, CALLED, "failed"), response(said, CALLED)
    assert reply(events(*failed, *good, "[DONE]"), kind=STREAM).usage == Usage(200, 100)
    (result,), _ = talk(http(events(*good, *failed, "[DONE]"), kind=STREAM))
    error = failure(result)
    assert error.code is ErrorCode.PROVIDER_API_ERROR


def test_text_between_the_messages_of_a_model_keeps_its_place(reply):
    block = {"type": "text", "text": "A"}, {"type": "text", "text": "C"}
    told = [
        *anthropic_message(block[0], CALLED),
        {"text": "B"},
        *anthropic_message(block[1], CALLED),
    ]
    assert reply(events(*told), kind=STREAM).text == "ABC"


def test_a_call_in_another_choice_is_a_call_and_its_text_is_none(reply):
    other = {"index": 1, "delta": {"content": "B", "tool_calls": [piece("c1", "pay", "{}")]}}
    told = reply(
        events({"choices": [other]}, {"choices": [{"delta": {"content": "A"}}]}, "[DONE]"),
        kind=STREAM,
    )
    assert told.text == "A"
    assert [use.call.name for use in told.tool_uses] == ["pay"]


def test_a_stream_of_content_blocks_is_put_together(reply):
    tool = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    usage = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 20,
        "cache_creation": {"ephemeral_1h_input_tokens": 20},
    }
    body = events(
        {"type": "message_start", "message": {"model": "c-1", "usage": usage}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_start", "index": 1, "content_block": tool},
        {"type": "content_block_delta", "index": 1, "delta": {"partial_json": '{"id":1'}},
        {"type": "content_block_delta", "index": 1, "delta": {"partial_json": "}"}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 6}},
        {"type": "message_stop"},
    )
    told = reply(body, kind=STREAM)
    assert told.text == "Hi"
    assert [use.call for use in told.tool_uses] == [ToolCall("t1", "look", {"id": 1})]
    cache = Extras(cache_written=20, written_1h=20)
    assert (told.usage, told.model) == (Usage(25, 6, cache), "c-1")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("event: msg\ndata:plain words\n", "plain words"),
        (": comment\ndata: a\ndata: b\n\nid: 7\nretry: 5\n\ndata: c\n\n", "a\nbc"),
        ("data: a\r\n\r\ndata: b\r\rdata: c\u2028d\n\n", "abc\u2028d"),
        ('data: "quo\\"ted"\n\ndata: 5\n\n', 'quo"ted5'),
        (events({"text": "a"}, {"type": "ping"}, {"message": "b"}), "ab"),
        (events({"content": [{"type": "text", "text": "X"}, {"type": "text", "text": "Y"}]}), "XY"),
        (events({"type": "message_delta", "delta": {"text": "a"}}, {"type": "message_stop"}), "a"),
        ("\ufeffdata: a\n\n", "a"),
        ("", ""),
    ],
)
def test_events_are_read_by_the_rules(reply, body, text):
    assert reply(body, kind=STREAM).text == text


def refund(number, **more):
    return {"function": {"name": "refund", "arguments": json.dumps({"id": number})}, **more}


@pytest.mark.parametrize(
    ("told", "ids"),
    [
        # Pieces, and all of them in the last event.
        (
            [
                {"choices": [{"delta": {"tool_calls": [refund(1, id="c1", index=0)]}}]},
                {"choices": [{"message": {"tool_calls": [refund(1, id="c1"), refund(2)]}}]},
            ],
            [1, 2],
        ),
        ([{"choices": [{"delta": {"function_call": refund(1)["function"]}}]}, refund(1)], [1]),
        # All that there is by now, again and again.
        (
            [
                {"steps": [{"id": "c1", "tool": "refund"}]},
                {"tool_calls": [refund(1, id="c1")]},
                {"tool_calls": [refund(1, id="c1"), refund(1, id="c2")]},
            ],
            [1, 1],
        ),
        # Each call when it happens: without ids nobody knows that they are one.
        ([{"tool_calls": [refund(1)]}, {"tool_calls": [refund(1)]}], [1, 1]),
        # Some agents use ids again.
        ([{"tool_calls": [refund(1, id="c")]}, {"tool_calls": [refund(2, id="c")]}], [1, 2]),
    ],
)
def test_a_call_that_a_stream_reports_twice_is_one(reply, told, ids):
    told = [event if "function" not in event else {"tool_calls": [event]} for event in told]
    read = reply(events({"text": "a"}, *told, "[DONE]"), kind=STREAM)
    assert [use.call.arguments["id"] for use in read.tool_uses] == ids


def test_what_the_last_event_says_of_separate_prices_counts(reply):
    begun = {"input_tokens": 3, "output_tokens": 1, "cache_read_input_tokens": 7}
    ended = {"output_tokens": 5, "server_tool_use": {"web_search_requests": 2}}
    told = [
        {"type": "message_start", "message": {"usage": begun}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": ended},
        {"type": "message_stop"},
    ]
    read = reply(events(*told), kind=STREAM)
    assert read.usage == Usage(10, 5, Extras(cache_read=7, searches=2))


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


@pytest.mark.parametrize("adapter", ["http", "streaming", "langgraph"])
@pytest.mark.parametrize(
    "cut", ["event: tool_call", "event: tool_call\n", "event: tool_call\r\nda"]
)
def test_a_last_event_that_was_cut_off_before_its_data_is_no_answer(
    talk, http, failure, adapter, cut
):
    (result,), _ = talk(http(events({"text": "ok"}) + cut, kind=STREAM), adapter=adapter)
    assert "the stream broke off" in failure(result).message


def test_an_end_needs_no_data_nor_a_complete_event_without_data(reply):
    body = "event: ping\n\n" + events({"text": "ok"})
    assert reply(body + "event: done\n", kind=STREAM).text == "ok"
    assert reply(body + "event: ping\n\n", kind=STREAM).text == "ok"


CUT = '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"refu'


@pytest.mark.parametrize("data", [({"text": "ok"}, CUT), (CUT,), (CUT, {"text": "ok"}, "[DONE]")])
def test_a_stream_that_was_cut_off_within_an_event_is_no_answer(talk, http, failure, data):
    (result,), _ = talk(http(events(*data), kind=STREAM))
    assert f"event {data.index(CUT) + 1} is not JSON" in failure(result).message


def test_a_text_in_pieces_may_be_json(reply):
    assert reply(events('{"id', '": 1', "}"), kind=STREAM).text == '{"id": 1}'


CHUNK = {"choices": [{"delta": {"content": "ok"}}]}
MESSAGE = {"type": "message", "content": [{"type": "output_text", "text": "ok"}]}
FORMATS = [
    ([CHUNK], {"choices": [{"delta": {}, "finish_reason": "stop"}]}),
    (
        [{"type": "message_start", "message": {}}, {"type": "content_block_delta", "index": 0}],
        {"type": "message_stop"},
    ),
    ([{"type": "start"}, {"type": "text-delta", "id": "1", "delta": "ok"}], {"type": "finish"}),
    (
        [{"type": "response.output_item.done", "item": MESSAGE}],
        {"type": "response.completed", "response": {"output": [MESSAGE]}},
    ),
    ([{"response": "ok", "done": False}], {"done": True}),
]


@pytest.mark.parametrize(
    ("told", "end", "adapter"),
    [(*told, "streaming" if number % 2 else "http") for number, told in enumerate(FORMATS)],
)
def test_a_stream_without_the_end_of_its_format_is_no_answer(
    talk, http, failure, success, told, end, adapter
):
    (result,), _ = talk(http(events(*told), kind=STREAM), adapter=adapter)
    assert "the stream broke off" in failure(result).message
    for last in (end, "[DONE]"):
        (result,), _ = talk(http(events(*told, last), kind=STREAM), adapter=adapter)
        success(result)


def test_a_response_that_broke_off_before_its_text_says_so(talk, http, failure):
    begun = {"type": "response.created", "response": {"output": []}}
    (result,), _ = talk(http(events(begun), kind=STREAM))
    assert "the stream broke off" in failure(result).message


def test_the_text_of_chunks_is_at_the_path_that_is_given(reply):
    chunks = [{**CHUNK, "said": text} for text in ("a", "b")]
    assert reply(events(*chunks, "[DONE]"), kind=STREAM, responsePath="said").text == "ab"


@pytest.mark.parametrize("adapter", ["http"])
def test_the_end_of_one_model_call_is_not_that_of_those_after_it(talk, http, failure, adapter):
    first_ends = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    (result,), _ = talk(http(events(CHUNK, first_ends, CHUNK), kind=STREAM), adapter=adapter)
    assert "the stream broke off" in failure(result).message


OWN = events({"type": "message", "content": "ok"})
HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = f"{HEAD}transfer-encoding: chunked\r\n\r\n{len(OWN):x}\r\n{OWN}\r\n"


@pytest.mark.parametrize("adapter", ["http", "streaming", "langgraph"])
@pytest.mark.parametrize(
    "answer",
    [
        f"{HEAD}content-length: {len(OWN)}\r\n\r\n{OWN}",
        f"{CHUNKED}0\r\n\r\n",
        f"{HEAD}connection: close\r\n\r\n{OWN}data: [DONE]\n\n",
        f"{HEAD}connection: close\r\n\r\n{OWN}event: end\ndata: null\n\n",
    ],
)
def test_events_without_a_format_end_with_the_body_or_by_an_event(
    talk_and_close, success, answer, adapter
):
    assert success(talk_and_close(answer.encode(), adapter, streaming=True)).text == "ok"


@pytest.mark.parametrize("adapter", ["http", "streaming", "langgraph"])
@pytest.mark.parametrize(
    "answer",
    [
        f"{HEAD}connection: close\r\n\r\n{OWN}",
        f"{HEAD}connection: close\r\n\r\n: ping\n\n",
        CHUNKED,
        f"{HEAD}content-length: 999\r\n\r\n{OWN}",
    ],
)
def test_a_connection_that_just_closes_is_no_end(talk_and_close, failure, answer, adapter):
    error = failure(talk_and_close(answer.encode(), adapter, streaming=True))
    # A secret that comes in pieces is not recognised in a part of a stream.
    assert "data:" not in error.message.replace("`data: [DONE]`", "")


def chat(reason, **delta):
    return events({"choices": [{"delta": delta, "finish_reason": reason}]}, "[DONE]")


@pytest.mark.parametrize("adapter", ["http", "streaming"])
@pytest.mark.parametrize("size", [1, 64, 10_000])
def test_a_message_that_calls_tools_does_not_end_the_stream(make, ask, success, adapter, size):
    """An agent that passes on the streams of its model has a `[DONE]` after each."""
    called = [
        chat("tool_calls", tool_calls=[{"index": 0, "id": name, "function": {"name": name}}])
        for name in ("look", "pay")
    ]
    body = (HEAD + "\r\n" + "".join(called) + chat("stop", content="Paid.")).encode()

    async def serve(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        await reader.readexactly(int(head.partition("content-length:")[2].split()[0]))
        for at in range(0, len(body), size):
            writer.write(body[at : at + size])
            await writer.drain()
            await asyncio.sleep(0)
        with suppress(ConnectionError):
            await reader.read()  # leaves the connection open
        writer.close()
        closed.set()

    closed = asyncio.Event()

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server:
            async with make(AgentTarget("shop", adapter, url)) as agent:
                told = await agent.send(ask())
            await closed.wait()
            return told

    told = success(asyncio.run(run()))
    assert ([use.call.name for use in told.tool_uses], told.text) == (["look", "pay"], "Paid.")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-ndjson", "application/json"])
@pytest.mark.parametrize("adapter", ["http", "streaming"])
def test_a_connection_that_closes_without_any_text_is_no_answer(
    talk_and_close, failure, adapter, kind
):
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n"
    failure(talk_and_close(head.encode(), adapter))


@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_a_compressed_body_is_no_answer(talk, failure, encoding):
    head = f"{HEAD}content-encoding: {encoding}\r\ncontent-length: 2\r\n\r\n"
    (result,), server = talk(head.encode() + b"xx")
    assert server.received[0].headers["accept-encoding"] == "identity"
    error = failure(result)
    assert error.message == f"Agent 'shop' returned 200 with a compressed body ({encoding})"
    assert "Turn compression off" in (error.hint or "")


@pytest.mark.parametrize(("status", "retryable"), [("200 OK", False), ("503 Busy", True)])
def test_a_compressed_answer_is_not_asked_for_again(talk, failure, status, retryable):
    head = f"HTTP/1.1 {status}\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n"
    (result,), _ = talk(head.encode() + b"xx")
    assert failure(result).details["retryable"] is retryable


@pytest.mark.parametrize("adapter", ["http", "streaming"])
@pytest.mark.parametrize(
    ("event", "name"),
    [
        ({"type": "tool_start", "name": "refund"}, "unknown"),
        ({"type": "function_called", "function": "refund"}, "unknown"),
        ({"type": "message", "tool_calls": [{"id": "c", "name": "refund"}]}, "refund"),
        ({"toolCalls": [{"toolCallId": "c", "toolName": "refund"}]}, "refund"),
        ({"choices": [{"delta": {"toolCalls": [{"name": "refund"}]}}]}, "unknown"),
        ([{"type": "token", "text": "a"}, {"type": "tool_call", "name": "refund"}], "unknown"),
    ],
)
def test_events_of_tools_are_calls_in_whatever_words(talk, http, success, adapter, event, name):
    (result,), _ = talk(
        http(events(event, event, {"text": "ok"}, "[DONE]"), kind=STREAM), adapter=adapter
    )
    assert [use.call.name for use in success(result).tool_uses] == [name]
    assert success(result).text == "ok"


@pytest.mark.parametrize(("adapter", "name"), [("http", "unknown"), ("streaming", "refund")])
def test_an_event_that_is_named_for_a_tool_is_a_call_whatever_the_type_in_it(
    talk, http, success, adapter, name
):
    told = f"""event: tool_call\ndata: {json.dumps({"type": "start", "name": "refund"})}\n\n"""
    told += f"""event: token\ndata: {json.dumps({"text": "ok"})}\n\n"""
    (result,), _ = talk(http(told, kind=STREAM), adapter=adapter)
    assert [use.call.name for use in success(result).tool_uses] == [name]


CALL = {"name": "refund", "args": {"order": "A1"}, "id": "c1", "type": "tool_call"}
SAID = {"content": "Done.", "additional_kwargs": {}, "type": "ai", "tool_calls": [], "id": "run-2"}
ASKED = {**SAID, "content": "", "tool_calls": [CALL], "id": "run-1"}


@pytest.mark.parametrize(
    "event",
    [
        {"messages": [ASKED, SAID]},  # stream_mode="values"
        {"model": {"messages": [SAID]}},  # "updates"
        [SAID, {"langgraph_node": "model"}],  # "messages"
        ["updates", {"model": {"messages": [ASKED]}}],  # several modes
        [["desk:7fed"], {"model": {"messages": [SAID]}}],  # subgraphs=True
        {"type": "updates", "ns": [], "data": {"model": {"messages": [SAID]}}},  # version="v2"
        {"event": "on_chat_model_end", "run_id": "r1", "data": {"output": ASKED}},
        {"ops": [{"op": "add", "path": "/streamed_output/-", "value": {"messages": [SAID]}}]},
    ],
)
@pytest.mark.parametrize("adapter", ["http", "streaming"])
def test_a_stream_of_a_graph_names_the_adapter_that_reads_it(talk, http, failure, event, adapter):
    (result,), _ = talk(http(events(event), kind=STREAM), adapter)
    assert "`adapter: langgraph`" in failure(result).hint


def test_messages_beside_what_was_read_are_no_error(reply):
    called = {"tool_calls": [{"name": "refund", "arguments": {}}]}
    for event in ({"text": "Done."}, called):
        body = events({"messages": [{"role": "user", "content": "Hi"}]}, event)
        answer = reply(body, kind=STREAM)
        assert answer.text or answer.tool_uses


def chunk(content="", *pieces, **more):
    """Return a chunk of LangChain, with pieces of calls: (name, args, id)."""
    pieces = [dict(zip(("name", "args", "id"), each, strict=True), index=0) for each in pieces]
    # LangChain itself reads each piece as a call.
    calls = [{"name": it["name"] or "", "args": {}, "id": it["id"]} for it in pieces]
    parts = {"tool_calls": calls, "tool_call_chunks": pieces, "type": "AIMessageChunk"}
    return {"content": content, "additional_kwargs": {}, "id": "lc_run--1"} | parts | more


def test_chunks_of_langchain_are_one_call(reply):
    body = events(
        chunk("Done"),
        chunk(".", ("refund", "", "c1")),
        chunk("", (None, '{"order": ', None)),
        chunk("", (None, '"A1"}', None)),
        chunk(chunk_position="last"),
    )
    answer = reply(body, kind=STREAM)
    assert answer.text == "Done."
    assert [use.call for use in answer.tool_uses] == [ToolCall("c1", "refund", {"order": "A1"})]
    assert answer.warnings == ()


def test_a_call_whose_chunks_are_cut_off_is_still_one(reply):
    body = events(chunk("", ("refund", '{"order": ', "c1")))
    (use,) = reply(body, kind=STREAM).tool_uses
    assert (use.call.name, use.call.malformed) == ("refund", '{"order": ')


def test_no_chunk_takes_back_a_call(reply):
    called = {"tool_calls": [{"name": "refund", "args": {}, "id": "c1"}], "tool_call_chunks": []}
    answer = reply(events(chunk("", **called), chunk(chunk_position="last")), kind=STREAM)
    assert [use.call.name for use in answer.tool_uses] == ["refund"]


def test_chunks_of_any_content_are_read(reply):
    odd = {"id": [1], "usage_metadata": [1], "response_metadata": 7, "additional_kwargs": "a"}
    pieces = [{"index": {}, "name": 7, "args": {}, "id": []}, "x"]
    body = events(chunk("Hi", **odd, tool_call_chunks=pieces), chunk(**odd, tool_calls=None))
    answer = reply(body, kind=STREAM)
    assert (answer.text, len(answer.tool_uses)) == ("Hi", 1)
