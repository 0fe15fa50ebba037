"""What answers of each wire format say, with bodies as their providers document them.

A stream says what the same answer says as JSON, and one that is cut anywhere never passes for it.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm.transcript import Extras, FinishReason, ToolCall, Usage
from kindlm.wires import Wire, WireAnswer
from kindlm.wires.reading import read_answer, read_request

CALL = ToolCall("c1", "refund", {"order": 7})
RAW = ToolCall("c2", "notify", {}, malformed='{"to": ')


CHAT_USAGE = {"prompt_tokens": 10, "completion_tokens": 5}


def chat(message: dict[str, Any], reason: str = "stop") -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-x",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens": 5,
            "total_tokens": 17,
        },
    }


def response(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "model": "gpt-x",
        "status": "completed",
        "error": None,
        "output": list(items),
        "usage": {
            "input_tokens": 12,
            "input_tokens_details": {"cached_tokens": 2},
            "output_tokens": 5,
            "total_tokens": 17,
        },
        **more,
    }


def message(*blocks: dict[str, Any], reason: str = "end_turn") -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": list(blocks),
        "stop_reason": reason,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 2, "output_tokens": 5},
    }


def said(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}


def function(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


CHAT = chat(
    {
        "content": "One moment.",
        "tool_calls": [
            function("c1", "refund", '{"order": 7}'),
            function("c2", "notify", '{"to": '),
        ],
    },
    "tool_calls",
)
RESPONSES = response(
    {"type": "reasoning", "id": "rs_1", "summary": []},
    said("One moment."),
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c1",
        "name": "refund",
        "arguments": '{"order": 7}',
    },
    {
        "type": "function_call",
        "id": "fc_2",
        "call_id": "c2",
        "name": "notify",
        "arguments": '{"to": ',
    },
)
ANTHROPIC = message(
    {"type": "thinking", "thinking": "Hm.", "signature": "x"},
    {"type": "text", "text": "One moment."},
    {"type": "tool_use", "id": "c1", "name": "refund", "input": {"order": 7}},
    {"type": "tool_use", "id": "c2", "name": "notify", "input": '{"to": '},
    reason="tool_use",
)
BODIES: dict[Wire, dict[str, Any]] = {
    "chat": CHAT,
    "responses": RESPONSES,
    "anthropic": ANTHROPIC,
}


def sse(*events: dict[str, Any] | str) -> str:
    return "".join(
        f"data: {event}\n\n"
        if isinstance(event, str)
        else f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        if "type" in event
        else f"data: {json.dumps(event)}\n\n"
        for event in events
    )


def delta(said: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": said, "finish_reason": reason}
    return {"id": "chatcmpl-1", "model": "gpt-x", "choices": [choice]}


def piece(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": more.pop("name")} if "name" in more else {})
    return delta({"tool_calls": [{"index": index, "function": function, **more}]})


def block(index: int, opening: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": opening},
        *({"type": "content_block_delta", "index": index, "delta": part} for part in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def written(*pieces: str) -> list[dict[str, Any]]:
    return [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


STREAMS: dict[Wire, str] = {
    "chat": sse(
        delta({"role": "assistant", "content": ""}),
        delta({"content": "One "}),
        delta({"content": "moment."}),
        piece(0, "", id="c1", name="refund"),
        piece(1, '{"to"', id="c2", name="notify"),
        piece(0, '{"order"'),
        piece(0, ": 7}"),
        piece(1, ": "),
        delta({}, "tool_calls"),
        {"id": "chatcmpl-1", "choices": [], "usage": CHAT["usage"]},
        "[DONE]",
    ),
    "responses": sse(
        {
            "type": "response.created",
            "response": RESPONSES | {"status": "in_progress", "output": []},
        },
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "One "},
        {"type": "response.output_item.done", "output_index": 1, "item": said("One moment.")},
        {"type": "response.completed", "response": RESPONSES},
    ),
    "anthropic": sse(
        {"type": "message_start", "message": message() | {"stop_reason": None}},
        {"type": "ping"},
        *block(
            0, {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "Hm"}
        ),
        *block(
            1,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "One "},
            {"type": "text_delta", "text": "moment."},
        ),
        *block(
            2,
            {"type": "tool_use", "id": "c1", "name": "refund", "input": {}},
            *written("", '{"order"', ": 7}"),
        ),
        *block(
            3, {"type": "tool_use", "id": "c2", "name": "notify", "input": {}}, *written('{"to": ')
        ),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ),
}


@pytest.mark.parametrize("wire", BODIES)
def test_an_answer_has_text_calls_usage_and_why_it_ended(wire: Wire) -> None:
    answer = read_answer(wire, "application/json", json.dumps(BODIES[wire]))

    assert answer == WireAnswer(
        text="One moment.",
        tool_calls=(CALL, RAW),
        usage=Usage(12, 5, Extras(cache_read=2)),
        finish_reason=FinishReason.TOOL_CALLS,
        model=BODIES[wire]["model"],
        id=BODIES[wire]["id"],
    )


@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource"])
def test_an_answer_that_its_server_did_not_finish_is_none(reason: str) -> None:
    whole = json.dumps(chat({"content": "I refunded"}, reason))
    chunk = {"choices": [{"index": 0, "delta": {"content": "I refunded"}, "finish_reason": reason}]}
    for body in (whole, f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"):
        answer = read_answer("chat", "", body)
        assert (answer.error, answer.complete) == ("an error cut it off", False)


def test_searches_of_the_web_are_counted_and_looks_at_pages_are_not() -> None:
    items = [
        {"type": "web_search_call", "id": f"ws_{kind}", "action": {"type": kind}}
        for kind in ("search", "open_page", "find")
    ]
    answer = read_answer("responses", "", json.dumps(response(*items, {"type": "message"})))
    assert answer.usage == Usage(12, 5, Extras(cache_read=2, searches=1))


def test_searches_of_files_are_counted() -> None:
    items = [{"type": "file_search_call", "id": f"fs_{number}"} for number in range(2)]
    answer = read_answer("responses", "", json.dumps(response(*items, {"type": "message"})))
    assert answer.usage == Usage(12, 5, Extras(cache_read=2, file_searches=2))


@pytest.mark.parametrize("wire", BODIES)
@pytest.mark.parametrize(("told", "tier"), [("priority", "priority"), ("default", None)])
def test_the_tier_of_service_of_an_answer_is_known(wire: Wire, told: str, tier: str) -> None:
    body = BODIES[wire]
    if wire == "anthropic":
        body = {**body, "usage": {**body["usage"], "service_tier": told}}
    answer = read_answer(wire, "", json.dumps({**body, "service_tier": told}))
    assert answer.usage == Usage(12, 5, Extras(cache_read=2, tier=tier))


def test_the_tier_of_service_of_a_stream_is_known() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    chunk |= {"service_tier": "flex", "usage": usage}
    answer = read_answer("chat", "", f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")
    assert answer.usage == Usage(10, 5, Extras(tier="flex"))


def test_counts_that_the_end_of_a_stream_leaves_open_are_those_of_its_beginning() -> None:
    begun, ended = {"input_tokens": 10, "output_tokens": 1}, {"input_tokens": None}
    stream = sse(
        {
            "type": "message_start",
            "message": message({"type": "text", "text": "Hi"}) | {"usage": begun},
        },
        {"type": "message_delta", "delta": {}, "usage": ended | {"output_tokens": 5}},
        {"type": "message_stop"},
    )
    assert read_answer("anthropic", "", stream).usage == Usage(10, 5)


@pytest.mark.parametrize("ended", [{}, {"usage": {}}, {"usage": {"input_tokens": 10}}])
def test_the_beginning_of_a_stream_does_not_count_what_was_written(ended: dict[str, Any]) -> None:
    begun = {"content": [], "usage": {"input_tokens": 10, "output_tokens": 1}}
    block = {"type": "text", "text": "Hi"}
    stream = sse(
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, **ended},
        {"type": "message_stop"},
    )
    assert read_answer("anthropic", "", stream).usage == Usage(10, None)


@pytest.mark.parametrize("count", ["1000", -1, 2.5, [1000], {"n": 1000}, 10**30])
def test_tokens_of_a_cache_that_cannot_be_read_are_not_0(count: Any) -> None:
    for key in ("cache_read_input_tokens", "cache_creation_input_tokens"):
        counts = {"input_tokens": 10, "output_tokens": 5, key: count}
        body = message({"type": "text", "text": "Hi"}) | {"usage": counts}
        assert read_answer("anthropic", "", json.dumps(body)).usage.input_tokens is None
    counts = {"input_tokens": 10, "output_tokens": 5, "server_tool_use": {}}
    counts["server_tool_use"] = {"web_search_requests": count}
    body = message({"type": "text", "text": "Hi"}) | {"usage": counts}
    assert read_answer("anthropic", "", json.dumps(body)).usage == Usage(
        10, 5, Extras(unpriced=True)
    )


def test_the_fast_mode_of_anthropic_is_a_tier() -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "service_tier": "standard", "speed": "fast"}
    answer = read_answer("anthropic", "", json.dumps({**BODIES["anthropic"], "usage": usage}))
    assert answer.usage == Usage(10, 5, Extras(tier="fast"))


def test_anthropics_inference_in_the_us_alone_is_known() -> None:
    for told, us_only in (("us", True), ("global", False), ("not_available", False)):
        usage = {"input_tokens": 10, "output_tokens": 5, "inference_geo": told}
        answer = read_answer("anthropic", "", json.dumps({**BODIES["anthropic"], "usage": usage}))
        assert answer.usage == Usage(10, 5, Extras(us_only=True) if us_only else None)


@pytest.mark.parametrize(
    ("kinds", "unpriced"),
    [
        (["code_interpreter_call"], True),
        (["image_generation_call", "file_search_call"], True),
        (["web_search_call", "mcp_call", "tool_search_call"], False),
    ],
)
def test_tools_that_openai_runs_for_an_unknown_fee_are_known(
    kinds: list[str], unpriced: bool
) -> None:
    items = [{"type": kind, "id": f"{kind}_1", "name": "n"} for kind in kinds]
    own = {"type": "shell_call", "call_id": "c1", "id": "sh_1"}
    answer = read_answer("responses", "", json.dumps(response(*items, own, {"type": "message"})))
    assert answer.usage.extras is not None
    assert answer.usage.extras.unpriced is unpriced
    output = {"type": "shell_call_output", "call_id": "c1", "output": []}
    answer = read_answer("responses", "", json.dumps(response(own, output, {"type": "message"})))
    assert answer.usage.extras is not None
    assert answer.usage.extras.unpriced


@pytest.mark.parametrize("kind", [None, "", "tool", "function_call "])
def test_an_item_with_the_id_of_a_call_is_one_whatever_its_type(kind: str | None) -> None:
    item = {"type": kind, "call_id": "c1", "name": "refund", "arguments": "{}"}
    answer = read_answer("responses", "", json.dumps(response(item, said("Hi"))))
    assert answer.error or [call.name for call in answer.tool_calls] == ["refund"]


def test_a_message_whose_call_id_is_null_is_no_call() -> None:
    item = {"id": "msg_1", "name": None, "call_id": None, "arguments": None, **said("Hi")}
    answer = read_answer("responses", "", json.dumps(response(item)))
    assert (answer.error, answer.text, answer.tool_calls) == (None, "Hi", ())


def test_an_item_of_a_response_without_a_type_is_no_answer() -> None:
    answer = read_answer("responses", "", json.dumps(response({"payload": {}}, said("Hi"))))
    assert answer.error == "its `output` holds something that is not an item"


@pytest.mark.parametrize("kind", [{}, {"type": None}, {"type": ""}])
def test_a_block_without_a_type_is_no_answer(kind: dict[str, Any]) -> None:
    block = {**kind, "id": "c1", "name": "refund", "input": {}}
    answer = read_answer("anthropic", "", json.dumps({"content": [block]}))
    assert answer.error == "its `content` holds something that is not a block"


def test_a_call_whose_name_is_empty_is_no_answer() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "", "arguments": "{}"}
    used = {"type": "tool_use", "id": "c1", "name": "", "input": {}}
    for wire, body in ("responses", response(call)), ("anthropic", {"content": [used]}):
        assert read_answer(wire, "", json.dumps(body)).error


@pytest.mark.parametrize("lacks", ["call_id", "name"])
def test_a_call_of_a_response_without_an_id_or_a_name_is_no_answer(lacks: str) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "refund", "arguments": "{}"}
    del call[lacks]
    answer = read_answer("responses", "", json.dumps(response(call, said("Hi"))))
    assert answer.error == "a tool call in it has no id or no name"


def test_only_messages_of_a_response_are_its_text() -> None:
    thought = {"type": "reasoning_text", "text": "Hm."}
    item = {"type": "reasoning", "id": "rs_1", "content": [thought]}
    assert read_answer("responses", "", json.dumps(response(item, said("Hi")))).text == "Hi"


def test_a_call_whose_output_stands_beside_it_was_run_by_openai() -> None:
    call = {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}}
    output = {"type": "shell_call_output", "call_id": "c1", "output": [{"stdout": "a"}]}
    own = {"type": "custom_tool_call", "call_id": "c2", "name": "run", "input": "SELECT 1"}
    answer = read_answer("responses", "", json.dumps(response(call, output, own)))
    assert answer.hosted == {"c1": [{"stdout": "a"}]}
    assert answer.own_calls == (ToolCall("c2", "run", {"input": "SELECT 1"}),)


def test_calls_that_openai_ran_have_their_arguments_and_results() -> None:
    ran = {"type": "code_interpreter_call", "id": "ci_1", "status": "completed"}
    ran |= {"code": "1 + 1", "container_id": "cn_1", "outputs": [{"type": "logs", "logs": "2"}]}
    failed = {"type": "mcp_call", "id": "mcp_1", "name": "look", "arguments": "{}"}
    failed |= {"error": "gone", "output": None}
    answer = read_answer("responses", "", json.dumps(response(ran, failed, {"type": "message"})))
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        ("code_interpreter", {"code": "1 + 1", "container_id": "cn_1"}),
        ("look", {}),
    ]
    results = {"ci_1": [{"type": "logs", "logs": "2"}], "mcp_1": {"error": "gone"}}
    assert answer.hosted == results


@pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use", "some_new_tool_use"])
def test_every_block_that_uses_a_tool_of_anthropic_is_a_call(kind: str) -> None:
    block = {"type": kind, "id": "t1", "name": "refund", "input": {"order": 7}}
    said = {"type": "text", "text": "Done"}
    answer = read_answer(
        "anthropic", "", json.dumps({**BODIES["anthropic"], "content": [block, said]})
    )
    assert answer.tool_calls == (ToolCall("t1", "refund", {"order": 7}),)
    assert answer.own_calls == ()


@pytest.mark.parametrize(
    ("names", "unpriced"),
    [
        (["code_execution"], True),
        (["bash_code_execution", "text_editor_code_execution"], True),
        (["tool_search_tool_regex"], False),
        # With these, code runs for free.
        (["web_search", "code_execution"], False),
        (["web_fetch", "code_execution"], False),
    ],
)
def test_code_that_anthropic_runs_has_an_unknown_fee(names: list[str], unpriced: bool) -> None:
    blocks = [
        {"type": "server_tool_use", "id": f"srv_{name}", "name": name, "input": {}}
        for name in names
    ]
    body = {**BODIES["anthropic"], "content": [*blocks, {"type": "text", "text": "Hi"}]}
    extras = read_answer("anthropic", "", json.dumps(body)).usage.extras
    assert extras is not None
    assert extras.unpriced is unpriced


def test_tools_that_groq_runs_have_an_unknown_fee() -> None:
    ran = {"content": "Hi", "executed_tools": [{"index": 0, "type": "browser_search"}]}
    whole = read_answer("chat", "", json.dumps(chat(ran) | {"usage": CHAT_USAGE}))
    chunk = {"choices": [{"index": 0, "delta": ran, "finish_reason": "stop"}], "usage": CHAT_USAGE}
    stream = read_answer("chat", "", f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")
    assert whole.usage == stream.usage == Usage(10, 5, Extras(unpriced=True))


@pytest.mark.parametrize("detail", ["prompt_tokens_details", "completion_tokens_details"])
def test_tokens_of_audio_have_an_unknown_price(detail: str) -> None:
    for number, extras in ((3, Extras(unpriced=True)), (0, None)):
        usage = {**CHAT_USAGE, detail: {"audio_tokens": number}}
        body = json.dumps(chat({"content": "Hi"}) | {"usage": usage})
        assert read_answer("chat", "", body).usage == Usage(10, 5, extras)


def test_tokens_that_only_the_total_counts_were_written() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 322}
    body = json.dumps({**chat({"content": "Hi"}), "usage": usage})
    assert read_answer("chat", "", body).usage == Usage(10, 312)


def test_calls_of_all_choices_are_read_and_the_text_of_the_first() -> None:
    first, second = (
        delta({"content": "Hi"}, "stop"),
        piece(0, '{"order": 7}', id="c1", name="refund"),
    )
    second["choices"][0]["index"] = 1
    call = {"id": "c1", "function": {"name": "refund", "arguments": '{"order": 7}'}}
    whole = {"content": "Hi"}, {"content": "No", "tool_calls": [call]}
    body = {"choices": [{"message": message, "finish_reason": "stop"} for message in whole]}
    for answer in (
        read_answer("chat", "", json.dumps(body)),
        read_answer("chat", "", sse(second, first)),
    ):
        assert (answer.text, answer.tool_calls) == ("Hi", (CALL,))


@pytest.mark.parametrize("wire", STREAMS)
@pytest.mark.parametrize("content_type", ["text/event-stream; charset=utf-8", ""])
def test_a_stream_says_what_the_same_answer_says_without(wire: Wire, content_type: str) -> None:
    assert read_answer(wire, content_type, STREAMS[wire]) == read_answer(
        wire, "", json.dumps(BODIES[wire])
    )


@pytest.mark.parametrize("wire", STREAMS)
@examples(200)
@given(data=st.data())
def test_what_is_cut_anywhere_is_no_whole_answer(wire: Wire, data: st.DataObject) -> None:
    stream, body = STREAMS[wire], json.dumps(BODIES[wire])
    whole = read_answer(wire, "", stream)

    cut = read_answer(wire, "text/event-stream", stream[: data.draw(st.integers(0, len(stream)))])
    assert not read_answer(wire, "", body[: data.draw(st.integers(0, len(body) - 1))]).complete
    if cut.complete:
        assert (cut.text, cut.tool_calls) == (whole.text, whole.tool_calls)


_KEYS = [
    "choices",
    "message",
    "delta",
    "content",
    "output",
    "input",
    "type",
    "item",
    "tool_calls",
    "function",
    "name",
    "id",
    "call_id",
    "index",
    "response",
    "usage",
    "messages",
    "role",
    "arguments",
    "text",
    "tools",
    "tool_use_id",
    "system",
]


@pytest.mark.parametrize("wire", STREAMS)
@examples(200)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(_KEYS),
                inner | st.sampled_from(["tool_use", "function_call", "message", "message_start"]),
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_body_crashes_a_reader(wire: Wire, value: Any) -> None:
    read_answer(wire, "", json.dumps(value))
    read_answer(wire, "", sse(json.dumps(value), json.dumps(value), "[DONE]"))
    if isinstance(value, dict):
        read_request(wire, value)


@pytest.mark.parametrize(
    ("wire", "body", "call", "result"),
    [
        (
            "responses",
            response(
                {
                    "type": "mcp_call",
                    "id": "mcp_1",
                    "name": "roll",
                    "server_label": "dice",
                    "arguments": '{"sides": 6}',
                    "output": "4",
                },
                said("4"),
            ),
            ToolCall("mcp_1", "roll", {"sides": 6}),
            "4",
        ),
        (
            "responses",
            response(
                {
                    "type": "web_search_call",
                    "id": "ws_1",
                    "status": "completed",
                    "action": {"type": "search", "query": "x"},
                }
            ),
            ToolCall("ws_1", "web_search", {"type": "search", "query": "x"}),
            None,
        ),
        (
            "anthropic",
            message(
                {"type": "mcp_tool_use", "id": "m1", "name": "roll", "input": {"sides": 6}},
                {
                    "type": "mcp_tool_result",
                    "tool_use_id": "m1",
                    "is_error": False,
                    "content": [{"type": "text", "text": "4"}],
                },
            ),
            ToolCall("m1", "roll", {"sides": 6}),
            "4",
        ),
    ],
)
def test_calls_that_the_provider_runs_have_their_results(
    wire: Wire, body: dict[str, Any], call: ToolCall, result: Any
) -> None:
    answer = read_answer(wire, "", json.dumps(body))

    assert answer.tool_calls == (call,)
    assert answer.own_calls == ()
    assert answer.hosted == {call.id: result}
    assert answer.finish_reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("wire", "body", "error"),
    [
        ("chat", '{"error": {"message": "No such model"}}', "No such model"),
        ("responses", '{"error": {"message": "No such model"}}', "No such model"),
        ("anthropic", '{"type": "error", "error": {"message": "Overloaded"}}', "Overloaded"),
        ("chat", sse(delta({"content": "Hel"}), {"error": {"message": "gone"}}), "gone"),
        ("anthropic", sse({"type": "error", "error": {"message": "Overloaded"}}), "Overloaded"),
        ("responses", sse({"type": "error", "message": "gone"}), "gone"),
        (
            "responses",
            json.dumps(response(status="failed", error={"code": "x", "message": "broke"})),
            "broke",
        ),
        (
            "responses",
            json.dumps(response({"type": "message"}, status="cancelled")),
            "its `status` is `cancelled`",
        ),
        ("chat", "<html>", "not valid JSON: Expecting value (line 1, column 1)"),
        ("chat", "", "not valid JSON: Expecting value (line 1, column 1)"),
        ("chat", '{"choices": 1}', "it has no `choices`"),
    ],
)
def test_what_is_no_answer_says_why(wire: Wire, body: str, error: str) -> None:
    answer = read_answer(wire, "", body)

    assert (answer.error, answer.complete, answer.tool_calls) == (error, False, ())


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "max_tokens",
        ),
        ({"status": "incomplete", "incomplete_details": None}, "other"),
        ({"output": [said("")["content"][0] | {"type": "refusal", "refusal": "No."}]}, "stop"),
        (
            {"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]},
            "content_filter",
        ),
    ],
)
def test_a_response_says_why_it_ended(more: dict[str, Any], reason: str) -> None:
    assert (
        read_answer("responses", "", json.dumps(response(said("x")) | more)).finish_reason == reason
    )


def test_a_response_in_the_background_is_not_complete() -> None:
    assert not read_answer("responses", "", json.dumps(response(status="in_progress"))).complete


def test_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    calls = [{"id": f"c{n}", "function": {"name": "x", "arguments": "{}"}} for n in (1, 2)]

    answer = read_answer("chat", "", sse(delta({"tool_calls": calls}, "tool_calls")))

    assert [call.id for call in answer.tool_calls] == ["c1", "c2"]


@pytest.mark.parametrize("ids", [({}, "c1"), ("c1", [1])])
def test_ids_that_are_not_text_crash_no_reader_of_a_stream(ids: tuple[Any, Any]) -> None:
    piece, whole = ({"id": each, "function": {"name": "x", "arguments": "{}"}} for each in ids)
    message = {"choices": [{"message": {"tool_calls": [whole]}, "finish_reason": "tool_calls"}]}

    answer = read_answer("chat", "", sse(delta({"tool_calls": [piece]}), json.dumps(message)))

    assert [call.name for call in answer.tool_calls] == ["x", "x"]


_ARGUMENTS = '{"order": 7}'
_FUNCTION = {"name": "refund", "arguments": _ARGUMENTS}
_CALL = {"id": "c1", "type": "function", "function": _FUNCTION}
_ITEM = {"type": "function_call", "id": "f1", "call_id": "c1"} | _FUNCTION
_SAYS = {"type": "message", "content": [{"type": "output_text", "text": "ok"}]}
_WHOLE = {"role": "assistant", "content": None, "tool_calls": [_CALL]}
_END = {
    "type": "response.completed",
    "response": {"id": "r", "status": "completed", "output": [_SAYS]},
}


@pytest.mark.parametrize(
    ("wire", "events", "is_read"),
    [
        ("chat", [{"choices": [{"message": _WHOLE, "finish_reason": "tool_calls"}]}], True),
        (
            "chat",
            [
                {"choices": [{"delta": {"tool_calls": [_CALL]}}]},
                {"choices": [{"message": _WHOLE, "finish_reason": "tool_calls"}]},
            ],
            True,
        ),
        ("chat", [{"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}], False),
        # The older form of calls, in pieces and then whole.
        (
            "chat",
            [
                {"choices": [{"delta": {"function_call": {"name": "refund", "arguments": ""}}}]},
                {"choices": [{"delta": {"function_call": {"arguments": _ARGUMENTS}}}]},
                {"choices": [{"finish_reason": "function_call"}]},
            ],
            True,
        ),
        (
            "chat",
            [
                {"choices": [{"delta": {"function_call": _FUNCTION}}]},
                {
                    "choices": [
                        {
                            "message": {"content": None, "function_call": _FUNCTION},
                            "finish_reason": "function_call",
                        }
                    ]
                },
            ],
            True,
        ),
        ("responses", [{"type": "response.output_item.done", "item": _ITEM}, _END], True),
        ("responses", [{"type": "response.output_item.added", "item": _ITEM}, _END], False),
        (
            "responses",
            [
                {"type": "response.output_item.added", "item": _ITEM},
                {"type": "response.output_item.done", "item": _ITEM},
                _END,
            ],
            True,
        ),
        (
            "anthropic",
            [
                {"type": "message_start", "message": {"content": []}},
                {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
                {"type": "message_stop"},
            ],
            False,
        ),
    ],
)
def test_a_call_that_a_stream_tells_of_is_read_or_the_answer_is_not_whole(
    wire: Wire, events: list[Any], is_read: bool
) -> None:
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    answer = read_answer(wire, "text/event-stream", body)
    expected = [("refund", {"order": 7})] if is_read else []
    assert [(call.name, call.arguments) for call in answer.tool_calls] == expected
    assert answer.complete is is_read


def test_a_text_that_a_stream_repeats_whole_counts_once() -> None:
    pieces = [{"choices": [{"delta": {"content": text}}]} for text in ("Refun", "ded.")]
    whole = {"choices": [{"message": {"content": "Refunded."}, "finish_reason": "stop"}]}
    assert read_answer("chat", "", sse(*pieces, whole, "[DONE]")).text == "Refunded."


def test_a_stream_of_completions_may_end_without_a_finish_reason() -> None:
    piece = {"choices": [{"delta": {"content": "Hi"}}]}
    ends = (["[DONE]"], [{"choices": []}])
    complete = [read_answer("chat", "", sse(piece, *end)).complete for end in ends]
    assert complete == [True, False]


def test_a_broken_event_is_no_answer_unless_the_stream_ends_in_it() -> None:
    piece = {"choices": [{"delta": {"content": "Hi"}}]}
    broken, end = '{"choices": [{"delta": {"tool', {"choices": [{"finish_reason": "stop"}]}
    within = read_answer("chat", "", sse(piece, broken, end, "[DONE]"))
    at_the_end = read_answer("chat", "", sse(piece, broken))
    assert (within.text, within.complete) == ("", False)
    assert within.error is not None
    assert "not valid JSON" in within.error
    assert (at_the_end.text, at_the_end.error, at_the_end.complete) == ("Hi", None, False)


def test_a_stream_that_ends_with_a_failure_has_its_tokens() -> None:
    failed = response() | {"status": "failed", "error": {"message": "gone"}}
    answer = read_answer("responses", "", sse({"type": "response.failed", "response": failed}))
    assert (answer.error, answer.usage.input_tokens) == ("gone", 12)
