"""Agents that speak a protocol: what they are sent, and what is read of their answers.

Bodies are as the protocols document them. Each is read alike with `protocol` and by what it looks
like, whatever pieces it comes in, and one that breaks off is never an answer.
"""

from __future__ import annotations

import contextlib
import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm.agents.event_streams import read_stream
from kindlm.agents.reply_parts import UnreadableReply
from kindlm.agents.reply_reading import FailedReply, Reading, read_reply
from kindlm.transcript import UNNAMED, Message, Role, Usage

STREAM = "text/event-stream"
JSON = "application/json"
ITEMS = [
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c1",
        "name": "refund",
        "arguments": '{"id": 7}',
    },
    {"type": "function_call_output", "call_id": "c1", "output": "done"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Refunded."}],
    },
]
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "m",
    "output": ITEMS,
    "instructions": "Use tools.",
    "text": {"format": {"type": "text"}},
    "tool_choice": {"type": "function", "name": "refund"},
    "tools": [{"type": "function", "name": "refund", "parameters": {}}],
    "usage": {"input_tokens": 5, "output_tokens": 6},
}
RESPONSES = [
    {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}},
    *({"type": "response.output_item.done", "item": item} for item in ITEMS),
    {"type": "response.completed", "response": RESPONSE},
]
MESSAGE = {
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [
        {"type": "mcp_tool_use", "id": "c1", "name": "refund", "input": {"id": 7}},
        {"type": "mcp_tool_result", "tool_use_id": "c1", "content": "done"},
        {"type": "text", "text": "Refunded."},
    ],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 5, "output_tokens": 6},
}
BLOCKS = [
    {
        "type": "message_start",
        "message": {
            **MESSAGE,
            "content": [],
            "usage": {"input_tokens": 5, "output_tokens": 1},
        },
    },
    {"type": "ping"},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {**MESSAGE["content"][0], "input": {}},
    },
    *(
        {"type": "content_block_delta", "index": 0, "delta": {"partial_json": written}}
        for written in ('{"id"', ": 7}")
    ),
    {"type": "content_block_start", "index": 1, "content_block": MESSAGE["content"][1]},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
    *(
        {"type": "content_block_delta", "index": 2, "delta": {"text": text}}
        for text in ("Refun", "ded.")
    ),
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 6}},
    {"type": "message_stop"},
]
CHAT = {
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"content": "Refunded."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 6},
}
AG_UI = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "STEP_STARTED", "stepName": "tools"},
    {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "refund"},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '{"id"'},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": ": 7}"},
    {"type": "TOOL_CALL_END", "toolCallId": "c1"},
    {"type": "TOOL_CALL_RESULT", "messageId": "m1", "toolCallId": "c1", "content": '"done"'},
    {"type": "STATE_SNAPSHOT", "snapshot": {"open": 1}},
    {"type": "REASONING_MESSAGE_CONTENT", "messageId": "m0", "delta": "Hm."},
    {"type": "TEXT_MESSAGE_START", "messageId": "m2", "role": "assistant"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m2", "delta": "Refun"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m2", "delta": "ded."},
    {"type": "TEXT_MESSAGE_END", "messageId": "m2"},
    {
        "type": "RUN_FINISHED",
        "threadId": "t",
        "runId": "r",
        "usage": [{"model": "m", "inputTokens": 5, "outputTokens": 6}],
    },
]
UI_MESSAGES = [
    {"type": "start", "messageMetadata": {"model": "m"}},
    {"type": "tool-input-available", "toolCallId": "c1", "toolName": "refund", "input": {"id": 7}},
    {"type": "tool-output-available", "toolCallId": "c1", "output": "done"},
    {"type": "text-delta", "id": "t", "delta": "Refunded."},
    {
        "type": "finish",
        "messageMetadata": {"totalUsage": {"inputTokens": 5, "outputTokens": 6}},
    },
]


def rpc(result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "1", "result": result}


USED = {"model": "m", "usage": {"input_tokens": 5, "output_tokens": 6}}
CALLED = {
    "data": {"id": "c1", "name": "refund", "args": {"id": 7}},
    "metadata": {"adk_type": "function_call"},
}
ANSWERED = {
    "data": {"id": "c1", "name": "refund", "response": "done"},
    "metadata": {"adk_type": "function_response"},
}
TASK = {
    "id": "task-1",
    "contextId": "context-1",
    "metadata": USED,
    "history": [
        {"messageId": "u1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]},
        {"messageId": "a1", "role": "ROLE_AGENT", "parts": [{"text": "Wait."}, CALLED, ANSWERED]},
    ],
    "status": {"state": "TASK_STATE_COMPLETED"},
    "artifacts": [{"artifactId": "x", "parts": [{"text": "Refun"}, {"text": "ded."}]}],
}


def earlier(value: Any) -> Any:
    """What version 1.0 writes, as version 0.3 does."""
    written = json.dumps(value).replace("ROLE_USER", "user").replace("ROLE_AGENT", "agent")
    written = written.replace("TASK_STATE_COMPLETED", "completed")
    return json.loads(written.replace('{"text"', '{"kind": "text", "text"'))


WHOLE = [
    ("chat", CHAT),
    ("responses", RESPONSE),
    ("anthropic", MESSAGE),
    ("a2a", rpc({"task": TASK})),
    ("a2a-0.3", earlier(rpc({"kind": "task", **TASK}))),
]
STREAMS = [
    ("responses", RESPONSES),
    ("anthropic", BLOCKS),
    ("ag-ui", AG_UI),
    ("ai-sdk", UI_MESSAGES),
]


def sse(events: list[Any]) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


def said(reply: Any) -> Any:
    """What every body here says, apart from the id of the call."""
    calls = [(use.call.name, use.call.arguments, use.response) for use in reply.tool_uses]
    return reply.text, calls, reply.usage, reply.model


REFUNDED = ("Refunded.", [("refund", {"id": 7}, "done")], Usage(5, 6), "m")


@pytest.mark.parametrize(("protocol", "body"), WHOLE, ids=[name for name, _ in WHOLE])
def test_a_whole_answer_is_read(reply, protocol, body):
    expected = ("Refunded.", [], *REFUNDED[2:]) if protocol == "chat" else REFUNDED

    assert said(reply(body)) == expected
    assert said(reply(body, protocol=protocol)) == expected
    assert said(reply(body, protocol=protocol, adapter="streaming")) == expected


PART = {"type": "refusal", "refusal": "No."}
REFUSED = {"index": 0, "delta": {"refusal": "No."}, "finish_reason": "stop"}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (json.dumps({"choices": [{"message": {"content": None, "refusal": "No."}}]}), JSON),
        (json.dumps({**RESPONSE, "output": [{"type": "message", "content": [PART]}]}), JSON),
        (sse([{"choices": [REFUSED]}]), STREAM),
    ],
    ids=["chat", "responses", "chat stream"],
)
def test_a_refusal_is_the_text_of_an_answer(reply, body, kind):
    assert reply(body, kind=kind).text == "No."


@pytest.mark.parametrize("adapter", ["http", "streaming"])
@pytest.mark.parametrize(("protocol", "events"), STREAMS, ids=[name for name, _ in STREAMS])
def test_a_stream_is_read(reply, adapter, protocol, events):
    body = sse(events)

    assert said(reply(body, kind=STREAM, adapter=adapter)) == REFUNDED
    assert said(reply(body, kind=STREAM, adapter=adapter, protocol=protocol)) == REFUNDED


@pytest.mark.parametrize(
    ("second", "usage", "model"),
    [
        ({"model": "m", "inputTokens": 4, "outputTokens": 3}, Usage(9, 9), "m"),
        ({"model": "m", "inputTokens": 4}, Usage(9, None), "m"),
        ({"model": "m"}, Usage(None, None), "m"),
        ({"inputTokens": 4, "outputTokens": 3}, Usage(9, 9), None),
        ({"model": "other", "inputTokens": 4, "outputTokens": 3}, Usage(9, 9), None),
    ],
)
def test_what_one_model_of_a_run_does_not_report_is_unknown(reply, second, usage, model):
    first = AG_UI[-1]["usage"]
    heard = reply(sse([*AG_UI[:-1], {**AG_UI[-1], "usage": [*first, second]}]), kind=STREAM)

    # A price for a part of the tokens would be too low for a limit of costs.
    assert (heard.usage, heard.model) == (usage, model)


@pytest.mark.parametrize(("protocol", "events"), STREAMS, ids=[name for name, _ in STREAMS])
def test_a_stream_reads_the_same_in_any_pieces(talk, success, protocol, events):
    body = sse(events).replace("Refun", "R\u00e9fun").replace("\n\n", "\r\n\r\n").encode()
    chunks = (body[at : at + 3] for at in range(0, len(body), 3))
    packed = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked"

    (result,), _ = talk(head + b"\r\n\r\n" + packed + b"0\r\n\r\n", protocol=protocol)

    assert said(success(result)) == ("R\u00e9funded.", *REFUNDED[1:])


@pytest.mark.parametrize(("protocol", "events"), STREAMS, ids=[name for name, _ in STREAMS])
@examples(30)
@given(data=st.data())
def test_a_stream_that_breaks_off_is_no_answer(protocol, events, data):
    body = sse(events)
    # Up to the last event, with nothing of what ends it.
    end = data.draw(st.integers(0, len(sse(events[:-1]))))
    try:
        heard = read_stream(body[:end], Reading(), has_end=True)
    except (UnreadableReply, FailedReply):
        return
    assert (heard.reply.text, heard.reply.tool_uses) == ("", ())


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(inner, (*path, key))
    return found


@examples(150)
@given(data=st.data(), streams=st.sampled_from(STREAMS), value=ANYTHING)
def test_anything_in_any_place_is_read_or_refused(data, streams, value):
    events = copy.deepcopy(streams[1])
    *outer, last = data.draw(st.sampled_from(places(events)))
    owner: Any = events
    for key in outer:
        owner = owner[key]
    owner[last] = value
    with contextlib.suppress(UnreadableReply, FailedReply):
        read_stream(sse(events), Reading(), has_end=True)


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (STREAM, sse([{"type": "response.failed", "response": {"status": "failed"}}]), "failed"),
        (STREAM, sse([RESPONSES[0], {"type": "error", "message": "too busy"}]), "too busy"),
        (STREAM, sse([AG_UI[0], {"type": "RUN_ERROR", "message": "too busy"}]), "too busy"),
        ("application/json", {**rpc(None), "error": {"code": -3, "message": "too busy"}}, "busy"),
        (
            "application/json",
            rpc({"task": {"id": "t", "status": {"state": "TASK_STATE_FAILED"}}}),
            "the task is `failed`",
        ),
        (
            "application/json",
            rpc({"kind": "task", "id": "t", "status": {"state": "working"}}),
            "its task is still `working`",
        ),
        ("application/json", rpc({"kind": "message", "parts": []}), "no part with a text"),
        (STREAM, sse([{"candidates": [{"content": {}, "finishReason": "STOP"}]}]), "Gemini"),
    ],
)
def test_a_failure_says_why(talk, http, failure, kind, body, message):
    (result,), _ = talk(http(body, kind=kind))

    assert message in failure(result).message


@pytest.mark.parametrize(
    ("protocol", "body", "message"),
    [
        ("chat", {"text": "Hello"}, "not an answer in the form of chat completions"),
        ("responses", CHAT, "not an answer in the form of OpenAI responses"),
        ("a2a", {"message": "Hello"}, "not an answer in the form of A2A"),
        ("ag-ui", {"text": "Hello"}, "not an answer in the form of AG-UI"),
        ("anthropic", {"error": {"message": "too busy"}}, "too busy"),
        ("a2a", {**rpc(None), "error": {"code": -32601, "message": "what?"}}, "`a2a-0.3` is 0.3"),
    ],
)
def test_an_answer_in_another_form_is_an_error(talk, http, failure, protocol, body, message):
    (result,), _ = talk(http(body), protocol=protocol)

    assert message in failure(result).message


def test_a_stream_in_another_form_is_an_error(talk, http, failure):
    (result,), _ = talk(http(sse(AG_UI), kind=STREAM), protocol="ai-sdk")

    error = failure(result)
    assert "not a stream of AI SDK messages" in error.message
    assert error.hint.startswith("Give the `protocol` that the agent speaks")


TALK = (
    Message(Role.SYSTEM, "Be kind."),
    Message(Role.USER, "one"),
    Message(Role.ASSISTANT, "ok"),
    Message(Role.USER, "two"),
)
ROLES = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "ok"}]
ROLES += [{"role": "user", "content": "two"}]


def parts(number: int, role: str, text: str) -> dict[str, Any]:
    part = {"type": "text", "text": text}
    return {"id": f"conv-1-{number}", "role": role, "parts": [part]}


@pytest.mark.parametrize(
    ("protocol", "body", "sent"),
    [
        ("chat", CHAT, {"messages": [{"role": "system", "content": "Be kind."}, *ROLES]}),
        ("responses", RESPONSE, {"instructions": "Be kind.", "input": ROLES}),
        ("anthropic", MESSAGE, {"max_tokens": 4096, "system": "Be kind.", "messages": ROLES}),
        (
            "ai-sdk",
            sse(UI_MESSAGES),
            {
                "id": "conv-1",
                "trigger": "submit-message",
                "messages": [parts(n, it.role.value, it.text) for n, it in enumerate(TALK)],
                "user": "Ada",
            },
        ),
        (
            "ag-ui",
            sse(AG_UI),
            {
                "threadId": "conv-1",
                "runId": "conv-1-4",
                "state": {"open": 1},
                "messages": [
                    {"id": f"conv-1-{n}", "role": it.role.value, "content": it.text}
                    for n, it in enumerate(TALK)
                ],
                "tools": [],
                "context": [{"description": "user", "value": "Ada"}],
                "forwardedProps": {},
            },
        ),
        (
            "a2a",
            rpc({"task": TASK}),
            {
                "jsonrpc": "2.0",
                "id": "conv-1-4",
                "method": "SendMessage",
                "params": {
                    "message": {
                        "role": "ROLE_USER",
                        "parts": [{"text": "two"}],
                        "messageId": "conv-1-4",
                        "contextId": "context-1",
                        "metadata": {"user": "Ada"},
                    }
                },
            },
        ),
    ],
)
def test_a_request_has_the_form_of_its_protocol(talk, http, ask, success, protocol, body, sent):
    second = replace(ask(*TALK), context={"user": "Ada"})
    answer = http(body, kind=STREAM if isinstance(body, str) else "application/json")

    results, server = talk(answer, requests=[ask(*TALK[:2]), second], protocol=protocol)

    assert server.received[1].body == sent
    warnings = success(results[1]).warnings
    lacks_context = protocol in ("chat", "responses", "anthropic")
    assert any("context was not sent" in it for it in warnings) == lacks_context
    assert any("system prompt was not sent" in it for it in warnings) == (protocol == "a2a")


@pytest.mark.parametrize(
    ("protocol", "body", "sent"),
    [
        ("responses", RESPONSE, {"input": ROLES[:1]}),
        ("anthropic", MESSAGE, {"max_tokens": 4096, "messages": ROLES[:1]}),
    ],
)
def test_a_request_without_a_system_text_has_no_key_for_it(talk, http, ask, protocol, body, sent):
    _, server = talk(http(body), requests=[ask(TALK[1])], protocol=protocol)

    assert server.received[0].body == sent


def test_the_form_of_requests_does_not_count_beside_a_protocol(talk, http, ask, success):
    (result,), _ = talk(
        http(rpc({"task": TASK})), requests=[ask(*TALK[:2])], protocol="a2a", request="messages"
    )

    assert "system prompt was not sent" in success(result).warnings[0]


def test_a_body_may_have_the_system_text_that_its_protocol_has_not(talk, http, ask, success):
    body = {"metadata": {"system": "{{system}}"}}

    (result,), server = talk(
        http(rpc({"task": TASK})), requests=[ask(*TALK[:2])], protocol="a2a", body=body
    )

    assert server.received[0].body["metadata"] == {"system": TALK[0].text}
    assert success(result).warnings == ()


def test_version_0_3_of_a2a_has_names_of_its_own(talk, http, ask):
    task = {**TASK, "kind": "task", "status": {"state": "input-required"}}
    requests = [ask("one"), ask("one", "two")]

    _, server = talk(http(earlier(rpc(task))), requests=requests, protocol="a2a-0.3")

    assert "a2a-version" not in server.received[0].headers
    assert server.received[1].body["method"] == "message/send"
    assert server.received[1].body["params"] == {
        "message": {
            "kind": "message",
            "role": "user",
            "parts": [{"kind": "text", "text": "two"}],
            "messageId": "conv-1-2",
            # It goes on with the task that waits for this.
            "contextId": "context-1",
            "taskId": "task-1",
        },
        "configuration": {"blocking": True, "acceptedOutputModes": []},
    }


@pytest.mark.parametrize(
    ("protocol", "events", "streams"),
    [
        ("chat", [{**CHAT, "choices": [{"delta": {}, "finish_reason": "stop"}]}], True),
        ("responses", RESPONSES, True),
        ("ag-ui", AG_UI, None),
    ],
)
def test_the_streaming_adapter_asks_for_a_stream(talk, http, protocol, events, streams):
    _, server = talk(http(sse(events), kind=STREAM), adapter="streaming", protocol=protocol)

    (request,) = server.received
    assert request.body.get("stream", request.body.get("method")) == streams


def test_of_a2a_the_whole_answer_is_asked_for_and_no_stream_is_read(talk, http, success, failure):
    (result,), server = talk(http(rpc({"task": TASK})), adapter="streaming", protocol="a2a")
    assert server.received[0].body["method"] == "SendMessage"
    assert server.received[0].headers["a2a-version"] == "1.0"
    assert success(result).text == "Refunded."

    (result,), _ = talk(http(rpc({"task": TASK})), adapter="streaming")
    assert success(result).text == "Refunded."

    stream = http(sse([rpc({"statusUpdate": {"status": {"state": "working"}}})]), kind=STREAM)
    (result,), _ = talk(stream, protocol="a2a")
    assert "streams of A2A are not read" in failure(result).message


def test_a_template_adds_to_the_body_of_a_protocol(talk, http):
    body = {"model": "shop", "max_tokens": 10, "user": "{{conversation_id}}"}

    _, server = talk(http(MESSAGE), protocol="anthropic", body=body)

    assert server.received[0].body == {
        "model": "shop",
        "max_tokens": 10,
        "user": "conv-1",
        "messages": [{"role": "user", "content": "Hello"}],
    }


def test_a_step_that_begins_anew_takes_its_text_back(reply):
    events = [
        {"type": "start-step"},
        {"type": "text-start", "id": "0"},
        {"type": "text-delta", "id": "0", "delta": "One."},
        {"type": "start-step"},
        {"type": "text-start", "id": "0"},
        {"type": "text-delta", "id": "0", "delta": "Tw"},
        {"type": "reset-step"},
        {"type": "text-start", "id": "0"},
        {"type": "text-delta", "id": "0", "delta": "Two."},
        {"type": "finish"},
    ]

    assert reply(sse(events), kind=STREAM).text == "One.\n\nTwo."


REFUND = {"toolCallId": "c1", "toolName": "refund"}
REUSED = {
    "ag-ui": [
        {"type": "RUN_STARTED"},
        {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "refund"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '{"id": 7}'},
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
        {"type": "TOOL_CALL_RESULT", "toolCallId": "c1", "content": "done"},
        {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "lookup"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '{"id": 8}'},
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
        {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "refund"},
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hi"},
        {"type": "RUN_FINISHED"},
    ],
    "ai-sdk": [
        {"type": "tool-input-start", **REFUND},
        {"type": "tool-input-available", **REFUND, "input": {"id": 7}},
        {"type": "tool-output-available", "toolCallId": "c1", "output": "done"},
        {"type": "tool-input-available", **REFUND, "toolName": "lookup", "input": {"id": 8}},
        {"type": "tool-input-start", **REFUND},
        {"type": "text-delta", "id": "t", "delta": "Hi"},
        {"type": "finish"},
    ],
    "events": [
        {"type": "node", "tool_calls": [{"id": "c1", "name": "refund"}]},
        {"type": "node", "tool_calls": [{"id": "c1", "name": "refund", "args": {"id": 7}}]},
        {"type": "node", "tool_calls": [{"id": "c1", "name": "refund", "result": "done"}]},
        {"type": "node", "tool_calls": [{"id": "c1", "name": "lookup", "args": {"id": 8}}]},
        {"type": "node", "tool_calls": [{"id": "c1", "name": "refund", "args": {}}]},
        {"type": "token", "token": "Hi"},
        {"type": "done"},
    ],
}  # fmt: skip
"""Three calls of which all have the same id, as some models number the calls of each answer."""


@pytest.mark.parametrize("name", REUSED)
def test_an_id_that_is_used_again_is_of_another_call(reply, name):
    _, calls, *_ = said(reply(sse(REUSED[name]), kind=STREAM, adapter="streaming"))

    assert calls == [
        ("refund", {"id": 7}, "done"),
        ("lookup", {"id": 8}, None),
        ("refund", {}, None),
    ]


def test_an_id_that_a_task_uses_again_is_of_another_call(reply):
    again = {**CALLED, "data": {"id": "c1", "name": "lookup", "args": {"id": 8}}}
    parts = [CALLED, CALLED, ANSWERED, again, {"text": "Refunded."}]
    task = {"status": {"state": "completed", "message": {"parts": parts}}}

    _, calls, *_ = said(reply(rpc({"task": task})))
    assert calls == [("refund", {"id": 7}, "done"), ("lookup", {"id": 8}, None)]


def test_an_agent_that_is_a_tool_of_adk_may_have_called_others(reply):
    data = {"id": "c1", "name": "refunds", "args": {"request": "Refund order 7"}}
    parts = [{"data": data, "metadata": {"adk_type": "function_call"}}, {"text": "Refunded."}]
    task = {"status": {"state": "completed", "message": {"parts": parts}}}

    _, calls, *_ = said(answer := reply(rpc({"task": task})))
    assert calls == [("refunds", data["args"], None), (UNNAMED, {}, None)]
    assert "`the agent refunds` of the answer may contain tool calls" in answer.warnings[0]


def test_calls_in_other_data_of_a_task_are_read(reply):
    call = {"type": "tool_call", "tool": "refund", "args": {"id": 7}}
    parts = [{"data": {"tool_calls": [call], "log": [call]}}, {"text": "Refunded."}]
    task = {"status": {"state": "completed", "message": {"parts": parts}}}

    _, calls, *_ = said(reply(rpc({"task": task})))
    assert calls == [("refund", {"id": 7}, None)]


@pytest.mark.parametrize(
    ("counted", "usage"),
    [({"output_tokens": 60}, Usage(100, 60)), ({"output_tokens": "60"}, Usage(100)),
     ({}, Usage(100))],
)  # fmt: skip
def test_the_beginning_of_a_message_of_anthropic_does_not_count_what_was_written(counted, usage):
    begun = {"role": "assistant", "content": [], "usage": {"input_tokens": 100, "output_tokens": 1}}
    events = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Done."}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": counted},
        {"type": "message_stop"},
    ]
    assert read_stream(sse(events), Reading(), has_end=True).reply.usage == usage


def test_tokens_of_a_cache_that_cannot_be_read_leave_the_input_unknown():
    counts = {"input_tokens": 100, "output_tokens": 60, "cache_read_input_tokens": "1000"}
    usage = read_reply({"text": "Done.", "usage": counts}, Reading()).usage
    assert (usage.input_tokens, usage.output_tokens) == (None, 60)
